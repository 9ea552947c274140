"""Write `docs/xid.md` from the catalog: every Xid and what gpuward does.

    python -m hack.catalog.xid_doc

A test compares the file with what this prints, so the page cannot fall behind the rules.
"""

import sys
from collections import Counter
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


def table_row(row: XidRow) -> str:
    """Return one line of the main table."""
    reason = reason_for_xid(row.xid)
    does = f"{reason.severity}, {reason.level}"
    if reason.action is not Action.NONE:
        does += f", {reason.action}"
    nvidia = BUCKETS.get(row.immediate, row.immediate) or "-"
    answers = f"R{row.linked_from}" if row.linked_from else "-"
    return (
        f"|{row.xid}|{row.name}|{row.description}|{reason.klass}|{does}"
        f"|{reason.closes_on}|{nvidia}|{answers}|"
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
    text += "\n".join(table_row(row) for row in used)
    unused = ", ".join(str(row.xid) for row in rows if not row.used)
    text += f"\n\nKnown but unused, treated as unknown: {unused}.\n"
    return text + (HERE / "xid_kinds.md").read_text("utf-8")


def main() -> int:
    """Write or compare; 1 when the page differs."""
    return write_or_check("hack.catalog.xid_doc", {PAGE: page()})


if __name__ == "__main__":
    sys.exit(main())
