"""Is a copy fast enough: against its siblings in the same run, and against what is known.

Called by `judge`.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from rules.validate.contract import Check, Verdict
from rules.validate.findings import CheckId, RateSeen
from rules.validate.floors import floor_of, is_known

SHARE_OF_MEDIAN: Final = 0.9
"""A GPU below nine tenths of its siblings is the odd one. Source: gpu-fryer asks for 90 % of the
best, SuperBench for 95 % of its own baseline; the siblings' median bears one bad sibling.
"""
_UNIT: Final = "GB/s"


def rate_checks(rates: Sequence[RateSeen], products: Mapping[str, str]) -> Iterator[Check]:
    """One check for each copy. Siblings are the same copy between the same products and links."""
    for rate in rates:
        if not (math.isfinite(rate.gigabytes) and rate.gigabytes > 0):
            yield _check(rate, Verdict.UNKNOWN, None, "the driver's clock gave no time for it")
            continue
        floor, why = _floor(rate, rates, products)
        slow = floor is not None and rate.gigabytes < floor
        yield _check(rate, Verdict.DEGRADED if slow else Verdict.PASS, floor, why)


def rate_notes(rates: Sequence[RateSeen], products: Mapping[str, str]) -> Iterator[str]:
    """What was compared less than it could be, and why."""
    tested = sorted({rate.gpu for rate in rates})
    for product in sorted({products.get(gpu, "") for gpu in tested}):
        if is_known(product):
            continue
        named = product or "a GPU without a name"
        siblings = sum(products.get(gpu, "") == product for gpu in tested)
        compared = "compared with its siblings only" if siblings > 1 else "compared with nothing"
        yield f"No bandwidth is known for {named}: {compared}."


def _floor(
    rate: RateSeen, rates: Sequence[RateSeen], products: Mapping[str, str]
) -> tuple[float | None, str]:
    """The higher of the two floors, and where it comes from."""
    kind = _kind(rate, products)
    siblings = [
        other.gigabytes
        for other in rates
        if (other.gpu, other.peer) != (rate.gpu, rate.peer)
        and _kind(other, products) == kind
        and math.isfinite(other.gigabytes)
        and other.gigabytes > 0
    ]
    floors: list[tuple[float, str]] = []
    if siblings:
        median = statistics.median(siblings)
        why = f"90 % of the median of {len(siblings)} like it"
        floors.append((round(SHARE_OF_MEDIAN * median, 3), why))
    known = floor_of(products.get(rate.gpu, ""), rate.check, rate.link)
    if known is not None and _alike(rate, products):
        floors.append((known.gigabytes, known.source))
    return max(floors, default=(None, ""))


def _kind(rate: RateSeen, products: Mapping[str, str]) -> tuple[CheckId, str, str, str]:
    return (rate.check, products.get(rate.gpu, ""), products.get(rate.peer, ""), rate.link)


def _alike(rate: RateSeen, products: Mapping[str, str]) -> bool:
    return not rate.peer or products.get(rate.gpu) == products.get(rate.peer)


def _check(rate: RateSeen, verdict: Verdict, floor: float | None, note: str) -> Check:
    value = rate.gigabytes if verdict is not Verdict.UNKNOWN else None
    return Check(
        id=rate.check,
        gpu=rate.gpu,
        peer=rate.peer,
        verdict=verdict,
        value=None if value is None else round(value, 3),
        unit=_UNIT,
        floor=floor,
        note=note if verdict is not Verdict.PASS else "",
    )
