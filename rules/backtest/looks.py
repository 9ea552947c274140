"""What the edge would have read for one session beside its node: drains, tests, kept evidence."""

from __future__ import annotations

import math
from typing import Final

from rules.api import writes as d
from rules.api.evidence.wire import EvidenceView
from rules.api.nodes import QuarantineView
from rules.api.quarantine import Phase
from rules.api.timestamps import parse_time
from rules.backtest.outcomes import same_case
from rules.backtest.past import Past
from rules.backtest.stage import Stage
from rules.drain.memory import DrainMemory
from rules.drain.plan import DrainPlan
from rules.policy.policy import Policy
from rules.session.repair.evidence import wanted_of
from rules.session.validation.verdicts import under_way
from rules.validate.jobs import JobSeen

MATE_S: Final = 3600.0
"""A real session of the node that began within this time tells how long its drain takes."""
_EMPTY: Final = frozenset({Phase.QUARANTINED, Phase.REPAIRING, Phase.VALIDATING})


class Looks:
    """Reads of one replay."""

    def __init__(self, past: Past, policy: Policy, stage: Stage) -> None:
        self._past = past
        self._policy = policy
        self._stage = stage
        self._empty_since: dict[str, float] = {}
        """Since when the node of a session was listed for certain, and found empty."""

    def plan(self, session: QuarantineView) -> DrainPlan | None:
        """The drain as it went then, or at once; a drained node is empty."""
        status, now = session.status, self._stage.now
        if status.phase == Phase.MARKED:
            return DrainPlan(memory=DrainMemory(), probed=True)
        if status.phase in _EMPTY:
            since = self._empty_since.get(session.name)
            listed_at = now if since is not None else None
            return DrainPlan(
                memory=DrainMemory(),
                arrived=(),
                clear_since=since,
                others_clear_since=since,
                listed_at=listed_at,
            )
        if status.phase != Phase.DRAINING:
            return None
        ends = self.drained_at(session)
        return DrainPlan(memory=DrainMemory(), drained=now >= ends, wake_at=ends)

    def drained_at(self, session: QuarantineView) -> float:
        """When the drain of a session ends."""
        began = parse_time(session.status.phase_since) or self._stage.now
        took: float = self._policy.drain.settle_s
        near = [
            real
            for real in self._past.sessions
            if real.node == session.spec.node_name
            and real.drain_s is not None
            and abs(real.opened - session.metadata.created_at) <= MATE_S
        ]
        if near:
            closest = min(near, key=lambda r: abs(r.opened - session.metadata.created_at))
            took = closest.drain_s if closest.drain_s is not None else took
        return began + took

    def follow(self, session: QuarantineView, decision: d.Decision) -> float | None:
        """When there is more to see than at the decision, given what it asks to be read."""
        now = self._stage.now
        if session.status.phase == Phase.DRAINING:
            ends = self.drained_at(session)
            return max(now + 0.001, ends) if math.isfinite(ends) else None
        if decision.evicting is not d.Evicting.LOOK:
            self._empty_since.pop(session.name, None)
            return None
        since = self._empty_since.setdefault(session.name, now)
        certain_at = since + self._policy.drain.settle_s
        return certain_at if certain_at > now else None

    def job(self, session: QuarantineView) -> JobSeen | None:
        """The Job of the session's test."""
        test = under_way(session.status)
        if test is None:
            return None
        return self._stage.job_seen(
            test.object, test.template, session.spec.node_name, session.metadata.uid
        )

    def evidence(self, session: QuarantineView) -> EvidenceView | None:
        """What its agent kept, as late as then; at once where no such session ever was."""
        if not wanted_of(session, self._stage.now):
            return None
        real = [
            one for one in same_case(session, self._past.sessions)
            if one.marked is not None and one.mode == session.status.mode
        ]  # fmt: skip
        marked = next(
            (parse_time(e.at) for e in session.status.timeline if e.step == Phase.MARKED), None
        )
        after_s = real[0].evidence_s if real else 0.0
        if marked is None or after_s is None or self._stage.now < marked + after_s:
            return None
        return self._stage.evidence(session)
