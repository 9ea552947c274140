"""Findings of a test under load come in; the verdict with every check goes out.

Called by `agent.commands.validate`. Nothing that could not be tested passes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from rules.validate.contract import Check, Result, Verdict, worst
from rules.validate.counters import counter_checks, link_checks
from rules.validate.findings import CheckId, Findings, MemorySeen
from rules.validate.rates import rate_checks, rate_notes
from rules.validate.sentences import sentence_of
from rules.validate.stops import stop_checks
from rules.validate.vote import sum_checks, sum_notes

COVERED_PERCENT: Final = 90.0
"""Of a GPU's memory, that must have been tested."""
NOT_FOUND: Final = (
    "matrix throughput, collectives over several GPUs or nodes, InfiniBand, and what NVIDIA's own"
    " diagnostics need hours for"
)
"""What this test cannot find; said with every verdict of pass to people."""
_ORDER: Final = {check: place for place, check in enumerate(CheckId)}


def judge(findings: Findings) -> Result:
    """The verdict on what was found."""
    products = {subject.uuid: subject.product for subject in findings.subjects}
    checks = [
        *_inventory(findings),
        *stop_checks(findings.stopped, len(findings.chosen)),
        *_memory(findings.memory),
        *rate_checks(findings.rates, products),
        *sum_checks(findings.sums),
        *link_checks(findings.during),
        *_counters(findings),
    ]
    checks += _missing(findings, checks)
    places = {subject.uuid: subject.index for subject in findings.subjects}
    checks.sort(key=lambda check: (_place(check.id), places.get(check.gpu, -1)))
    verdict = worst(check.verdict for check in checks)
    if findings.trouble and verdict is Verdict.PASS:
        verdict = Verdict.UNKNOWN
    return Result(
        verdict=verdict,
        message=_message(findings, checks, verdict),
        checks=checks,
        notes=[*rate_notes(findings.rates, products), *sum_notes(findings.sums)],
    )


def _counters(findings: Findings) -> Iterator[Check]:
    """Not asked where nothing was begun."""
    if findings.before or findings.after_read:
        yield from counter_checks(
            findings.chosen, findings.before, findings.after, after_read=findings.after_read
        )


def _place(check: str) -> int:
    """Where a check stands in the order of doing; a counter by its own name comes last."""
    return _ORDER.get(CheckId(check), len(_ORDER)) if check in set(CheckId) else len(_ORDER)


def _inventory(findings: Findings) -> Iterator[Check]:
    seen = findings.seen_by_cuda
    if seen is None:
        return
    known = set(findings.chosen)
    whole = known == {subject.uuid for subject in findings.subjects}
    expected = findings.expected if whole and findings.expected is not None else 0
    # Of a part of the GPUs only those that were chosen are looked for.
    wanted = max(len(known), findings.counted if whole else 0, expected)
    found = len(known.intersection(seen))
    missing = found < wanted
    told = expected > max(len(known), findings.counted)
    yield Check(
        id=CheckId.INVENTORY,
        verdict=Verdict.FAIL if missing else Verdict.PASS,
        value=found,
        unit="GPUs",
        floor=wanted,
        note="fewer GPUs than expected" if told else "NVML counts more than CUDA" * missing,
    )
    for uuid in findings.chosen:
        if uuid not in seen:
            note = "NVML counts it and CUDA does not"
            yield Check(id=CheckId.INVENTORY, gpu=uuid, verdict=Verdict.FAIL, note=note)


def _memory(memory: Sequence[MemorySeen]) -> Iterator[Check]:
    for one in memory:
        note = ""
        if one.wrong_words:
            where = "" if one.first_wrong is None else f"the first at byte {one.first_wrong}, "
            note = f"{where}bits {one.bits:#x} in doubt"
        yield Check(
            id=CheckId.MEMORY,
            gpu=one.gpu,
            verdict=Verdict.FAIL if one.wrong_words else Verdict.PASS,
            value=one.wrong_words,
            unit="wrong words",
            ceiling=0,
            note=note,
        )
        covered = 100.0 * one.tested / one.total if one.total > 0 else 0.0
        little = covered < COVERED_PERCENT
        yield Check(
            id=CheckId.MEMORY_COVERED,
            gpu=one.gpu,
            verdict=Verdict.UNKNOWN if little else Verdict.PASS,
            value=round(covered, 1),
            unit="%",
            floor=COVERED_PERCENT,
            note="the rest was not free: it could not be tested" if little else "",
        )


def _missing(findings: Findings, checks: Sequence[Check]) -> Iterator[Check]:
    """A GPU of which nothing at all was measured did not pass anything."""
    measured = {one.gpu for one in findings.memory} & {one.gpu for one in findings.sums}
    spoken = {check.gpu for check in checks if check.verdict is not Verdict.PASS}
    for uuid in findings.chosen:
        if uuid not in measured and uuid not in spoken:
            note = "it was not tested"
            yield Check(id=CheckId.START, gpu=uuid, verdict=Verdict.UNKNOWN, note=note)


def _message(findings: Findings, checks: Sequence[Check], verdict: Verdict) -> str:
    if findings.trouble:
        return findings.trouble[0]
    tested = len(findings.chosen)
    gpus = f"{tested} GPU{'s' * (tested != 1)}"
    if verdict is Verdict.PASS:
        return f"All checks pass on {gpus}."
    grave = [check for check in checks if check.verdict is verdict]
    if not grave:
        return f"{gpus} could not be tested."
    accused = Counter(check.gpu for check in grave if check.gpu)
    first = grave[0]
    names = {subject.uuid: f"GPU {subject.index}" for subject in findings.subjects}
    more = f"; {len(accused)} of {gpus} accused" if len(accused) > 1 else ""
    return f"{sentence_of(first, names)}{more}."
