"""Words for the short codes of the Xid catalog, shared by `explain` and `docs/xid.md`.

Data only. The codes are facts about other programs at the time of the catalog; the sentences are
ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rules.catalog.xid import XidRow

BUCKETS: Final = {
    "RESET_GPU": "reset the GPU",
    "RESTART_APP": "restart the program",
    "IGNORE": "nothing to do",
    "RESTART_BM": "restart the machine",
    "RESTART_VM": "restart the virtual machine",
    "CHECK_MECHANICALS": "check seating and cables",
    "UPDATE_SWFW": "update software and firmware",
    "CHECK_UVM": "reset the GPU where unified memory or virtual GPUs are used, else nothing",
    "CONTACT_SUPPORT": "contact support",
    "WORKFLOW_XID_45": "restart the fabric manager if it came alone, else nothing",
    "WORKFLOW_XID_48": "reset the GPU; drain first when 63 or 64 came with it",
    "WORKFLOW_NVLINK_ERR": "read the seven registers of the line",
    "WORKFLOW_NVLINK5_ERR": "look the registers up in the table of 95 rules",
    "XID_154": "do what the line says",
    "XID_154_EVAL": "do what an Xid 154 says, else restart the program",
    "INVESTIGATE_SW": "investigate the software",
    "INVESTIGATE_SW_USER": "investigate the user's software",
    "INVESTIGATE_LINK_SI": "check the signal quality of the link",
    "CHECK_APP/CUDA": "check the program and its CUDA libraries",
    "IGNORE (sympathetic)": "nothing, since another Xid causes it",
    "SYMPATHETIC_REPORT_SOLO": "contact support if it came alone",
    "Solo: RESTART_FM ; Not Solo: IGNORE (follow other Xid)": "follow the other Xid if "
    "it came with one",
    "N/A Informational only regarding another Xid": "follow the Xid that it answers",
    "WORKFLOW_XID_13": "run diagnostics if it repeats at one place of the chip",
    "WORKFLOW_XID_31": "run diagnostics if it repeats on one GPU",
    "XID_137_FLOW": "NVIDIA's own procedure for Xid 137",
}

PEERS: Final = (
    ("device_plugin", "device plugin"),
    ("eks", "EKS agent"),
    ("dcgm", "DCGM health"),
    ("nvsentinel", "NVSentinel"),
)
"""Column of the catalog and name of the peer, in the order shown."""

_SENTENCES: Final = {
    ("device_plugin", "unhealthy"): "marks the GPU unhealthy until it restarts",
    ("device_plugin", "ignored"): "ignores it as a program's error",
    ("eks", "fatal"): "sets the node's condition; auto-repair replaces the node",
    ("eks", "event"): "an event only",
    ("dcgm", "fail"): "fails the GPU",
    ("dcgm", "warn"): "warns",
    ("dcgm", "none"): "has no rule for it",
    ("nvsentinel", "none"): "no action",
    ("nvsentinel", "support"): "asks to contact support",
    ("nvsentinel", "reset"): "resets the GPU",
    ("nvsentinel", "reboot"): "restarts the machine",
    ("nvsentinel", "restart-vm"): "restarts the virtual machine",
    ("nvsentinel", "by-rule"): "looks the registers up, else support",
    ("nvsentinel", "by-registers"): "reads the registers, else support",
    ("nvsentinel", "by-label"): "follows the label of the line",
}


def peer_sentence(row: XidRow, peer: str) -> str:
    """Return what `peer` (a column of the catalog) does with the Xid."""
    code: str = getattr(row, peer)
    return _SENTENCES.get((peer, code), code) + "."
