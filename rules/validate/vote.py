"""Who computed wrongly: every GPU did the same work, so the sums must be the same.

Called by `judge`. A wrong result that no counter shows (silent corruption) is found only so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rules.validate.contract import Check, Verdict
from rules.validate.findings import CheckId, SumsSeen


def sum_checks(sums: Sequence[SumsSeen]) -> Iterator[Check]:
    """One check for each GPU; its value is how many of its launches came out wrong.

    A GPU that disagrees with itself is wrong whatever others say, and has no vote. Of the others
    the majority is right; without a majority all of them are suspects.
    """
    votes = Counter(one.first for one in sums if not one.differing and one.launches)
    agreed = _majority(votes)
    for one in sums:
        if not one.launches:
            yield _check(one, Verdict.UNKNOWN, None, "no launch ended in time")
        elif one.differing:
            note = f"{one.differing} of its {one.launches} sums differ from its first"
            yield _check(one, Verdict.FAIL, one.differing, note)
        elif agreed is None:
            note = "the GPUs disagree and no majority tells which of them is wrong"
            yield _check(one, Verdict.FAIL, one.launches, note)
        elif one.first != agreed:
            note = f"its sum {one.first:016x} is not the {agreed:016x} of {votes[agreed]} others"
            yield _check(one, Verdict.FAIL, one.launches, note)
        else:
            yield _check(one, Verdict.PASS, 0, "")


def sum_notes(sums: Sequence[SumsSeen]) -> Iterator[str]:
    """Said where there was nobody to vote with."""
    if sum(one.launches > 0 for one in sums) == 1:
        yield "One GPU has nobody to vote with: its checksum was compared with its own alone."


def _majority(votes: Counter[int]) -> int | None:
    """The sum of more than half of the voters."""
    if not votes:
        return None
    first, count = votes.most_common(1)[0]
    return first if 2 * count > votes.total() else None


def _check(one: SumsSeen, verdict: Verdict, wrong: int | None, note: str) -> Check:
    return Check(
        id=CheckId.CHECKSUM,
        gpu=one.gpu,
        verdict=verdict,
        value=wrong,
        unit=f"wrong of {one.launches} launches",
        ceiling=0,
        note=note,
    )
