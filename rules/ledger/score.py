"""How likely a fault comes back within 7 days: decayed evidence, every weight with its source.

The model is a mixture: with some chance the last repair did not mend the part, and then the fault
returns after 4 days on average; else faults are as rare as if they were independent. That chance
rests on how many faults there were, how long the last repair took and what failed, and every quiet
day in service takes some of it away (Bayes).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final

DAY_S: Final = 86_400.0
WEEK_S: Final = 7 * DAY_S
INDEPENDENT: Final = 0.029
"""Return within 7 days were faults independent. Source: 584 faults of 400 eight-GPU servers in 349
days (SIGCOMM 2025, InfiniteHBD trace); so are all shares below unless another source is named."""
AFTER_FAULTS: Final = (0.27, 0.31, 0.38, 0.40, 0.42)
"""Return within 7 days after the 1st, 2nd, 3rd, 5th fault of a server; the 4th was not published
and lies between its neighbours."""
AVERAGE: Final = 0.30
"""Return within 7 days over all faults."""
AFTER_REPAIR: Final = (
    (1 / 24, 0.38),
    (6 / 24, 0.36),
    (1.0, 0.35),
    (7.0, 0.28),
    (math.inf, 0.22),
)
"""Return within 7 days after a repair of under so many days."""
REMAP_HOLDS: Final = 0.59
"""Share of H100 row remaps that succeed. Source: Delta study (version 3)."""
UNREPAIRED_MEAN_S: Final = 4 * DAY_S
"""Mean time to the return of what was not mended; fitted to the same trace."""
_MEMORY: Final = frozenset(
    {
        "RowRemapFailure",
        "RowRemapPendingAfterError",
        "RowRemapMany",
        "EccUncorrectableVolatile",
        "MemorySparesExhausted",
        "ContainedErrorsOften",
        "MemoryUnrepairable",
    }
)
_MEMORY_XID: Final = re.compile(r"Xid(48|63|64|94|95)(?!\d)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What the score rests on."""

    faults: int
    """Faults that count: not those that a person called none."""
    repair_s: float | None
    """How long the last one was out; None while it is, or where nobody knows."""
    quiet_s: float
    """Time in service since then."""
    memory: bool = False
    """The last fault was of memory that a remap should have mended."""


def is_memory(reason: str) -> bool:
    """Whether a reason is of memory that a row remap should have mended."""
    return reason in _MEMORY or _MEMORY_XID.match(reason) is not None


def chance_of_return(evidence: Evidence) -> float:
    """The chance, 0 to 1, that a fault comes back within the next 7 days."""
    if evidence.faults <= 0:
        return 0.0
    share = AFTER_FAULTS[min(evidence.faults, len(AFTER_FAULTS)) - 1]
    if evidence.repair_s is not None:
        took_days = evidence.repair_s / DAY_S
        observed = next(found for upper, found in AFTER_REPAIR if took_days < upper)
        share = _from_odds(_odds(share) * _odds(observed) / _odds(AVERAGE))
    returns = 1 - math.exp(-WEEK_S / UNREPAIRED_MEAN_S)
    unmended = min(0.99, max(0.0, (share - INDEPENDENT) / (returns - INDEPENDENT)))
    if evidence.memory:
        unmended = max(unmended, 1 - REMAP_HOLDS)
    # Each quiet day is less likely for what was not mended.
    quiet_s = max(0.0, evidence.quiet_s)
    still = unmended * math.exp(-quiet_s / UNREPAIRED_MEAN_S)
    mended = (1 - unmended) * math.pow(1 - INDEPENDENT, quiet_s / WEEK_S)
    now = still / (still + mended)
    return now * returns + (1 - now) * INDEPENDENT


def _odds(share: float) -> float:
    return share / (1 - share)


def _from_odds(odds: float) -> float:
    return odds / (1 + odds)
