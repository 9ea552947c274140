"""Every judge scenario played again with the agent restarted in between, and what may differ.

A `World` keeps what happened to it. `difference` ends the agent behind one step, restores it from
what it had published, lets it look at what is there as the collectors do, plays the rest, and
compares the node's status with that of a run without the restart.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import msgspec

from rules.api.health import HealthStatus
from rules.catalog.reason import Level
from rules.catalog.thresholds import Thresholds
from rules.judge.health_object import Identity, publish
from rules.judge.health_status import assess
from rules.judge.incident import IncidentPhase
from rules.judge.judge import judge, next_deadline
from rules.judge.memory import Gauge, Latch
from rules.judge.observation import (
    DcgmSeen,
    HostSeen,
    Inventory,
    KernelLineSeen,
    NodeSeen,
    Observation,
    PciSeen,
    Readings,
    SourceChanged,
    SourceName,
    SourceState,
    Tick,
    TopologySeen,
)
from rules.judge.restore import restore
from rules.judge.state import NodeState

SETTLE_S = 150.0
LOOK_EVERY_S = 15.0
IDENTITY = Identity(agent_version="1", rules_version="1", pod="ns/p", pod_uid="u")


@dataclass(frozen=True, slots=True)
class Step:
    """One observation, or, where `seen` is None, what the scenario itself made of the state."""

    now: float
    boot: str
    rules: Thresholds
    seen: Observation | None
    become: Callable[[NodeState], NodeState] | None = None


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """The node's status: health and reason, and each active incident without its history."""

    health: str
    reason: str
    incidents: frozenset[tuple[str, str, str, str, tuple[str, ...]]]

    @property
    def disruption(self) -> Level:
        """The most that is done to the node for it."""
        return max((Level(incident[2]) for incident in self.incidents), default=Level.REPORT)


def reborn(state: NodeState, now: float, boot: str, rules: Thresholds) -> NodeState:
    """The state of an agent that starts from what this one published."""
    status = publish(state, assess(state, now, rules), now, IDENTITY).status
    read = msgspec.json.decode(msgspec.json.encode(status), type=HealthStatus)
    return restore(read, now, boot_id=boot, node_name="n1")


class Present:
    """The facts that collectors would report now: the last of each kind."""

    def __init__(self) -> None:
        self._last: dict[tuple[object, ...], Observation] = {}
        self._uncounted: list[KernelLineSeen] = []
        self._boot = ""

    def take(self, step: Step) -> None:
        seen = step.seen
        if self._boot not in ("", step.boot):
            self._forget()
        self._boot = step.boot
        match seen:
            case SourceChanged():
                self._last[SourceChanged, seen.source] = seen
            case Readings():
                self._last[Readings, seen.gpu] = seen
            case Inventory():
                self._last[(Inventory,)] = seen
            case NodeSeen() | HostSeen() | PciSeen() | TopologySeen():
                self._last[(type(seen),)] = seen
            case DcgmSeen():
                self._last[(type(seen),)] = seen
            case KernelLineSeen() if seen.sequence < 0:
                self._uncounted.append(seen)
            case _:
                pass

    def _forget(self) -> None:
        """Another boot: what was read before it is no present any more."""
        self._last = {k: v for k, v in self._last.items() if isinstance(v, NodeSeen)}
        self._uncounted = []

    def start(self, now: float) -> Iterator[Observation]:
        """What a starting agent sees, in the order in which its collectors speak."""
        yield from self.look(now)
        for line in self._uncounted:
            yield msgspec.structs.replace(line, lookback=True)

    def look(self, now: float) -> Iterator[Observation]:
        nvml = self._last.get((SourceChanged, SourceName.NVML))
        sees = not isinstance(nvml, SourceChanged) or nvml.state is SourceState.UP
        for kind in (NodeSeen, HostSeen, PciSeen, SourceChanged, Inventory, TopologySeen,
                     Readings, DcgmSeen):  # fmt: skip
            if kind in (Inventory, TopologySeen, Readings) and not sees:
                continue
            for key, seen in self._last.items():
                if key[0] is kind and not _of_the_future(seen, now):
                    yield msgspec.structs.replace(seen, at=now)  # type: ignore[type-var]


