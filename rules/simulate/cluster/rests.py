"""When each node is decided again: at once on news, ever more rarely while the answer stays the
same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rules.api.quarantine import Phase
from rules.api.writes import Decision
from rules.session.observation import Permit
from rules.simulate.cluster.clockwork import Clockwork
from rules.simulate.cluster.sim_node import SimNode

EACH_S: Final = 60.0
"""How often the remediator decides a session of which it hears nothing."""
LONGEST_S: Final[dict[str, float]] = {
    Phase.PENDING: 21_600.0,
    Phase.MARKED: 3_600.0,
    Phase.DRAINING: 900.0,
    Phase.QUARANTINED: 21_600.0,
    Phase.REPAIRING: EACH_S,
    Phase.VALIDATING: EACH_S,
}
"""How rarely a session that does not change is decided here at the most. Where only events or its
turn end a phase, that may be hours; the clocks of the others are minutes."""


@dataclass(slots=True)
class _Rest:
    """How long a node's decisions have been the same."""

    said: str = ""
    seconds: float = EACH_S
    due_at: float = 0.0


class Rests:
    """The looks that are to come."""

    def __init__(self, clock: Clockwork, look: Callable[[SimNode], None]) -> None:
        self._clock = clock
        self._look = look
        self._rests: dict[str, _Rest] = {}

    def wake(self, node: SimNode, seconds: float) -> None:
        """There is news of the node."""
        self._rest_of(node).seconds = EACH_S
        self._look_at(node, self._clock.now + seconds)

    def rest(self, node: SimNode, decision: Decision) -> None:
        """All was done that can be done now."""
        if decision.wake_at is None:
            return
        rest = self._rest_of(node)
        said = f"{decision.step}|{decision.blocked_by}"
        phase = decision.status.phase if decision.status is not None else ""
        wait_s = decision.wake_at - self._clock.now
        if said == rest.said and wait_s >= EACH_S - 1.0:
            rest.seconds = min(rest.seconds * 2.0, LONGEST_S.get(phase, EACH_S))
            wait_s = max(wait_s, rest.seconds)
        elif said != rest.said:
            rest.said, rest.seconds = said, EACH_S
        self._look_at(node, self._clock.now + max(0.05, wait_s))

    def _rest_of(self, node: SimNode) -> _Rest:
        return self._rests.setdefault(node.name, _Rest())

    def _look_at(self, node: SimNode, when: float) -> None:
        rest = self._rest_of(node)
        if self._clock.now <= rest.due_at <= when:
            return
        rest.due_at = when

        def due() -> None:
            if rest.due_at == when:
                rest.due_at = 0.0
                self._look(node)

        self._clock.at(when, due)


def turn_of(permit: Permit | None) -> tuple[object, ...]:
    """What of a permit makes a difference to who waits for it."""
    if permit is None:
        return ()
    refusal = permit.refusal
    return (
        permit.start,
        permit.drain,
        permit.repair,
        refusal.reason if refusal else permit.unjudged,
    )
