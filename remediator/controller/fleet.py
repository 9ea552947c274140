"""Assess the fleet when something changed: which sessions may start, budgets, circuit breaker.

`node_cycle` reads the permit of a session. `run` keeps the assessment fresh, wakes nodes that got
a permit, reports fleet findings and sets the gauges. The rules are
`rules.fleet.turns.judge_fleet`.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import structlog

from remediator.kube import clock
from remediator.world import Edge, EdgePart
from rules.api import quarantine
from rules.api.nodes import QuarantineView
from rules.fleet import common_cause, turns
from rules.fleet.common_cause import CommonCause
from rules.fleet.memory import FleetMemory
from rules.fleet.turns import FleetAssessment
from rules.session import observation
from rules.session.observation import FleetSnapshot, Permit

_LOG = structlog.get_logger()

# The assessment is never older than this: time alone ends cool-downs and windows.
_LONGEST_S = 5.0
# Common causes are for reports only, so they are computed this rarely.
_COMMON_EVERY_S = 5.0
_SHORTEST_S, _LONGEST_PAUSE_S = 0.005, 1.0
# Assessments take at most this share of a core, whatever the fleet costs. The time of a burst is
# not delayed, so that a single fault does not wait.
_SHARE, _BURST_S = 0.1, 1.0
_NOT_JUDGED = Permit()


class Fleet(EdgePart):
    """The fleet assessment of one process."""

    def __init__(
        self,
        edge: Edge,
        *,
        wake: Callable[[str], None],
        judge: Callable[[FleetSnapshot, FleetMemory], FleetAssessment] = turns.judge_fleet,
    ) -> None:
        super().__init__(edge)
        self._rules = judge
        self.assessment = FleetAssessment()
        self._wake = wake
        self._dirty = True
        self._judged_at = self._recounted_at = float("-inf")
        self._paid_at = float("-inf")
        """CLOCK_BOOTTIME when past assessments are within their share of time."""
        self._changed = asyncio.Event()
        self._reported: set[str] = set()
        self._phases: dict[str, str] = {}
        self._memory = FleetMemory()
        self._common: tuple[CommonCause, ...] = ()
        self._compared_at = float("-inf")

    def changed(self) -> None:
        """Request a new assessment."""
        self._dirty = True
        self._changed.set()

    def policy_changed(self) -> None:
        """Withdraw the permits to quarantine: the policy before gave them. Assess again."""
        tainted = {n: p for n, p in self._phases.items() if p not in quarantine.NOT_TAINTED_YET}
        permits = {n: p for n, p in self.assessment.permits.items() if n in tainted}
        self.assessment, self._phases = replace(self.assessment, permits=permits), tainted
        self.changed()

    def judged(self, session: QuarantineView) -> bool:
        """Whether the assessment includes the session in its present phase; if not, the next one
        will.
        """
        self.permit(session.name)
        return self._phases.get(session.name) == session.status.phase

    def permit(self, session: str) -> Permit:
        """The permit of the session, from a new assessment if the last one is outdated and the
        pause after it is over.
        """
        if self._dirty and self._left_s() <= 0:
            self._judge()
        return self.assessment.permits.get(session, _NOT_JUDGED)

    async def run(self) -> None:
        """Keep the assessment fresh until cancelled."""
        while True:
            if not await clock.heard(self._changed, _LONGEST_S):
                self._dirty = True
            self._changed.clear()
            await self._clock.sleep(max(0.0, self._left_s()))
            if not self._may_act():
                continue
            if self._dirty:
                self._judge()
            self.compare()
            self._report_findings()

    def compare(self) -> None:
        """Set the gauge of nodes that share a fault and its likely cause. The nodes are those of
        the last assessment, which counted their labels.
        """
        if self._clock.elapsed() - self._compared_at < _COMMON_EVERY_S:
            return
        self._compared_at = self._clock.elapsed()
        before, counted = self._common, self._memory.census.labels
        with self._isolation.guard("fleet", "common causes"):
            self._common = common_cause.common_causes(counted, self._world.healths)
        if self._common == before:
            return
        gauge = self._metrics.node_common_cause
        gauge.clear()
        for cause in self._common:
            for node in cause.nodes:
                gauge.labels(node, cause.reason, cause.shared).set(1)

    def _left_s(self) -> float:
        """Seconds until the next assessment is allowed."""
        earliest = self._judged_at + _SHORTEST_S
        latest = self._judged_at + _LONGEST_PAUSE_S
        return min(latest, max(earliest, self._paid_at)) - self._clock.elapsed()

    def _judge(self) -> None:
        began = self._clock.elapsed()
        before, phases = self.assessment, self._phases
        if began - self._recounted_at >= _LONGEST_S:
            self._world.recount()
            self._recounted_at = began
        sessions = self._world.counting
        self._phases = {
            name: s.status.phase for name, s in sessions.items() if observation.is_open(s)
        }
        self._dirty = False
        self.assessment = self._judged_apart(self._world.snapshot())
        self._judged_at = self._clock.elapsed()
        paid_at = max(self._paid_at, began - _BURST_S)
        self._paid_at = paid_at + (self._judged_at - began) / _SHARE
        permits = self.assessment.permits
        for name, phase in self._phases.items():
            if phases.get(name) != phase or before.permits.get(name) != permits.get(name):
                self._wake(sessions[name].spec.node_name)
        self._set_gauges(before)

    def _judged_apart(self, snapshot: FleetSnapshot) -> FleetAssessment:
        """Assess the fleet; leave out a session that raises an error, so that the others continue.
        That session gets no permit, but its node still counts as unavailable.
        """
        try:
            return self._rules(snapshot, self._memory)
        except Exception:  # noqa: BLE001 - the object at fault is found and named below
            self._memory = FleetMemory()
            sound = {
                name: session
                for name, session in snapshot.counted.items()
                if self._is_sound(name, replace(snapshot, counting={name: session}))
            }
        try:
            return self._rules(replace(snapshot, counting=sound), self._memory)
        except Exception as error:  # noqa: BLE001 - no session gets a permit
            self._isolation.note("fleet", "the entire fleet", error)
            return FleetAssessment()

    def _is_sound(self, name: str, alone: FleetSnapshot) -> bool:
        try:
            self._rules(alone, FleetMemory())
        except Exception as error:  # noqa: BLE001 - this object is the one
            self._isolation.note("fleet", f"session {name}", error)
            return False
        return True

    def _set_gauges(self, before: FleetAssessment) -> None:
        assessment, metrics = self.assessment, self._metrics
        metrics.nodes.set(assessment.selected)
        metrics.breaker_open.set(1 if assessment.breaker.open else 0)
        findings = assessment.breaker.findings
        if (assessment.lines, findings) == (before.lines, before.breaker.findings):
            return
        metrics.budget_size.clear()
        metrics.budget_used.clear()
        for line in assessment.lines:
            scope = f"{line.key}={line.value}" if line.key else "all"
            metrics.budget_size.labels(scope).set(line.limit)
            metrics.budget_used.labels(scope).set(line.unavailable)
        metrics.correlated_cause.clear()
        for finding in findings:
            # Findings that are over raise no alert.
            if finding.going_on:
                found = metrics.correlated_cause.labels(finding.reason, finding.shared)
                found.set(finding.going_on)

    def _report_findings(self) -> None:
        for event in self.assessment.events:
            if event.key not in self._reported:
                self._reported.add(event.key)
                self._events.send(event)
