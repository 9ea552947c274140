"""Breadth-first exploration: every state that any order of events reaches, the shortest way there.

A state is expanded into all that others may do, each step of gpuward, the death of the leader
between two writes, and the passage of time. Time passes only when gpuward has nothing left to do
at this moment, as it takes milliseconds; others may come in between any two of its steps. Of the
steps that need no other one is the state's future (`_future`): following it shows where the world
comes to rest when nobody interferes any more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from rules.policy.policy import Policy
from rules.policy.reader import load_policy
from tests.support.exploration.acts import (
    FOR_ALL,
    PER_NODE,
    acts,
    synced,
    taken_over,
    time_passes,
    without_leader,
)
from tests.support.exploration.invariants import (
    PRIOR_ANNOTATION,
    Violation,
    Watcher,
    at_rest,
    when_quiet,
)
from tests.support.exploration.leader_view import Setting
from tests.support.exploration.machine import Machine
from tests.support.exploration.packing import NODES
from tests.support.exploration.state import (
    Bundle,
    HealthState,
    NodeState,
    PodState,
    State,
    canonical,
)

T = TypeVar("T")
TICK_S = 35
"""Longer than the settle time and a gang's window, shorter than an owner's 60 s."""


@dataclass(frozen=True)
class Step:
    """One event on the way to a state; ``index`` is meant in the state before."""

    label: str
    index: int | None


@dataclass
class Report:
    """What an exploration found."""

    states: int = 0
    steps: int = 0
    depth: int = 0
    complete: bool = False
    """Every reachable state was expanded; otherwise the bound on states stopped it."""
    seconds: float = 0.0
    counterexample: Counterexample | None = None

    def __str__(self) -> str:
        summary = (
            f"{self.states} states, {self.steps} steps, depth {self.depth}, {self.seconds:.1f} s"
        )
        summary += "" if self.complete else " (bounded)"
        return f"{summary}\n{self.counterexample}" if self.counterexample else summary


@dataclass(frozen=True)
class Counterexample:
    """A shortest sequence of events that ends in a violation."""

    invariant: str
    what: str
    events: tuple[str, ...]

    def __str__(self) -> str:
        lines = [f"  {number}. {event}" for number, event in enumerate(self.events, 1)]
        return "\n".join([f"{self.invariant}: {self.what}", *lines])


@dataclass
class Exploration:
    """One exploration of one setting by some actors."""

    setting: Setting
    actors: frozenset[str]
    start: State
    most_states: int = 1_000_000
    machine: Machine = field(init=False)
    _came: dict[State, tuple[State, Step, bool] | None] = field(init=False, default_factory=dict)
    _futures: dict[State, tuple[Step, State, bool]] = field(init=False, default_factory=dict)
    _restful: set[State] = field(init=False, default_factory=set)
    _steps: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        watcher = Watcher()
        self.machine = Machine(self.setting, watcher)
        watcher.machine = self.machine

    def run(self) -> Report:
        """Explore until a violation, the end, or the bound."""
        began = time.perf_counter()
        report = Report()
        first, _ = canonical(self.start)
        self._came = {first: None}
        layer = [first]
        try:
            while layer and len(self._came) < self.most_states:
                layer = self._next(layer)
                report.depth += 1 if layer else 0
            report.complete = not layer
            for state in list(self._came):
                self._comes_to_rest(state)
        except _FoundError as found:
            report.counterexample = found.counterexample
        report.states, report.steps = len(self._came), self._steps
        report.seconds = time.perf_counter() - began
        return report

    def _next(self, layer: list[State]) -> list[State]:
        found: list[State] = []
        for state in layer:
            for step, reached in self.after(state):
                self._steps += 1
                kept, turned = canonical(reached)
                if kept not in self._came:
                    self._came[kept] = (state, step, turned)
                    found.append(kept)
            if len(self._came) >= self.most_states:
                # The rest of the layer belongs to the bound, so that it is the same each time.
                break
        return found

    # ------------------------------------------------------------------ what may come next

    def after(self, state: State) -> Iterator[tuple[Step, State]]:
        """Every event that may come next, and the state it leads to."""
        if state.left:
            for label, index, reached in acts(state, self.actors):
                yield Step(label, index), reached._replace(left=state.left - 1)
            if "leader" in self.actors and state.leads:
                yield from self._kill_points(state)
        yield from self._own_steps(state)

    def _kill_points(self, state: State) -> Iterator[tuple[Step, State]]:
        """The process ends between two writes of one check."""
        for index in (0, 1):
            before = None
            for writes in (1, 2):
                step = Step(f"the leader looks at {{}} and dies after {writes} writes", index)
                reached = self._try(state, step, partial(self._die, state, index, writes))
                if reached in (before, state):
                    break
                before = reached
                yield step, reached._replace(left=state.left - 1)

    def _die(self, state: State, index: int, writes: int) -> State:
        return without_leader(self.machine.look(state, index, dies_after=writes))

    def _own_steps(self, state: State) -> Iterator[tuple[Step, State]]:
        steps = self._now(state)
        lagging = any(bundle.lagging is not None for bundle in state.bundles)
        if not lagging and (not steps or not state.leads):
            step = Step(f"{TICK_S} s pass", None)
            steps.append((step, self._tick(state, step)))
        yield from steps
        # The future without others: the first step, time only when there is no other.
        first, reached = steps[0]
        self._futures[state] = (first, *canonical(reached))

    def _tick(self, state: State, step: Step) -> State:
        if state.leads:
            self._try(state, step, lambda: when_quiet(state))
        return time_passes(state, TICK_S, self.setting.policy.release.cancel_expiry_s)

    def _now(self, state: State) -> list[tuple[Step, State]]:
        """gpuward's own steps at this moment, and the watch that catches up."""
        steps: list[tuple[Step, State]] = []
        if not state.leads:
            known = self.setting.standby_reads
            steps.append(
                (Step("another replica takes over", None), taken_over(state, gangs_read=known))
            )
        for index, bundle in enumerate(state.bundles):
            if bundle.lagging is not None:
                step = Step("the watch of {} catches up", index)
                steps.append((step, synced(state, index)))
        if not state.leads:
            return steps
        for index, bundle in enumerate(state.bundles):
            if self.setting.gang and not bundle.memory.gangs_read:
                step = Step("the leader reads the gangs of {}", index)
                steps.append((step, state.with_memory(index, gangs_read=True)))
            if bundle.memory.in_flight:
                step = Step("the chosen eviction on {} is sent", index)
                reached = self._try(state, step, partial(self.machine.send_eviction, state, index))
                steps.append((step, reached))
        for index in (0, 1):
            step = Step("the leader looks at {}", index)
            reached = self._try(state, step, partial(self.machine.look, state, index))
            if reached != state:
                steps.append((step, reached))
        return steps

    def _try(self, state: State, step: Step, act: Callable[[], T]) -> T:
        try:
            return act()
        except Violation as violation:
            raise _FoundError(self._counterexample(state, step, violation)) from violation

    # ------------------------------------------------------------------ coming to rest

    def _comes_to_rest(self, state: State) -> None:
        """Follow the future to where it repeats itself; there, all is done or explained."""
        path: list[State] = []
        position: dict[State, int] = {}
        at = state
        while at not in self._restful and at not in position:
            position[at] = len(path)
            path.append(at)
            if at not in self._futures:
                list(self._own_steps(at))
            step, reached, turned = self._futures[at]
            # A bounded search follows futures beyond its bound: these states are visited as well.
            self._came.setdefault(reached, (at, step, turned))
            at = reached
        if at in position:
            for settled in path[position[at] :]:
                quiet = settled.leads and not self._now(settled)
                why = at_rest(settled) if quiet else ""
                if why:
                    violation = Violation("comes-to-rest", why)
                    step = Step("nobody does anything any more", None)
                    raise _FoundError(self._counterexample(state, step, violation))
        self._restful.update(path)

    # ------------------------------------------------------------------ how it came to this

    def _counterexample(self, state: State, last: Step, violation: Violation) -> Counterexample:
        steps: list[tuple[Step, bool]] = [(last, False)]
        at: State | None = state
        while at is not None and (came := self._came.get(at)) is not None:
            at, step, turned = came
            steps.append((step, turned))
        events: list[str] = []
        mirrored = False
        for step, turned in reversed(steps):
            index = step.index
            if index is not None:
                index = 1 - index if mirrored else index
            events.append(step.label.format("" if index is None else NODES[index]))
            mirrored ^= turned
        return Counterexample(violation.invariant, str(violation), tuple(events))


