"""One stay of one node out of service: what the generator makes and a trace records."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """A fault of one node. Times in days since the beginning."""

    node: str
    klass: str
    """The class, in the trace's words (`GPU`, `Power Supply`)."""
    start: float
    end: float
    again: bool = False
    """The same part as before: a repair of the same class did not hold."""

    @property
    def hours(self) -> float:
        """How long the node was out."""
        return (self.end - self.start) * 24.0
