"""`gpuward-agent explain`: what an Xid, SXid or reason means, what gpuward does about it and why.

For an operator who received an alert. Prints from the catalog that the daemon uses and imports
`rules` only. `docs/xid.md` is generated from the same sentences.
"""

import argparse
import difflib
import re
import textwrap
from typing import Any, Final

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

PROGRAM: Final = "gpuward-agent explain"
EXIT_FAILED: Final = 1

_XID: Final = re.compile(r"(?:xid\s*)?0*([0-9]{1,5})", re.IGNORECASE)
"""An Xid number as operators write it."""
_XID_REASON: Final = re.compile(r"xid([0-9]{1,5})[a-z]\w*", re.IGNORECASE)
"""A reason named after an Xid; it is explained as that Xid."""
_SXID: Final = re.compile(r"sxid\s*([0-9]{1,6})", re.IGNORECASE)
LABEL: Final = 14
WIDTH: Final = 80
FIRST_UNNAMED_ACTION: Final = 8
"""NVML names the recovery actions 0 to 7. Source: NVML reference."""

WHY: Final = {
    ReasonClass.DECISIVE: "one line is enough: the GPU does not recover by itself",
    ReasonClass.NEEDS_CONTEXT: "published at once as Info, assessed 2 s later (48: 10 s) with "
    "the events around it",
    ReasonClass.SOFTWARE: "an application error until a hardware fault is proven: no node is "
    "quarantined for it",
    ReasonClass.GAUGE: "a reading, assessed over several polls",
    ReasonClass.LATCH: "a flag or counter, confirmed by one more reading",
    ReasonClass.RECORD: "recorded and counted, no action",
}


def add_parser(subparsers: Any) -> None:
    """Add `explain` to the program's commands."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "explain",
        help="Explain an Xid, an SXid or a reason",
        description="Explain an Xid, an NVSwitch error (SXid) or a reason: its meaning, what"
        "\ngpuward does, what NVIDIA advises and what other projects do.\n\nExamples:\n"
        "  gpuward-agent explain 79\n"
        "  gpuward-agent explain sxid 20009\n"
        "  gpuward-agent explain RowRemapFailure\n"
        "  gpuward-agent explain 79 --driver 550",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "subject", metavar="WHAT", nargs="+",
        help="an Xid (79), an SXid (sxid 20009) or a reason (RowRemapFailure)",
    )  # fmt: skip
    terminal.add_driver(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the explanation and return the exit status."""
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
    """Return the explanation of an Xid on driver `branch` (None: a current one) as lines."""
    row = catalog().get(xid)
    reason = reason_for_xid(xid, driver=branch)
    if row is None:
        switch = (
            f" There is an SXid {xid}: use explain sxid {xid}."
            if xid in reasons.sxid_catalog()
            else ""
        )
        return [
            f"Xid {xid}: not in catalog {catalog_version()}.{switch}",
            "",
            _entry("Assessment", _judgement(reason)),
            _entry(
                "Why",
                "gpuward takes no action for an undocumented Xid, unless the driver reports a"
                " recovery action.",
            ),
        ]
    lines = [f"Xid {xid}: {reason.reason}" + (f"  ({row.mnemonic})" if row.mnemonic else "")]
    lines += ["", _entry("Meaning", row.description)]
    if xid == RECOVERY_ACTION_XID:
        lines += _by_number(branch)
    else:
        lines.append(_entry("Assessment", _judgement(reason)))
        lines.append(_entry("Why", f"{WHY[reason.klass]}."))
    if xid in REPEATING_XIDS:
        lines.append(_entry("Repeated", _repeated(xid)))
    if reason.needs:
        lines.append(_entry("Needs", f"{reason.needs}."))
    if xid != RECOVERY_ACTION_XID:
        lines.append(_entry("Cleared by", f"{reason.closes_on}."))
    if answer := _driver(row, branch):
        lines.append(_entry("Driver", answer))
    lines.append(_entry("NVIDIA", _buckets(row)))
    lines += [
        _entry(name, explanations.peer_sentence(row, key)) for key, name in explanations.PEERS
    ]
    return lines


