"""`gpuward-agent explain`: what an Xid, SXid or reason means, what we do and why, what others do.

For an operator with an alert in hand. Prints from the same catalog that judges; imports `rules`
only. `docs/xid.md` is made from the same sentences.
"""

from __future__ import annotations

import difflib
import re
import textwrap
from typing import TYPE_CHECKING, Any, Final

from agent.commands import terminal
from agent.settings import SettingsError
from rules.catalog import explanations, reasons, thresholds
from rules.catalog.reason import Reason, ReasonClass
from rules.catalog.xid import (
    GPU_LOST_XID,
    RECOVERY_ACTION_XID,
    REPEATING_XIDS,
    XidRow,
    catalog,
    catalog_version,
    reason_for_xid,
)

if TYPE_CHECKING:
    import argparse

PROGRAM: Final = "gpuward-agent explain"
EXIT_FAILED: Final = 1

_XID: Final = re.compile(r"(?:xid\s*)?0*([0-9]{1,5})", re.IGNORECASE)
"""The number as people write it."""
_XID_REASON: Final = re.compile(r"xid([0-9]{1,5})[a-z]\w*", re.IGNORECASE)
"""A reason that is named for its Xid is explained as that."""
_SXID: Final = re.compile(r"sxid\s*([0-9]{1,6})", re.IGNORECASE)
LABEL: Final = 14
WIDTH: Final = 80
FIRST_UNNAMED_ACTION: Final = 8
"""NVML names the recovery actions 0 to 7. Source: NVML reference."""

WHY: Final = {
    ReasonClass.DECISIVE: "one line is enough: it prints once and the GPU does not recover alone",
    ReasonClass.NEEDS_CONTEXT: "published at once as Info, judged 2 s later (48: 10 s) with "
    "what came beside it",
    ReasonClass.SOFTWARE: "a program's doing until hardware is proven: it must not cost a node",
    ReasonClass.GAUGE: "a reading, judged over several polls",
    ReasonClass.LATCH: "a flag or counter, confirmed by one more reading",
    ReasonClass.RECORD: "recorded and counted, never acted upon",
}


def add_parser(subparsers: Any) -> None:
    """Add `explain` to the program's commands."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "explain",
        help="say what an Xid, an SXid or a reason means and what is done about it",
        description="Explain an Xid (79), an NVSwitch error (sxid 20009) or a reason "
        "(RowRemapFailure): its meaning, our judgement and why, NVIDIA's and others'.",
    )
    parser.add_argument(
        "subject", metavar="WHAT", nargs="+",
        help="79 as in 'Xid (PCI:...): 79', sxid 20009, or a reason such as RowRemapFailure",
    )  # fmt: skip
    terminal.add_driver(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Explain as `arguments` say; returns the exit status."""
    asked = " ".join(arguments.subject).strip()
    number = _XID.fullmatch(asked) or _XID_REASON.fullmatch(asked)
    sxid = _SXID.fullmatch(asked)
    if number is not None:
        lines = explanation(int(number[1]), arguments.driver)
    elif sxid is not None:
        lines = explained_sxid(int(sxid[1]))
    else:
        lines = explained_reason(asked)
    return 0 if terminal.print_out("\n".join(lines) + "\n", PROGRAM) else EXIT_FAILED


def explanation(xid: int, branch: int | None = None) -> list[str]:
    """Return the lines of the explanation, on a driver of `branch` (None: a current one)."""
    row = catalog().get(xid)
    reason = reason_for_xid(xid, driver=branch)
    if row is None:
        switch = (
            f" SXid {xid} is one: explain sxid {xid}." if xid in reasons.sxid_catalog() else ""
        )
        return [
            f"Xid {xid}: unknown to the catalog {catalog_version()}.{switch}",
            "",
            _entry("What we do", _judgement(reason)),
            _entry(
                "Why",
                "a number that nobody explained must never cost a node, unless the driver's"
                " recovery action says more.",
            ),
        ]
    lines = [f"Xid {xid}: {reason.reason}" + (f"  ({row.mnemonic})" if row.mnemonic else "")]
    lines += ["", _entry("Means", row.description)]
    if xid == RECOVERY_ACTION_XID:
        lines += _by_number(branch)
    else:
        lines.append(_entry("What we do", _judgement(reason)))
        lines.append(_entry("Why", f"{WHY[reason.klass]}."))
    if xid in REPEATING_XIDS:
        lines.append(_entry("Repeated", _repeated(xid)))
    if reason.needs:
        lines.append(_entry("Needs", f"{reason.needs}."))
    if xid != RECOVERY_ACTION_XID:
        lines.append(_entry("Ends with", f"{reason.closes_on}."))
    if answer := _driver(row, branch):
        lines.append(_entry("Driver", answer))
    lines.append(_entry("NVIDIA", _buckets(row)))
    lines += [
        _entry(name, explanations.peer_sentence(row, key)) for key, name in explanations.PEERS
    ]
    return lines


