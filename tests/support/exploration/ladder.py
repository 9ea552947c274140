"""Every order of endings along the repair ladder: a small world, what may happen, what must hold.

Unlike the other explorations this one forks whole scenario worlds: steps, providers and tests
live in them already. A fork has another leader, so that all that is done rests on what is stored.
Two nodes are at fault and one may be repaired at a time; of what others do a bounded number of
acts comes at any moment, and time passes in between. States that differ in names of versions and
in moments long gone are one.
"""

from __future__ import annotations

import json
import re
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Self

from rules.api.names import ANNOTATION_HOLD
from rules.api.quarantine import RepairState
from rules.api.repair_writes import SetRepairCondition
from rules.api.timestamps import parse_time
from rules.session.observation import is_open
from tests.support.scenario.repair_world import REPLACE, RESTART
from tests.support.scenario.session_world import ROOMY, CrashError, policy_of
from tests.support.scenario.validation_world import ValidationWorld

NODES: Final = ("n0", "n1")
ATTEMPTS: Final = 1
CONCURRENT: Final = 1
ASKED_AT_ONCE = CONCURRENT
"""What the policy says; another value is a defect to be found."""
ENDINGS: Final = ("passes", "fails", "could not test", "vanishes")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_OLD_S: Final = 1200
_OF_VERSIONS: Final = {
    *("resourceVersion", "message", "timeline", "lastHeartbeatTime", "heartbeat", "evidence"),
}