class _FoundError(Exception):
    def __init__(self, counterexample: Counterexample) -> None:
        super().__init__(str(counterexample))
        self.counterexample = counterexample


def play(exploration: Exploration, labels: Sequence[str]) -> State:
    """The state after these events, in this order, from the beginning."""
    state = exploration.start
    for label in labels:
        named = {
            step.label.format("" if step.index is None else NODES[step.index]): reached
            for step, reached in exploration.after(state)
        }
        assert label in named, f"{label!r} cannot happen; what can: {sorted(named)}"
        state = named[label]
    return state


EVERYBODY = frozenset({*PER_NODE, *FOR_ALL})


def policy_of(at_most: int, **more: Any) -> Policy:
    loaded = load_policy(
        {
            "mode": "Enforce",
            "budget": {
                "maxUnavailable": {"percent": 50 * at_most, "atMost": at_most},
                "maxNew": {"count": 3, "window": "1m"},
                "perReason": {"count": 6, "window": "2m"},
                "cooldown": "1m",
            },
            "release": {
                "healthyFor": "30s",
                "cancelExpiry": "200s",
                "replaceAfter": 3,
            },
            "drain": {"settle": "5s", "gangWindow": "30s", "fatalTimeout": "2m"},
            **more,
        }
    )
    assert isinstance(loaded, Policy), loaded
    return loaded


