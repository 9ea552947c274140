"""What `gpuward-agent validate` shows to people: a row for each GPU, then what is not right.

Called by `agent.commands.validate` with the result. Text of devices is escaped before it is shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from agent.commands.check_table import aligned, column_of, fitting, left_out
from rules.text.printable import printable
from rules.validate.contract import Check, Result, Verdict, worst
from rules.validate.findings import CheckId, Subject
from rules.validate.judge import NOT_FOUND
from rules.validate.sentences import sentence_of

_NONE: Final = "-"
_ALL_IN: Final = "TO GPU, ALL"
_ALL_OUT: Final = "TO HOST, ALL"
_SPARE: Final = frozenset({_ALL_IN, _ALL_OUT})
"""Where a terminal is narrow: what is wrong with them stands below the table, too."""
_COLUMNS: Final = (
    ("MEMORY", CheckId.MEMORY),
    ("TO GPU", CheckId.HOST_TO_DEVICE),
    ("TO HOST", CheckId.DEVICE_TO_HOST),
    (_ALL_IN, CheckId.HOST_TO_DEVICE_TOGETHER),
    (_ALL_OUT, CheckId.DEVICE_TO_HOST_TOGETHER),
    ("PEERS", CheckId.PEER),
    ("CHECKSUM", CheckId.CHECKSUM),
)
_COUNTS: Final = (CheckId.MEMORY, CheckId.CHECKSUM)
"""Checks whose value is how many things were wrong."""
_SHOWN: Final = 40


def text_of(
    result: Result, subjects: Sequence[Subject], host: str, width: int | None = None
) -> str:
    """Everything without colour; `width` is that of a terminal, None for pipes and logs."""
    lines = [f"{host}: {result.verdict}", printable(result.message)]
    tested = {check.gpu for check in result.checks if check.gpu}
    gpus = [subject for subject in subjects if subject.uuid in tested]
    if gpus:
        lines += ["", *_table(result.checks, gpus, width)]
    odd = [check for check in result.checks if check.verdict is not Verdict.PASS]
    if odd:
        names = {subject.uuid: f"GPU {subject.index}" for subject in subjects}
        lines += [
            "",
            *(
                printable(f"{check.verdict}: {sentence_of(check, names)}")
                for check in odd[:_SHOWN]
            ),
        ]
        if len(odd) > _SHOWN:
            lines.append(f"and {len(odd) - _SHOWN} more, in --json")
    lines += ["", *map(printable, result.notes)] if result.notes else []
    if result.checks:
        lines += ["", f"GB/s where no unit is given. Not looked for: {NOT_FOUND}."]
    return "\n".join((*lines, ""))


def _table(checks: Sequence[Check], gpus: Sequence[Subject], width: int | None) -> Iterator[str]:
    """A pair counts for both of its ends, and the slowest is shown."""
    by_gpu = {
        subject.uuid: [check for check in checks if subject.uuid in (check.gpu, check.peer)]
        for subject in gpus
    }
    found = [
        column_of("GPU", (str(subject.index) for subject in gpus)),
        column_of("PCI", (subject.pci for subject in gpus)),
        column_of("VERDICT", (worst(c.verdict for c in by_gpu[g.uuid]) for g in gpus)),
        *(
            column_of(
                title,
                (_cell(by_gpu[subject.uuid], check) for subject in gpus),
                spare=title in _SPARE,
            )
            for title, check in _COLUMNS
        ),
    ]
    kept = fitting(found, width)
    yield from aligned(kept)
    yield from left_out(found, kept)


def _cell(checks: Sequence[Check], wanted: CheckId) -> str:
    found = [check for check in checks if check.id == wanted]
    if not found:
        return _NONE
    values = [check.value for check in found if check.value is not None]
    if not values:
        return str(worst(check.verdict for check in found))
    if wanted in _COUNTS:
        wrong = int(max(values))
        return f"{wrong} wrong" if wrong else "right"
    return f"{min(values):.1f}"
