"""Texts for codes of the catalog: what closes or repairs a fault, and where it is.

`rules/data/codes.json` has the texts for the codes of other programs in the Xid catalog.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from rules.catalog import thresholds
from rules.catalog.data_file import data_file
from rules.catalog.reason import Action, ClosesKind, ClosesOn
from rules.catalog.xid import PLACED_XID, XidRow
from rules.text import printable

_CLOSES: Final = {
    ClosesKind.RESET: "closes after a GPU reset or a reboot, when the agent finds the GPU healthy",
    ClosesKind.REBOOT: "closes after a reboot, when the agent finds the GPUs healthy",
    ClosesKind.HUMAN: "closes when an operator reports the repair and the agent confirms it",
}
_REPAIR: Final = {
    Action.NONE: "nothing to repair",
    Action.RESTART_APP: "restart the program",
    Action.RESET_GPU: "reset the GPU, or reboot the node",
    Action.RESTART_NODE: "reboot the node",
    Action.POWER_CYCLE: "power-cycle the node; a reboot is not enough",
    Action.REPLACE_NODE: "replace the GPU or the node: open a case with the vendor",
    Action.INVESTIGATE: "investigate, starting with the evidence",
    Action.DRAIN_P2P: "stop workloads with peer-to-peer traffic, then reset the GPU",
    Action.RECOVER_IMEX_DOMAIN: "restart the IMEX daemons of the rack or ComputeDomain",
    Action.RESTART_FABRIC_MANAGER: "restart the fabric manager",
    Action.RUN_DIAGNOSTICS: "run diagnostics under load",
    Action.CHECK_MECHANICALS: "check seating, cables and cooling",
    Action.UPDATE_FIRMWARE: "update the firmware",
}


NO_REPAIR: Final = frozenset({Action.NONE, Action.RESTART_APP})
"""Actions that do not repair a node."""


def closes(text: str) -> str:
    """Return what closes an incident; the code itself if a newer agent wrote an unknown one."""
    try:
        ends = ClosesOn.parse(text)
    except ValueError:
        return f"closes on {text}" if text else ""
    if ends.kind is ClosesKind.SILENCE:
        return f"closes {ends.silence} after it was last seen"
    if ends.kind is ClosesKind.STATE:
        return (
            f"closes when {ends.count} of the last {ends.window} readings of {ends.signal} are "
            "good"
        )
    return _CLOSES[ends.kind]


def repair(action: str) -> str:
    """Return the text of a repair; the code itself if it is unknown."""
    return next((text for known, text in _REPAIR.items() if known == action), action)


def repeats_needed(xid: int) -> str:
    """Return when a repeated program error (`REPEATING_XIDS`) counts as a fault of the GPU."""
    bursts, hours = (
        thresholds.DEFAULT_RULES["RepeatBursts"],
        thresholds.DEFAULT_RULES["RepeatWindow"].value / 3600,
    )
    place = ", at one place of the chip" if xid == PLACED_XID else ""
    enough = f"{bursts.value:.0f} bursts within {hours:.0f} h"
    return f"{enough} that no other GPU of the node shows{place}"


_COMMANDS: Final = {
    Action.RESET_GPU: "nvidia-smi --gpu-reset -i {pci}",
    Action.RESTART_NODE: "systemctl reboot",
    Action.POWER_CYCLE: "ipmitool chassis power cycle",
    Action.RESTART_FABRIC_MANAGER: "systemctl restart nvidia-fabricmanager",
    Action.RUN_DIAGNOSTICS: "dcgmi diag -r 3",
}
"""Commands to run on the node when no process uses a GPU."""


def repair_command(action: str, pci: str = "") -> str:
    """Return the repair command to run on the node; empty if there is none."""
    command = next((text for known, text in _COMMANDS.items() if known == action), "")
    return (
        "" if "{pci}" in command and not printable.is_pasteable(pci) else command.format(pci=pci)
    )


GPU: Final = "GPU"
NVSWITCH: Final = "NVSwitch"

_OTHERS: Final = (
    ("SXid", NVSWITCH),
    ("Nic", "network adapter"),
    ("PcieAer", "PCI device"),  # a GPU, or a port above it
    ("PcieContainment", "PCI device"),
)
"""Prefixes of reasons about other devices than a GPU (`rules.judge.facts.kernel`)."""


def device_kind(reason: str) -> str:
    """Return the kind of device that an incident of this reason is about."""
    return next((kind for start, kind in _OTHERS if reason.startswith(start)), GPU)


def device_at(reason: str, address: str) -> str:
    """Return a device by its address: `NVSwitch at 0000:0a:00`."""
    return f"{device_kind(reason)} at {address}"


def places(reason: str, pci: Sequence[str], gpus: Sequence[str]) -> tuple[str, ...]:
    """Return the addresses and UUIDs of an incident's GPUs, or its other devices."""
    return (*pci, *gpus) if gpus else tuple(device_at(reason, address) for address in pci)


class _CodesFile(msgspec.Struct, frozen=True):
    buckets: dict[str, str]
    peers: dict[str, dict[str, str]]
    """By column of the catalog."""


_FILE: Final = msgspec.json.decode(data_file("codes.json"), type=_CodesFile)
BUCKETS: Final = _FILE.buckets

PEERS: Final = (
    ("device_plugin", "device plugin"),
    ("eks", "EKS agent"),
    ("dcgm", "DCGM health"),
    ("nvsentinel", "NVSentinel"),
)
"""Columns of the catalog about other programs, and their names, in the order shown."""


def peer_sentence(row: XidRow, peer: str) -> str:
    """Return what `peer` (a column of the catalog) does with the Xid."""
    code: str = getattr(row, peer)
    return _FILE.peers.get(peer, {}).get(code, code) + "."
