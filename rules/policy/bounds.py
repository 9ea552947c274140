"""Between which numbers a value of the policy makes sense. Pure data.

The reader refuses what is outside; the JSON Schema says the same to editors and to Helm, which
would install such a policy and leave it to the remediator to refuse it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A range and how a person calls it."""

    least: float
    most: float | None = None
    above: bool = False
    """The least itself is too little."""
    why: str = ""

    def holds(self, value: float) -> bool:
        """Whether it is in the range; what is no number is not."""
        enough = value > self.least if self.above else value >= self.least
        return enough and (self.most is None or value <= self.most)

    @property
    def message(self) -> str:
        """`must be at least 1`."""
        least = f"{self.least:g}"
        if self.most is not None:
            said = (
                f"must be above {least} and at most {self.most:g}"
                if self.above
                else f"must be between {least} and {self.most:g}"
            )
        elif self.above:
            said = f"must be above {least}"
        else:
            said = f"must be at least {least}" if self.least else "must not be negative"
        return f"{said}: {self.why}" if self.why else said

    @property
    def schema(self) -> dict[str, float]:
        """The same in the words of JSON Schema."""
        most = {} if self.most is None else {"maximum": self.most}
        return {"exclusiveMinimum" if self.above else "minimum": self.least, **most}


BOUNDS: Final[Mapping[str, Bound]] = {
    "budget.maxUnavailable.percent": Bound(least=0, most=100),
    "budget.maxUnavailable.atMost": Bound(least=0),
    "budget.minimum": Bound(least=0),
    "budget.maxNew.count": Bound(least=1),
    "budget.perReason.count": Bound(least=1),
    "release.replaceAfter.count": Bound(
        least=2, why="with 1 no node would ever be released by itself"
    ),
    "limits.marksPerSecond": Bound(least=0, above=True),
    "limits.evictionsPerSecond": Bound(least=0, above=True),
    "limits.nodesDraining": Bound(least=1),
    "repair.attempts": Bound(least=1),
    "repair.concurrent": Bound(least=1),
    "history.maxPerNode": Bound(least=1),
}
"""By the path of a value in the policy."""