def explained_sxid(sxid: int) -> list[str]:
    """An NVSwitch error: what its number is called; the line's own word decides."""
    row = reasons.sxid_catalog().get(sxid)
    name = row.mnemonic if row is not None else "unknown to the catalog"
    published = row.fatality if row is not None else "unknown"
    lines = [f"SXid {sxid}: {name}", ""]
    lines.append(_entry("Means", "an error of an NVSwitch, which all GPUs of the node share."))
    for word, fatal in (("fatal", True), ("non-fatal", False), ("neither", None)):
        reason = reasons.reason_for_sxid(fatal)
        lines.append(_entry(f"Line: {word}", f"{reason.reason}. {_judgement(reason)}"))
    lines.append(
        _entry("Published", f"{published}; the word of the line decides, not the number.")
    )
    return lines


def explained_reason(asked: str) -> list[str]:
    """A reason of a health status, condition, label or taint. SettingsError where there is
    none.
    """
    by_name = {reason.reason.lower(): reason for reason in reasons.REASONS.values()}
    reason = by_name.get(asked.lower())
    if reason is None:
        near = difflib.get_close_matches(asked.lower(), list(by_name), n=1)
        hint = f"; did you mean {by_name[near[0]].reason}" if near else ""
        what = "give a number like 79, sxid 20009, or a reason like RowRemapFailure"
        raise SettingsError(f"{asked[:80]!r} is no Xid, SXid or reason{hint or f'; {what}'}.")
    lines = [reason.reason, "", _entry("What we do", _judgement(reason))]
    lines.append(_entry("Why", f"{WHY[reason.klass]}."))
    lines.append(_entry("Repair", f"{explanations.repair(reason.action)}."))
    if reason.needs:
        lines.append(_entry("Needs", f"{reason.needs}."))
    lines.append(_entry("Ends with", f"{explanations.closes(str(reason.closes_on))}."))
    if (limit := thresholds.DEFAULT_RULES.thresholds.get(reason.reason)) is not None:
        lines.append(_entry("Threshold", f"{limit.value:g} {limit.unit}."))
    lines.append(
        _entry("To change it", f"policy: reasons: {{{reason.reason}: {{level: Report}}}}")
    )
    return lines


def _entry(label: str, text: str) -> str:
    head, *rest = textwrap.wrap(text, WIDTH - LABEL - 1) or [""]
    return "\n".join((f"{label:<{LABEL}} {head}", *(" " * (LABEL + 1) + line for line in rest)))


def _judgement(reason: Reason) -> str:
    return (
        f"{reason.klass}: severity {reason.severity}, level {reason.level}, "
        f"repair {reason.action}."
    )


def _repeated(xid: int) -> str:
    """When the same GPU is suspected after all."""
    return (
        f"Degraded, Report, RunDiagnostics after {explanations.repeats_needed(xid)}. "
        "kubectl gpuward why NODE says how many were seen."
    )


def _by_number(branch: int | None) -> list[str]:
    """What each recovery action that the line may name means on this driver."""
    lines = [_entry("What we do", "as the new number says, for the Xid before it or by itself:")]
    for value in range(FIRST_UNNAMED_ACTION):
        word = _judgement(reasons.reason_for_recovery_action(value, branch))
        if value == 0:
            word = "the GPU asks for nothing (more): evidence of a reset."
        lines.append(_entry("", f"{value:#x}  {word}"))
    unnamed = _judgement(reasons.reason_for_recovery_action(FIRST_UNNAMED_ACTION, branch))
    return [*lines, _entry("", f"else {unnamed}")]


def _driver(row: XidRow, branch: int | None) -> str:
    if row.linked_from is None:
        return ""
    if row.xid == GPU_LOST_XID:
        return "its own answer can only add to this: a lost GPU needs a restart."
    if row.linked(branch):
        return "its own answer (Xid 154, recovery action) replaces this, up and down."
    return f"says nothing of its own before R{row.linked_from}."


def _buckets(row: XidRow) -> str:
    immediate = explanations.BUCKETS.get(row.immediate, row.immediate) or "nothing published"
    if not row.investigatory or row.investigatory == row.immediate:
        return f"{immediate}."
    return f"{immediate}; then {explanations.BUCKETS.get(row.investigatory, row.investigatory)}."
