"""Write `docs/xid.md` from the catalog: every Xid and what gpuward does.

    python -m hack.catalog.xid_doc

A test compares the file with what this prints, so the page cannot fall behind the rules.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from agent.commands.explain import WHY
from hack.generated import write_or_check
from rules.catalog.explanations import BUCKETS
from rules.catalog.nvlink import nvlink5_rules
from rules.catalog.reason import Action, ReasonClass
from rules.catalog.reasons import sxid_catalog
from rules.catalog.xid import XidRow, catalog, catalog_version, reason_for_xid

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent.parent / "docs" / "xid.md"
NUMBER = re.compile(r"\d+")


def cells(row: XidRow) -> tuple[str, ...]:
    """Return the columns of an Xid in the main table, without its number."""
    reason = reason_for_xid(row.xid)
    does = f"{reason.severity}, {reason.level}"
    if reason.action is not Action.NONE:
        does += f", {reason.action}"
    nvidia = BUCKETS.get(row.immediate, row.immediate) or "-"
    answers = f"R{row.linked_from}" if row.linked_from else "-"
    return row.name, row.description, reason.klass, does, str(reason.closes_on), nvidia, answers


def table_rows(rows: Iterable[XidRow]) -> Iterator[str]:
    """Yield the lines of the main table: one for Xids that differ in the engine's number only."""
    groups: dict[tuple[str, ...], list[XidRow]] = {}
    for row in rows:
        groups.setdefault(tuple(NUMBER.sub("N", cell) for cell in cells(row)), []).append(row)
    for group in groups.values():
        name, description, *rest = cells(group[0])
        if len(group) > 1:
            first, last = (NUMBER.findall(row.name)[0] for row in (group[0], group[-1]))
            name += f" to {last}"
            description = description.replace(f" {first} ", f" {first} to {last} ")
        numbers = ranges([row.xid for row in group])
        yield f"|{'|'.join((numbers, name, description, *rest))}|"


def ranges(numbers: Sequence[int]) -> str:
    """Return ascending numbers as text: `1 to 7, 9, 10`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(
        f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs
    )


def page() -> str:
    """Return the page."""
    rows = list(catalog().values())
    used = [row for row in rows if row.used]
    actions = Counter(rule.immediate for rule in nvlink5_rules())
    text = (
        (HERE / "xid_introduction.md")
        .read_text("utf-8")
        .format(
            version=catalog_version(),
            classes="\n".join(
                f"| {klass} | {WHY[klass]} |"
                for klass in (
                    ReasonClass.DECISIVE,
                    ReasonClass.NEEDS_CONTEXT,
                    ReasonClass.SOFTWARE,
                    ReasonClass.RECORD,
                )
            ),
            rules=len(nvlink5_rules()),
            reset=actions["RESET_GPU"],
            ignore=actions["IGNORE"],
            eval=actions["XID_154_EVAL"],
            sxids=len(sxid_catalog()),
        )
    )
    text += (
        "\n## Every Xid in use\n\n"
        "|Xid|name|meaning|class|gpuward|ends with|NVIDIA recommends|answers from|\n"
        "|---|---|---|---|---|---|---|---|\n"
    )
    text += "\n".join(table_rows(used))
    unused = ranges([row.xid for row in rows if not row.used])
    text += f"\n\nKnown but unused, treated as unknown: {unused}.\n"
    return text + (HERE / "xid_kinds.md").read_text("utf-8")


def main() -> int:
    """Write or compare; 1 when the page differs."""
    return write_or_check("hack.catalog.xid_doc", {PAGE: page()})


if __name__ == "__main__":
    sys.exit(main())
