"""What is counted of gpuward's own sessions: how long the budget and the breaker held them up."""

from __future__ import annotations

from collections.abc import Mapping

from rules.api.nodes import QuarantineView
from rules.api.quarantine import Phase
from rules.catalog.why_not import WhyNot
from rules.fleet.turns import FleetVerdict
from rules.session.observation import is_open
from rules.simulate.score import Score

_HELD = frozenset(
    {WhyNot.BUDGET, WhyNot.MAX_NEW, WhyNot.PER_REASON, WhyNot.CORRELATED_CAUSE, WhyNot.GANG_BUDGET}
)


class Watched:
    """Adds up from one judgement of the fleet to the next."""

    def __init__(self) -> None:
        self.held_s = 0.0
        self.breaker_s = 0.0
        self.correlated = 0
        """How many sessions waited as part of a correlated cause."""
        self._correlated: set[str] = set()
        self._at = 0.0
        self._held = 0
        self._open = False

    def fleet(
        self, verdict: FleetVerdict, sessions: Mapping[str, QuarantineView], now: float
    ) -> None:
        """The fleet was judged."""
        self._add(now)
        self._open = verdict.breaker.open
        self._held = 0
        for name, session in sessions.items():
            if session.status.phase not in {"", Phase.PENDING} or not is_open(session):
                continue
            permit = verdict.permits.get(name)
            refusal = permit.refusal if permit is not None else None
            if refusal is not None and refusal.reason in _HELD:
                self._held += 1
                if refusal.reason is WhyNot.CORRELATED_CAUSE:
                    self._correlated.add(name)

    def calm(self, now: float) -> None:
        """Nobody waits for a turn. The breaker may still be cooling down; nobody feels it."""
        self._add(now)
        self._held, self._open = 0, False

    def _add(self, now: float) -> None:
        passed = now - self._at if self._at else 0.0
        self.held_s += passed * self._held
        self.breaker_s += passed if self._open else 0.0
        self._at = now

    def finish(self, score: Score, now: float) -> None:
        """Into the score."""
        self._add(now)
        score.budget_h = self.held_s / 3600.0
        score.breaker_h = self.breaker_s / 3600.0
        score.correlated = len(self._correlated)
