"""Codes of the catalog in plain English: what ends or repairs a fault, where it is.

For `explain`, `check`, `why` and the pages. What the short codes of the Xid catalog mean stands in
`rules/data/codes.json`; they are facts about other programs at the time of the catalog.
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
    ClosesKind.RESET: "closes once the agent sees that the GPU was reset (or the node rebooted) "
    "and works",
    ClosesKind.REBOOT: "closes once the agent sees that the node was rebooted and its GPUs work",
    ClosesKind.HUMAN: "closes once an operator reports the repair and the agent agrees",
}
_REPAIR: Final = {
    Action.NONE: "nothing to repair",
    Action.RESTART_APP: "restart the program",
    Action.RESET_GPU: "reset the GPU, or reboot the node",
    Action.RESTART_NODE: "reboot the node",
    Action.POWER_CYCLE: "power the node off and on; a reboot is not enough",
    Action.REPLACE_NODE: "replace the GPU or the node: open a case with the vendor",
    Action.INVESTIGATE: "an operator investigates, beginning with the evidence",
    Action.DRAIN_P2P: "end what uses GPU to GPU traffic, then reset the GPU",
    Action.RECOVER_IMEX_DOMAIN: "recover the IMEX domain of the rack",
    Action.RESTART_FABRIC_MANAGER: "restart the fabric manager",
    Action.RUN_DIAGNOSTICS: "run diagnostics under load",
    Action.CHECK_MECHANICALS: "check seating, cables and cooling",
    Action.UPDATE_FIRMWARE: "update the firmware",
}


NO_REPAIR: Final = frozenset({Action.NONE, Action.RESTART_APP})
"""What mends nothing of a node: a drained one has no program of which to speak."""


def closes(text: str) -> str:
    """What ends an incident; the code itself where a newer agent wrote one not known here."""
    try:
        ends = ClosesOn.parse(text)
    except ValueError:
        return f"closes on {text}" if text else ""
    if ends.kind is ClosesKind.SILENCE:
        return f"closes by itself {ends.silence} after it was last seen"
    if ends.kind is ClosesKind.STATE:
        return (
            f"closes when {ends.count} of the last {ends.window} readings of {ends.signal} are "
            "good"
        )
    return _CLOSES[ends.kind]


def repair(action: str) -> str:
    """What would repair it; the code itself where it is not known here."""
    return next((words for known, words in _REPAIR.items() if known == action), action)


def repeats_needed(xid: int) -> str:
    """What makes a program's fault that repeats (`REPEATING_XIDS`) one of the GPU."""
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
"""What somebody types on the node, once nothing uses a GPU there."""


def repair_command(action: str, pci: str = "") -> str:
    """The command on the node that repairs; "" where none does, or the address is none."""
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
"""How reasons begin whose lines name something else (`rules.judge.facts.kernel`)."""


def device_kind(reason: str) -> str:
    """What an incident of this reason is about, as far as its address alone is known."""
    return next((kind for start, kind in _OTHERS if reason.startswith(start)), GPU)


def device_at(reason: str, address: str) -> str:
    """A device that is known by its address alone: `NVSwitch at 0000:0a:00`."""
    return f"{device_kind(reason)} at {address}"


def places(reason: str, pci: Sequence[str], gpus: Sequence[str]) -> tuple[str, ...]:
    """Where an incident is: addresses and UUIDs of GPUs, or what else the addresses are of."""
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
"""Column of the catalog and name of the peer, in the order shown."""


def peer_sentence(row: XidRow, peer: str) -> str:
    """Return what `peer` (a column of the catalog) does with the Xid."""
    code: str = getattr(row, peer)
    return _FILE.peers.get(peer, {}).get(code, code) + "."
