"""Whatever happens to nodes under repair, in any order: no step too many, none while forbidden.

Asking, outcomes of every kind, lies, tests under load, people, restarts and crashes are acts; what
must never be is asked of each write before it lands.
"""

import random
from collections import Counter
from collections.abc import Callable

import pytest

from rules.api import writes as d
from rules.api.nodes import QuarantineView
from rules.api.quarantine import Phase, RepairState
from rules.api.repair_writes import SetRepairCondition, WriteRepairObject
from rules.session.repair.ladder import under_way
from tests.support.scenario.repair_world import (
    HAPPENS,
    OUTCOMES,
    STEPS,
    RepairWorld,
    ValidationWorld,
)
from tests.support.scenario.session_world import CrashError

ACTS = 16
FEW, MANY = 3, 24
"""Walks of an ordinary run, and of one that takes its time."""
ATTEMPTS, CONCURRENT, DAY_S = 2, 2, 86_400.0
WINDOW_S = 7 * DAY_S
DOES = ("heals", "reboots", "hangs", "lies")
Act = Callable[[], object]
SEEDS = [
    *range(FEW),
    *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(FEW, MANY)),
]


class Forbidden:
    """What must not be of any request for a repair, and of any release."""

    def __init__(self, world: RepairWorld) -> None:
        self._world = world
        self.asked: list[tuple[float, str, str, str]] = []
        """When, node, session and step of every request that was sent."""

    def look(self, write: d.Write) -> None:
        """Before the write lands."""
        asks = isinstance(write, SetRepairCondition | WriteRepairObject) and write.asks
        if isinstance(write, SetRepairCondition | WriteRepairObject) and asks:
            self._stands_against(write.node)
            self._is_too_many(write.node, write.session, write.step)
        if isinstance(write, d.WriteSessionStatus) and write.status.phase == Phase.RELEASED:
            self._is_proven(write)

    def _stands_against(self, node: str) -> None:
        world, found = self._world, self._world.nodes[node]
        assert not world.pauses, "asked while paused"
        assert "gpuward.io/hold" not in found["metadata"]["annotations"], "asked while held"
        assert found["metadata"]["labels"].get("gpuward.io/opt-out") != "true", "opted out"
        assert found["spec"].get("unschedulable"), "asked for a node that an operator uncordoned"
        assert not world.session(node).spec.hold, "asked while held"

    def _is_too_many(self, node: str, session: str, step: str) -> None:
        world = self._world
        again = [each for each in self.asked if each[2:] == (session, step)]
        assert again == [], f"{step} asked for twice in {session}"
        mine = [at for at, n, _, s in self.asked if (n, s) == (node, step)]
        lately = [at for at in mine if world.now - at <= WINDOW_S]
        assert len(lately) < ATTEMPTS, f"{step} asked for more than {ATTEMPTS} times on {node}"
        others = self._under_repair() - {node}
        assert len(others) < CONCURRENT, f"{sorted(others)} are under repair, and {node}"
        self.asked.append((world.now, node, session, step))

    def _under_repair(self) -> set[str]:
        found = set()
        for name in self._world.quarantines:
            session = _view(self._world, name)
            attempt = under_way(session.status)
            ended = session.status.phase and Phase(session.status.phase).ended
            if attempt is not None and attempt.state == RepairState.ASKED and not ended:
                found.add(session.spec.node_name)
        return found

    def _is_proven(self, write: d.WriteSessionStatus) -> None:
        by_operator = _view(self._world, write.name).spec.release is not None
        for attempt in write.status.repair:
            assert attempt.state not in {"Planned", "Held", "Asked"}, attempt
            if attempt.state == "Proven" and attempt.step in {"RestartNode", "PowerCycle"}:
                boot = self._world.node(write.node).boot_id
                assert boot != attempt.before.boot_id or by_operator, "a boot that never was"


def _view(world: RepairWorld, name: str) -> QuarantineView:
    node = world.quarantines[name]["spec"]["nodeName"]
    return next(s for s in world.sessions(node) if s.name == name)


def lived(world: RepairWorld, seconds: float) -> None:
    """Time passes; a leader that dies at a write is followed by another."""
    end = world.now + seconds
    while world.now < end:
        try:
            world.run(end - world.now, step=15)
        except CrashError:
            world.crash_after = None
            world.restart()


class Walk(ValidationWorld):
    """Four nodes, a provider of changing virtue, and tests that may end in any way."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        becomes = [self.chance.choice(sorted({*OUTCOMES, *HAPPENS})) for _ in range(20)]
        ladder = {"mode": "Auto", "steps": STEPS, "attempts": ATTEMPTS, "concurrent": CONCURRENT}
        super().__init__(*becomes, "passes", nodes=4, timeout="10m", repair=ladder)
        self.forbidden = Forbidden(self)
        self.meddler = self.forbidden.look
        self.acts: list[Act] = [
            lambda: self.incident(self.some_node()),
            lambda: self.incident(self.some_node()),
            lambda: self.close_all(self.some_node()),
            lambda: self.reboot(self.some_node()),
            self.pause,
            self.pauses.clear,
            lambda: self.annotate(self.some_node(), "gpuward.io/hold", "x"),
            self.nobody_holds,
            self.opts_out,
            lambda: self.cordon(self.some_node(), on=False),
            lambda: self.silence(self.some_node()),
            self.all_speak,
            self.restart,
            self.change_leader,
            self.crashes,
            self.provider_changes,
            self.provider_changes,
            self.operator_releases,
            self.session_deleted,
        ]

    def some_node(self) -> str:
        return self.chance.choice(sorted(self.nodes))

    def nobody_holds(self) -> None:
        for node in self.nodes:
            self.annotate(node, "gpuward.io/hold", None)
            self.nodes[node]["metadata"]["labels"].pop("gpuward.io/opt-out", None)

    def opts_out(self) -> None:
        node = self.nodes[self.some_node()]
        node["metadata"]["labels"]["gpuward.io/opt-out"] = "true"
        self.touch(node)

    def all_speak(self) -> None:
        for node in self.nodes:
            self.speak(node)

    def crashes(self) -> None:
        self.crash_after = self.chance.randrange(8)

    def provider_changes(self) -> None:
        self.does = self.chance.choice(DOES)

    def operator_releases(self) -> None:
        for session in self.quarantines.values():
            if self.chance.random() < 0.3:
                session["spec"]["release"] = {"by": "ada", "reason": "mine"}
                self.touch(session)

    def session_deleted(self) -> None:
        for name in sorted(self.quarantines)[:1]:
            if self.chance.random() < 0.5:
                del self.quarantines[name]


@pytest.mark.parametrize("seed", SEEDS)
def test_no_walk_asks_for_a_step_too_many_or_while_forbidden(seed: int) -> None:
    world = Walk(seed)
    for node in sorted(world.nodes):
        world.incident(node)
    lived(world, 60)
    for _ in range(ACTS):
        world.chance.choice(world.acts)()
        lived(world, world.chance.choice([5, 60, 600, 2400]))
    asked = Counter((node, step) for _, node, _, step in world.forbidden.asked)
    assert max(asked.values(), default=0) <= ATTEMPTS