class LadderWorld(ValidationWorld):
    """Nobody does anything here but by an act."""

    def __init__(self) -> None:
        super().__init__("hangs", nodes=len(NODES))
        steps = {
            step: {"adapter": "NodeConditions", "timeout": "2m"}
            for step in ("RestartNode", "ReplaceNode")
        }
        repair = {
            "mode": "Auto",
            "steps": steps,
            "attempts": ATTEMPTS,
            "concurrent": ASKED_AT_ONCE,
        }
        self.policy = policy_of(
            budget=ROOMY,
            repair=repair,
            validate={"provider": "Job", "timeout": "5m"},
            release={"healthyFor": "30s"},
        )
        self.left = 0
        self.by_person: set[str] = set()
        """Sessions that a person ended."""
        for node in NODES:
            self.incident(node)

    def _provide(self, name: str, kind: str) -> None:
        """Only acts provide."""

    def fork(self) -> Self:
        """What the next leader is to die of stays."""
        other = super().fork()
        other.meddler = self.meddler
        return other

    def key(self) -> str:
        """What distinguishes the state."""
        whole = {
            "nodes": self.nodes,
            "sessions": self.quarantines,
            "healths": self.healths,
            "jobs": self.jobs,
            "pauses": sorted(self.pauses),
            "refusing": sorted(kind.__name__ for kind in self.refusing),
            "left": self.left,
        }
        return json.dumps(self._relative(whole), sort_keys=True, default=str)

    def _relative(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {k: self._relative(v) for k, v in value.items() if k not in _OF_VERSIONS}
        if isinstance(value, list):
            return [self._relative(each) for each in value]
        return _TIME.sub(self._ago, value) if isinstance(value, str) else value

    def _ago(self, text: re.Match[str]) -> str:
        ago = self.now - (parse_time(text[0]) or 0.0)
        return f"-{min(_OLD_S, round(ago / 10) * 10):.0f}"

    def end_test(self, name: str, ending: str) -> None:
        """The test ends now, in one of the ways of `ValidationWorld`."""
        self.jobs[name]["becomes"] = ending
        self._end(name, self.jobs[name])

    def lets_come(self, seconds: float, step: float) -> None:
        """Time passes; a leader that dies is followed by another one."""
        try:
            self.run(seconds, step)
        except CrashError:
            self.meddler = None
            self.change_leader()
            self.run(seconds, step)


Act = tuple[str, Callable[[LadderWorld], None]]


def acts(world: LadderWorld) -> Iterator[Act]:
    """What others may do now."""
    for node in NODES:
        yield from _provider(world, node)
        yield from _person(world, node)
    for name, job in world.jobs.items():
        if not job.get("status", {}).get("conditions"):
            for ending in ENDINGS:
                yield f"test {name[-1]} {ending}", partial(_ends, name=name, ending=ending)
    yield f"the API server fails{' no more' if world.refusing else ''}", _api
    yield "a pause or its end", _pause
    yield "the leader dies", LadderWorld.change_leader
    yield "the leader dies before it asks", _leader_dies_asking


def _provider(world: LadderWorld, node: str) -> Iterator[Act]:
    if world.asks(node, RESTART):
        yield f"{node} is restarted and well", partial(_restarted, node=node, well=True)
        yield f"{node} is restarted in vain", partial(_restarted, node=node, well=False)
    if world.asks(node, RESTART) or world.asks(node, REPLACE):
        yield f"{node} is said to be well", partial(LadderWorld.close_all, node=node)
        silent = partial(LadderWorld.set_ready, node=node, status="Unknown")
        yield f"{node} falls silent", silent


def _person(world: LadderWorld, node: str) -> Iterator[Act]:
    held = ANNOTATION_HOLD in world.nodes[node]["metadata"]["annotations"]
    value = None if held else "mine"
    hold = partial(LadderWorld.annotate, node=node, name=ANNOTATION_HOLD, value=value)
    yield f"a hold of {node} or its end", hold
    if world.unschedulable(node):
        yield f"{node} is uncordoned", partial(_ended_by_person, node=node)


def _restarted(world: LadderWorld, node: str, *, well: bool) -> None:
    world.reboot(node)
    if well:
        world.close_all(node)


def _ends(world: LadderWorld, name: str, ending: str) -> None:
    world.end_test(name, ending)


def _api(world: LadderWorld) -> None:
    world.refusing = {} if world.refusing else {SetRepairCondition: (500, "overloaded")}


def _pause(world: LadderWorld) -> None:
    if world.pauses:
        world.pauses.clear()
    else:
        world.pause()


def _leader_dies_asking(world: LadderWorld) -> None:
    world.meddler = _dies


def _ended_by_person(world: LadderWorld, node: str) -> None:
    world.by_person |= {session.name for session in world.sessions(node)}
    world.cordon(node, on=False)


def _dies(write: object) -> None:
    if isinstance(write, SetRepairCondition) and write.asks:
        raise CrashError


# ---------------------------------------------------------------------- what must hold


def wrong(world: LadderWorld) -> str:
    """What is violated in this state; "" for nothing."""
    asked = Counter(
        (write.session, write.step)
        for _, write, _, status in world.sent
        if isinstance(write, SetRepairCondition) and write.asks and status < 300
    )
    if twice := [each for each, times in asked.items() if times > 1]:
        return f"each step at most once: {twice[0]} was asked for twice"
    running = [node for node in NODES if _runs(world, node)]
    if len(running) > CONCURRENT:
        return f"repair.concurrent: steps run on {', '.join(running)}"
    for node in NODES:
        sessions = world.sessions(node)
        counted = Counter(a.step for s in sessions for a in s.status.repair if a.counts)
        if over := [step for step, times in counted.items() if times > ATTEMPTS]:
            return f"repair.attempts: {over[0]} was tried too often on {node}"
        for session in sessions:
            released = session.status.phase == "Released" and session.name not in world.by_person
            if released and (said := _unproven(world, node, session.status)):
                return said
    return ""


def _runs(world: LadderWorld, node: str) -> bool:
    return any(
        attempt.state == RepairState.ASKED
        for session in world.sessions(node)
        if is_open(session)
        for attempt in session.status.repair
    )


def _unproven(world: LadderWorld, node: str, status: Any) -> str:
    open_ = {RepairState.PLANNED, RepairState.HELD, RepairState.ASKED}
    if unended := [a.step for a in status.repair if a.state in open_]:
        return f"never released without proof: {node}, whose {unended[0]} has not ended"
    boots = [a.before.boot_id for a in status.repair if a.state == RepairState.PROVEN]
    if world.node(node).boot_id in boots:
        return f"never released without proof: {node} runs the boot of before"
    tests = [test.state for test in status.validation]
    if status.repair and (not tests or tests[-1] != "Passed"):
        return f"never released without proof: {node}, whose test did not pass"
    return ""


# ---------------------------------------------------------------------- the search


@dataclass
class LadderReport:
    """What was found, the shortest way to it first."""

    states: int = 0
    complete: bool = False
    what: str = ""
    events: tuple[str, ...] = ()
    phases: set[str] = field(default_factory=set)
    ends: set[str] = field(default_factory=set)
    """`STEP STATE` of every repair that ended, and states of tests."""

    def __str__(self) -> str:
        lines = [f"  {number}. {event}" for number, event in enumerate(self.events, 1)]
        return "\n".join([f"{self.states} states; {self.what}", *lines])


def explored(start: LadderWorld, left: int, most_states: int) -> LadderReport:
    """Breadth first, until something is wrong, all is seen, or the bound."""
    start.left = left
    report = LadderReport()
    _note(report, start)
    seen = {start.key()}
    todo: deque[tuple[LadderWorld, tuple[str, ...]]] = deque([(start, ())])
    while todo and report.states < most_states:
        world, events = todo.popleft()
        report.states += 1
        for label, reached in _after(world):
            _note(report, reached)
            if said := wrong(reached):
                report.what, report.events = said, (*events, label)
                return report
            if (key := reached.key()) not in seen:
                seen.add(key)
                # Its forks have leaders of their own, and only they go on.
                reached.restart()
                todo.append((reached, (*events, label)))
            else:
                reached.end()
        if events:
            world.end()
    report.complete = not todo
    return report


def _after(world: LadderWorld) -> Iterator[tuple[str, LadderWorld]]:
    for label, seconds, step in (("a minute passes", 60, 20), ("a while passes", 960, 120)):
        later = world.fork()
        later.lets_come(seconds, step)
        yield label, later
    if not world.left:
        return
    for label, act in acts(world):
        reached = world.fork()
        reached.left -= 1
        act(reached)
        reached.lets_come(20, 10)
        yield label, reached


def _note(report: LadderReport, world: LadderWorld) -> None:
    for node in NODES:
        for session in world.sessions(node):
            report.phases.add(session.status.phase)
            report.ends |= {f"{a.step} {a.state}" for a in session.status.repair}
            report.ends |= {test.state for test in session.status.validation}
