"""Make `docs/xid.md` from the catalog: every Xid and what we do.

    python -m hack.catalog.xid_doc

A test compares the file with what this prints, so the page cannot fall behind the rules.
"""

from __future__ import annotations

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
from rules.kernel_log.record import KIND_MEANINGS

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "xid.md"

INTRODUCTION = """\
# What gpuward makes of an Xid

Made from the rules by `python -m hack.catalog.xid_doc`; do not edit. Catalog {version}.
`gpuward-agent explain 79` prints the same for one number, `gpuward-agent decode FILE` reads a log.

An Xid is a number that the NVIDIA driver prints to the kernel log. Most are a program's fault, a
few mean that the GPU is lost, and for some only the registers in the line or the driver's own
answer (Xid 154, the recovery action) can tell. So gpuward sorts them by how they become a finding:

| class | how |
|---|---|
{classes}

- **A number that the catalog does not know, or calls unused, is reported and never acts.**
- Where the driver answers (column *answers from*), its answer replaces the row, up and down. A
  lost GPU (79) is never below a restart of the node.
- 13 and 31 become Degraded, Report only after three bursts in a day: of 13 at the same place of
  the chip, of 31 on the same GPU, that no other GPU of the node shows. They never drain.
- 94 is the program's until there are six within a day on one GPU: `ContainedErrorsOften`
  (Degraded, Cordon).
- What comes again on the same GPU after two resets within a week asks for a restart of the node,
  after two restarts for another node: a repair that failed twice will fail again.
- 48 with 63 and 94 within ten seconds is contained: the program restarts, the node stays.
- **The flags of a 94 or 95 (`RST`, `D-RST`) decide where the line has them**, for 48, 63, 171 and
  172 beside it, too: No and No is Info, Report, RestartApp; `D-RST: Yes` Degraded, Cordon,
  ResetGPU; `RST: Yes` Fatal, Drain, ResetGPU, and so is a 94 of the GPU's system processor
  (`GSP-RISCV`), which has no flags.
- 109 and 155 wait up to 30 s for the driver's answer; none, read twice after them, is Degraded,
  Report.
- 110 beside a lost GPU asks for a power cycle.
- A 74 on a link that had one within the day, or on the third link of a GPU, is Degraded, Cordon.
  145 to 150 on half of the GPUs within a minute are one incident of the node, Cordon, unless their
  registers say nothing to do; like 74 on many GPUs it ends when the links are back.
- A GPU is lost (`GPULost`, Fatal) where it was seen in this boot and more than its absence speaks
  against it: its configuration space reads all ones, or the driver or a kernel line says so. The
  PCI bus is evidence only for addresses at which it once showed a GPU. Fewer GPUs than expected
  without that are `GPUCountMismatch` (Degraded, Report): the count may be wrong, or a card was
  taken out on purpose.
- One GPU missing after a reboot is decided by UUID and count, whatever card sits in which slot:
  slots and bus numbers may change while the power is off. A GPU with an open fault that does not
  come back keeps its fault, also where a sound card sits in its slot: the node still lacks it, and
  nothing shows that it was repaired. Of a GPU that was sound before, nobody saw a fault: it is
  `GPUCountMismatch`. Both end when the GPU is back and sound, or when the node is complete without
  it: with another card, or by a lower expected count.
- 63 or 64 with the row-remap failure flag, and 79 in a virtual machine, mean another node.
- 144 to 150 are decided by {rules} rules (95 published lines, three of which hold two) over the
  first two registers in either of their layouts: {reset} say reset the GPU, {ignore} nothing,
  {eval} wait for the driver. 74 is decided by its seven registers.
- NVSwitch errors (SXid, {sxids} known numbers) are decided by the line's own word: Fatal drains,
  Non-fatal is recorded, no word is Degraded and reported.
- Severity, level and action of any reason can be changed with `--rules FILE`, the level also by
  the cluster's policy.
"""

KINDS_INTRODUCTION = """
## What `decode --json` prints

One object for each recognised line, always with every key: `line` (from 1, split at byte 0x0A),
`time` (UTC, or `+` and seconds since the boot where the log has no wall time), `kind`, `xid`,
`sxid`, `sxid_fatal`, `pci`, `gpu_uuid`, `mig_gi`, `mig_ci`, `pid`, `process`, `link`, `unit`,
`caused_by`, `recovery_from`, `recovery_to`, `user` (user space wrote it: the daemon refuses it),
`text`, `severity`, `reason`, `action` (ours) and `nvidia` (`immediate` and `investigatory`). What
the line does not say is null; a line that only records a fact has no severity.

| kind | the line says |
|---|---|
"""


def table_row(row: XidRow) -> str:
    """Return one line of the main table."""
    reason = reason_for_xid(row.xid)
    does = f"{reason.severity}, {reason.level}"
    if reason.action is not Action.NONE:
        does += f", {reason.action}"
    nvidia = BUCKETS.get(row.immediate, row.immediate) or "-"
    answers = f"R{row.linked_from}" if row.linked_from else "-"
    return (
        f"| {row.xid} | {row.name} | {row.says} | {reason.klass} | {does} | {reason.closes_on} "
        f"| {nvidia} | {answers} |"
    )


def page() -> str:
    """Return the whole page."""
    rows = list(catalog().values())
    used = [row for row in rows if row.used]
    actions = Counter(rule.immediate for rule in nvlink5_rules())
    text = INTRODUCTION.format(
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
    text += (
        "\n## Every Xid in use\n\n"
        "| Xid | name | means | class | we | ends with | NVIDIA says | answers from |\n"
        "|---|---|---|---|---|---|---|---|\n"
    )
    text += "\n".join(table_row(row) for row in used)
    unused = ", ".join(str(row.xid) for row in rows if not row.used)
    text += f"\n\nKnown but unused, treated as unknown: {unused}.\n"
    text += KINDS_INTRODUCTION
    text += "".join(f"| {kind} | {meaning} |\n" for kind, meaning in KIND_MEANINGS.items())
    return text


def main() -> int:
    """Write or compare; 1 when the page differs."""
    return write_or_check("hack.catalog.xid_doc", {PAGE: page()})


if __name__ == "__main__":
    sys.exit(main())
