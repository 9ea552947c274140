"""The comparison of `docs/xid.md`: per reason ours, the driver's, DCGM's, each peer's, and why we
differ.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import yaml

from hack.catalog.peers import COLUMNS, NONE, PEERS_FILE
from rules.catalog.explanations import PEERS
from rules.catalog.reason import Action, Level, Reason, ReasonClass
from rules.catalog.reasons import REASONS, RECOVERY_REASONS
from rules.catalog.xid import XidRow, catalog, reason_for_xid

WORDS: Final = Path(__file__).parent / "comparison.yaml"
OTHERS: Final = {
    "driver": "driver",
    "dcgm": "DCGM",
    "gpud": "GPUd",
    "eks": "EKS",
    "npd": "node problem detector, providers",
    "others": "others",
}
"""What a row of `comparison.yaml` may hold beside `why`, and its head in the page."""

AGREED: Final = "agreed"
_TAKES_AWAY: Final = frozenset(
    {"unhealthy", "fatal", "fail", "reset", "reboot", "restart-vm", "taint", "inspection"}
    | {"condition", "device", "error", "critical", "isolate", "replace", "hardware"}
)
_BY_CLASS: Final = {
    ReasonClass.SOFTWARE: "a program's doing: the next one runs on the same GPU, so neither GPU "
    "nor node is taken away",
    ReasonClass.RECORD: "nobody has published that it harms: recorded, and raised where the "
    "driver asks for something",
    ReasonClass.DECISIVE: "the driver's sheet asks for it, and who has no rule leaves a "
    "dead GPU in service",
}

XID_INTRODUCTION: Final = """\
## The comparison: every Xid

Who does what with the same line. *driver*: NVIDIA's sheet, and the branch from which the driver
answers itself (its answer replaces ours, up and down). *DCGM*: the health watch of 4.6. *device
plugin* and *DRA*: NVIDIA's. *EKS*: the EKS node monitoring agent. *GKE*: node condition or device
of its device plugin. *AKS*: the node problem detector of AKS and Azure's node health check.
*healthagent*: Azure's. *gcm*: Meta's. *NVSentinel*: its default action. *awslabs*: the HPC health
check. *HyperPod*: SageMaker's agent. The rest are the checks of Nebius, Imbue and SiChek. `-` is
no rule. Facts as of the catalog; the words are ours.

"""

REASONS_INTRODUCTION: Final = """
## The comparison: every other reason

The same for what is read from NVML, PCI, dcgm-exporter and the host, or printed without an Xid.

"""


def _words() -> dict[str, Any]:
    words: dict[str, Any] = yaml.safe_load(WORDS.read_text(encoding="utf-8"))
    return words


def _ours(reason: Reason) -> str:
    does = f"{reason.severity}, {reason.level}"
    return does if reason.action is Action.NONE else f"{does}, {reason.action}"


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def xid_codes(row: XidRow, peers: dict[str, dict[str, str]]) -> dict[str, str]:
    """Return every peer's code for an Xid by the peer's head in the page."""
    own = {name: getattr(row, column) for column, name in PEERS}
    return {
        "DCGM": own["DCGM health"],
        "device plugin": own["device plugin"],
        "EKS": own["EKS agent"],
        "NVSentinel": own["NVSentinel"],
    } | {head: peers[str(row.xid)][column] for column, head in COLUMNS.items()}


def why(row: XidRow, codes: dict[str, str], words: dict[int, str]) -> str:
    """Return why we differ, in our words; that we agree where nobody does otherwise."""
    if row.xid in words:
        return words[row.xid]
    reason = reason_for_xid(row.xid)
    ours = reason.level is not Level.REPORT
    if all((code in _TAKES_AWAY) == ours for code in codes.values()):
        return AGREED
    return _BY_CLASS[reason.klass]


def xids() -> str:
    """Return the table of every Xid in use."""
    peers = json.loads(PEERS_FILE.read_text(encoding="utf-8"))
    words: dict[int, str] = _words()["xids"]
    rows = []
    heads: list[str] = []
    for row in catalog().values():
        if not row.used:
            continue
        codes = xid_codes(row, peers)
        heads = list(codes)
        sheet = row.immediate or NONE
        driver = f"{sheet}, answers from R{row.linked_from}" if row.linked_from else sheet
        rows.append(
            [
                f"{row.xid} {row.name}",
                _ours(reason_for_xid(row.xid)),
                driver,
                *(code.replace("none", NONE) for code in codes.values()),
                why(row, codes, words),
            ]
        )
    return XID_INTRODUCTION + _table(["Xid", "ours", "driver", *heads, "why we differ"], rows)


def reasons() -> str:
    """Return the table of every other reason."""
    words = _words()["reasons"]
    rows = []
    for reason in (*REASONS.values(), *RECOVERY_REASONS.values()):
        row = words[reason.reason]
        cells = [str(row.get(column, NONE)) for column in OTHERS]
        rows.append([f"`{reason.reason}`", _ours(reason), *cells, row["why"]])
    return REASONS_INTRODUCTION + _table(
        ["reason", "ours", *OTHERS.values(), "why we differ"], rows
    )