def explained_sxid(sxid: int) -> list[str]:
    """Return the explanation of an SXid as lines. The severity in the log line decides."""
    row = reasons.sxid_catalog().get(sxid)
    name = row.mnemonic if row is not None else "not in the catalog"
    published = row.fatality if row is not None else "unknown"
    lines = [f"SXid {sxid}: {name}", ""]
    lines.append(_entry("Meaning", "an error of an NVSwitch, which all GPUs of the node share."))
    for severity, fatal in (("fatal", True), ("non-fatal", False), ("neither", None)):
        reason = reasons.reason_for_sxid(fatal)
        lines.append(_entry(f"Line: {severity}", f"{reason.reason}. {_judgement(reason)}"))
    lines.append(
        _entry("Published", f"{published}; gpuward uses the severity in the log line instead.")
    )
    return lines


def explained_reason(asked: str) -> list[str]:
    """Return the explanation of a reason as lines. Raises SettingsError for an unknown one."""
    by_name = {reason.reason.lower(): reason for reason in reasons.REASONS.values()}
    reason = by_name.get(asked.lower())
    if reason is None:
        near = difflib.get_close_matches(asked.lower(), list(by_name), n=1)
        hint = f"; did you mean {by_name[near[0]].reason}" if near else ""
        what = "use a number such as 79, sxid 20009, or a reason such as RowRemapFailure"
        raise SettingsError(f"{asked[:80]!r} is not an Xid, SXid or reason{hint or f'; {what}'}.")
    lines = [reason.reason, "", _entry("Assessment", _judgement(reason))]
    lines.append(_entry("Why", f"{WHY[reason.klass]}."))
    lines.append(_entry("Repair", f"{explanations.repair(reason.action)}."))
    if reason.needs:
        lines.append(_entry("Needs", f"{reason.needs}."))
    lines.append(_entry("Cleared by", f"{explanations.closes(str(reason.closes_on))}."))
    if (limit := thresholds.DEFAULT_RULES.thresholds.get(reason.reason)) is not None:
        lines.append(_entry("Threshold", f"{limit.value:g} {limit.unit}."))
    lines.append(_entry("Override", f"policy: reasons: {{{reason.reason}: {{level: Report}}}}"))
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
    """Return how many repeats of this Xid on one GPU count as a fault, and its assessment."""
    return (
        f"Degraded, Report, RunDiagnostics after {explanations.repeats_needed(xid)}. "
        "kubectl gpuward why NODE shows the count."
    )


def _by_number(branch: int | None) -> list[str]:
    """Return the assessment of each recovery action that the line may name, as lines."""
    lines = [_entry("Assessment", "by the new recovery action, alone or for the Xid before it:")]
    for value in range(FIRST_UNNAMED_ACTION):
        assessment = _judgement(reasons.reason_for_recovery_action(value, branch))
        if value == 0:
            assessment = "no recovery action (any more): evidence of a reset."
        lines.append(_entry("", f"{value:#x}  {assessment}"))
    unnamed = _judgement(reasons.reason_for_recovery_action(FIRST_UNNAMED_ACTION, branch))
    return [*lines, _entry("", f"else {unnamed}")]


def _driver(row: XidRow, branch: int | None) -> str:
    if row.linked_from is None:
        return ""
    if row.xid == GPU_LOST_XID:
        return "its recovery action can raise this: a lost GPU needs a reboot."
    if row.linked(branch):
        return "its recovery action (Xid 154) replaces this assessment, up or down."
    return f"reports no recovery action before R{row.linked_from}."


def _buckets(row: XidRow) -> str:
    immediate = explanations.BUCKETS.get(row.immediate, row.immediate) or "nothing published"
    if not row.investigatory or row.investigatory == row.immediate:
        return f"{immediate}."
    return f"{immediate}; then {explanations.BUCKETS.get(row.investigatory, row.investigatory)}."