def _of_the_future(seen: Observation, now: float) -> bool:
    """A boot after now: the clock was set, and the host would say another time of its boot."""
    return isinstance(seen, HostSeen) and seen.booted_at > now


@dataclass(frozen=True, slots=True)
class Difference:
    """What a restart changed, and whether something was under way that it may forget."""

    after: int
    found: NodeStatus
    expected: NodeStatus
    then: NodeStatus
    """The status when the agent ended."""
    under_way: bool

    @property
    def documented(self) -> bool:
        """Whether `docs/decisions.md` allows it: what was under way is forgotten or begins again,
        and its severity does not exceed what was already published.
        """
        return self.under_way and self.found.disruption <= max(
            self.expected.disruption, self.then.disruption
        )


def difference(
    steps: list[Step], states: list[NodeState], at: int, most: int
) -> Difference | None:
    """What a restart behind step `at` changes within the next `most` steps; None if nothing.

    `states[k]` is the state before step `k` of the life without that restart.
    """
    present = Present()
    for step in steps[:at]:
        present.take(step)
    begun, rest = steps[at - 1], steps[at : at + most]
    state, last = reborn(states[at], begun.now, begun.boot, begun.rules), (rest or [begun])[-1]
    for seen in present.start(begun.now):
        state, _ = judge(state, seen, begun.now, begun.rules)
    for step in rest:
        state = _next(state, step)
        present.take(step)
    alone = states[at + len(rest)]
    if node_status(state, last) == node_status(alone, last):
        return None
    end = replace(last, now=last.now + SETTLE_S)
    found = node_status(_settled(state, present, last, end.now), end)
    expected = node_status(_settled(alone, present, last, end.now), end)
    if found == expected:
        return None
    return Difference(
        at, found, expected, node_status(states[at], begun), is_under_way(states[at])
    )


def is_under_way(state: NodeState) -> bool:
    """Whether something was seen and not judged yet: a burst, an event,
    looks that agree, evidence of a reset that looks have to agree with again.
    """
    waits = any(
        i.active
        and (
            i.phase is not IncidentPhase.SETTLED or i.unasked or i.resets or i.reset_at is not None
        )
        for i in state.incidents
    )
    checks = [*state.checks.values()]
    gauges = [state.missing]
    for view in state.gpus.values():
        gauges.append(view.lost)
        checks += view.checks.values()
        asked = view.action_seen is not None and view.action_seen != view.action
        waits = waits or asked
    for port in state.ports.values():
        waits = waits or port.missing_since is not None or bool(port.recent)
        checks += port.checks.values()
    gauges += [check for check in checks if isinstance(check, Gauge)]
    latches = [check for check in checks if isinstance(check, Latch)]
    waits = waits or any(latch.seen != latch.raised for latch in latches)
    between = any(any(g.good) if g.raised else any(g.bad) for g in gauges)
    return bool(waits or between or state.repeats or state.unprinted)


def node_status(state: NodeState, step: Step) -> NodeStatus:
    """Return the node's status at that time."""
    judged = assess(state, step.now, step.rules)
    return NodeStatus(
        health=judged.health.value,
        reason=judged.reason,
        incidents=frozenset(
            (
                i.row.reason,
                str(i.row.severity),
                str(i.row.level),
                str(i.row.action),
                tuple(sorted(i.gpus or i.pci)),
            )
            for i in state.incidents
            if i.active
        ),
    )


def _next(state: NodeState, step: Step) -> NodeState:
    if step.become is not None:
        return step.become(state)
    assert step.seen is not None
    return judge(state, step.seen, step.now, step.rules)[0]


def _settled(state: NodeState, present: Present, last: Step, ends: float) -> NodeState:
    """Look on for a while: what was delayed catches up, what was forgotten does not."""
    now = last.now
    while now < ends:
        before, now = now, min(now + LOOK_EVERY_S, ends)
        due = next_deadline(state)
        if due is not None and due < now:
            at = max(due, before)
            state, _ = judge(state, Tick(at=at), at, last.rules)
        for seen in present.look(now):
            state, _ = judge(state, seen, now, last.rules)
    return state
