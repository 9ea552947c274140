"""What a policy did to a fleet, counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from statistics import median

from hack.fleet.kinds import HEALTHY, TERMINAL, Kind


@dataclass(slots=True)
class Score:
    """The counts of one run. Times in seconds."""

    faults: Counter[Kind] = field(default_factory=Counter)
    found: Counter[Kind] = field(default_factory=Counter)
    """Faults that the policy took the node for."""
    delays: list[float] = field(default_factory=list)
    """From the fault to taint and cordon."""
    wrong: int = 0
    """How often a node was taken with nothing wrong."""
    most_out: int = 0
    """Nodes taken at once, at the most."""
    out_s: float = 0.0
    """Node-seconds between taint and release."""
    ended: Counter[str] = field(default_factory=Counter)
    """Sessions by their last phase."""

    def taken(self, kind: Kind | None, after_s: float) -> None:
        """A node was taken, `after_s` after its fault of that kind; None for no fault."""
        if kind is None or kind in HEALTHY:
            self.wrong += 1
            return
        self.found[kind] += 1
        self.delays.append(after_s)

    def lines(self) -> list[str]:
        """The score as text."""
        terminal = sum(self.faults[kind] for kind in TERMINAL)
        found = sum(self.found[kind] for kind in TERMINAL)
        rows = [f"  {self.found[k]:4} of {n:4}  {k}" for k, n in sorted(self.faults.items())]
        middle = f"{median(self.delays):.0f} s" if self.delays else "-"
        return [
            f"terminal faults found: {found} of {terminal}; median delay {middle}",
            f"nodes taken with nothing wrong: {self.wrong}",
            f"most nodes out at once: {self.most_out}; node-hours out: {self.out_s / 3600:.0f}",
            "sessions: " + ", ".join(f"{n} {phase}" for phase, n in sorted(self.ended.items())),
            "taken, of faults by kind:",
            *rows,
        ]
