"""Who may start, as of now: judges the entire fleet when something changed, not once per node.

`node_cycle` asks for one session's permit; `run` keeps the health status fresh while nothing asks,
wakes nodes whose turn came, reports fleet findings and sets the gauges. The judgement itself is
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

# A health status is never older than this, changed or not: time alone ends cool-downs and windows.
_LONGEST_S = 5.0
# What health statuses have in common is looked for this often: it is reported, and nothing rests
# on it.
_COMMON_EVERY_S = 5.0
_SHORTEST_S, _LONGEST_PAUSE_S = 0.02, 1.0
_NOT_JUDGED = Permit()


class Fleet(EdgePart):
    """The fleet health status of one process."""

    def __init__(
        self, edge: Edge, *, wake: Callable[[str], None], rest: Callable[[], float]
    ) -> None:
        """`rest`: how many times as long as a judgement took it is at least until the next."""
        super().__init__(edge)
        self._rest = rest
        self.verdict = FleetAssessment()
        self._wake = wake
        self._dirty = True
        self._judged_at = self._recounted_at = float("-inf")
        self._took_s = 0.0
        self._changed = asyncio.Event()
        self._quarantine_waits = False
        """A session that was not judged yet could be quarantined."""
        self._rest_changed = asyncio.Event()
        self._reported: set[str] = set()
        self._phases: dict[str, str] = {}
        self._memory = FleetMemory()
        self._common: tuple[CommonCause, ...] = ()
        self._compared_at = float("-inf")

    def changed(self) -> None:
        """Something the health status rests on changed."""
        self._dirty = True
        self._changed.set()
        if self._quarantine_waits:
            self._rest_changed.set()

    def judged(self, session: QuarantineView) -> bool:
        """Whether the health status knows the session in its present phase; if not, it soon
        does.
        """
        self.permit(session.name)
        known = self._phases.get(session.name) == session.status.phase
        self._quarantine_waits |= not known and session.status.phase in quarantine.NOT_TAINTED_YET
        return known

    def permit(self, session: str) -> Permit:
        """The session's permit, judged again if something changed and it was not judged just
        now.
        """
        if self._dirty and self._left_s() <= 0:
            self._judge()
        return self.verdict.permits.get(session, _NOT_JUDGED)

    async def run(self) -> None:
        """Keep the health status fresh until cancelled."""
        while True:
            if not await clock.heard(self._changed, _LONGEST_S):
                self._dirty = True
            self._changed.clear()
            await self._pause()
            if not self._may_act():
                continue
            if self._dirty:
                self._judge()
            self.compare()
            self._report_findings()

    def compare(self) -> None:
        """Tell which nodes have a fault and its likely cause in common, drained for it or not. The
        nodes are those of the last health status, which has counted what they share.
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

    async def _pause(self) -> None:
        while (left_s := self._left_s()) > 0:
            self._rest_changed.clear()
            await clock.heard(self._rest_changed, left_s)

    def _left_s(self) -> float:
        """Until the fleet may be judged again."""
        rest_s = min(_LONGEST_PAUSE_S, max(_SHORTEST_S, self._took_s * self._rest()))
        return self._judged_at + rest_s - self._clock.elapsed()

    def _judge(self) -> None:
        began = self._clock.elapsed()
        before, phases = self.verdict, self._phases
        if began - self._recounted_at >= _LONGEST_S:
            self._world.recount()
            self._recounted_at = began
        sessions = self._world.counting
        self._phases = {
            name: s.status.phase for name, s in sessions.items() if observation.is_open(s)
        }
        self._dirty = self._quarantine_waits = False
        self.verdict = self._judged_apart(self._world.snapshot())
        self._judged_at = self._clock.elapsed()
        self._took_s = self._judged_at - began
        permits = self.verdict.permits
        for name, phase in self._phases.items():
            if phases.get(name) != phase or before.permits.get(name) != permits.get(name):
                self._wake(sessions[name].spec.node_name)
        self._set_gauges(before)

    def _judged_apart(self, snapshot: FleetSnapshot) -> FleetAssessment:
        """The fleet rules see all sessions at once: one that they stumble over is left out, so
        that the others go on. It gets no permit, and what it holds still counts by its node.
        """
        try:
            return turns.judge_fleet(snapshot, self._memory)
        except Exception:  # noqa: BLE001 - the object at fault is looked for and named below
            self._memory = FleetMemory()
            sound = {
                name: session
                for name, session in snapshot.counted.items()
                if self._is_sound(name, replace(snapshot, counting={name: session}))
            }
        try:
            return turns.judge_fleet(replace(snapshot, counting=sound), self._memory)
        except Exception as error:  # noqa: BLE001 - no session gets a permit
            self._isolation.note("fleet", "the entire fleet", error)
            return FleetAssessment()

    def _is_sound(self, name: str, alone: FleetSnapshot) -> bool:
        try:
            turns.judge_fleet(alone)
        except Exception as error:  # noqa: BLE001 - this object is the one
            self._isolation.note("fleet", f"session {name}", error)
            return False
        return True

    def _set_gauges(self, before: FleetAssessment) -> None:
        verdict, metrics = self.verdict, self._metrics
        metrics.nodes.set(verdict.selected)
        metrics.breaker_open.set(1 if verdict.breaker.open else 0)
        findings = verdict.breaker.findings
        if (verdict.lines, findings) == (before.lines, before.breaker.findings):
            return
        metrics.budget_size.clear()
        metrics.budget_used.clear()
        for line in verdict.lines:
            scope = f"{line.key}={line.value}" if line.key else "all"
            metrics.budget_size.labels(scope).set(line.limit)
            metrics.budget_used.labels(scope).set(line.unavailable)
        metrics.correlated_cause.clear()
        for finding in findings:
            # What is over is for people to read about, and wakes nobody.
            if finding.going_on:
                found = metrics.correlated_cause.labels(finding.reason, finding.shared)
                found.set(finding.going_on)

    def _report_findings(self) -> None:
        for event in self.verdict.events:
            if event.key not in self._reported:
                self._reported.add(event.key)
                self._telling.tell(event)