def setting_of(*, gang: bool = False, at_most: int = 1, **more: Any) -> Setting:
    return Setting(
        policy=policy_of(at_most),
        skipping=policy_of(at_most, pods=[{"strategy": "Skip"}]),
        gang=gang,
        **more,
    )


def start_of(acts: int, *, faults: tuple[int, ...] = (1, 1), pdb_minimum: int = 1) -> State:
    """Two healthy or faulty nodes with one pod each; ``acts`` foreign acts may follow."""
    node = NodeState(annotations=(PRIOR_ANNOTATION,))
    first, second = (
        Bundle(node=node, health=HealthState(active=(0,) if fault else ())) for fault in faults
    )
    pods = (PodState(node=0), PodState(node=1))
    return State(bundles=(first, second), pods=pods, pdb_minimum=pdb_minimum, left=acts)


def exploration(
    actors: frozenset[str],
    acts: int,
    *,
    most_states: int = 1_000_000,
    faults: tuple[int, ...] = (1, 1),
    pdb_minimum: int = 1,
    **setting: Any,
) -> Exploration:
    return Exploration(
        setting=setting_of(**setting),
        actors=actors,
        start=start_of(acts, faults=faults, pdb_minimum=pdb_minimum),
        most_states=most_states,
    )


FOREIGN = frozenset(
    {
        "reboot",
        "driver manager",
        "karpenter",
        "node deleted",
        "namesake",
        "autoscaler",
        "kured",
        "operator uncordons",
        "leader",
    }
)
"""Controllers of others, and the operator whose doing theirs could be taken for."""
PEOPLE = frozenset({name for name in EVERYBODY if name.startswith(("operator", "tenant"))}) | {
    "faults",
    "pause",
    "operator",
    "leader",
}
