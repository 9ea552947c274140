"""Nodes that leave the policy's selection, our label, or both: no quarantine is forgotten for
that, and no drain goes on.

Two watches show nodes: those that the policy selects, and quarantined ones. What is in
neither is shown by nobody, and has to be asked for.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from rules.api import writes as d
from rules.api.names import LABEL_QUARANTINE, TAINT_QUARANTINE
from rules.session.observation import is_open, selects_node
from tests.support.scenario.fleets import NODE, evictions_after
from tests.support.scenario.session_world import ROOMY, World, policy_of


def leave(world: World) -> None:
    world.label(NODE, pool=None, spare="yes")


def unlabel(world: World) -> None:
    """Somebody sets the node's labels again, ours are gone."""
    world.nodes[NODE]["metadata"]["labels"].pop(LABEL_QUARANTINE, None)
    world.touch(world.nodes[NODE])


def unlabel_and_leave(world: World) -> None:
    world.nodes[NODE]["metadata"]["labels"].pop(LABEL_QUARANTINE, None)
    leave(world)


def deselect(world: World) -> None:
    """The policy is about others now."""
    world.policy = policy_of(budget=ROOMY, nodeSelector="pool=elsewhere")


def recreate(world: World) -> None:
    """Another machine of the same name, outside the pool."""
    world.add_node(NODE)


@contextmanager
def watches_forgotten(world: World) -> Iterator[None]:
    """The server forgot the version of every watch (410), and what happens meanwhile no watch
    shows.
    """
    world.run(2)
    world.expire_watches()
    yield
    world.run(2)


POOL = "pool=gpu"
SEVERAL = "pool=gpu,pool"
"""Two requirements, of which no selector is the opposite."""
SELECTORS = [POOL, SEVERAL, "pool in (gpu,other)", "!spare"]


def selected_world(selector: str = POOL) -> World:
    world = World(policy_of(budget=ROOMY, nodeSelector=selector))
    world.add_nodes(5, pool="gpu")
    return world


def draining(selector: str = POOL) -> World:
    """A drain in the middle: some pods are gone, more would go."""
    world = selected_world(selector)
    for number in range(6):
        world.add_pod(f"slow-{number}", NODE, grace=600)
    world.add_pdb("one", maxUnavailable=1)
    world.fail_until(NODE, "Draining")
    world.run(5)
    return world


def quarantined(selector: str = POOL) -> World:
    world = selected_world(selector)
    world.fail_until(NODE, "Quarantined")
    return world


OUT = [leave, unlabel_and_leave, deselect]


@pytest.mark.parametrize("selector", SELECTORS)
@pytest.mark.parametrize("out", OUT)
def test_a_drain_stops_and_goes_on_with_the_selection(
    out: Callable[[World], None], selector: str
) -> None:
    world = draining(selector)
    before = world.now
    evicted = len(world.writes(d.EvictPod))
    assert evicted
    out(world)
    world.pods = {key: pod for key, pod in world.pods.items() if "slow-0" not in key}
    world.run(700, step=5)
    assert evictions_after(world, before + 1) == 0
    assert world.condition(NODE, "Paused") == "NotSelected"
    assert world.is_quarantined(NODE)
    world.label(NODE, pool="gpu", spare=None)
    world.policy = policy_of(budget=ROOMY, nodeSelector=selector)
    world.pods.clear()
    world.run_until(NODE, "Quarantined", limit=200)


@pytest.mark.parametrize("selector", SELECTORS)
@pytest.mark.parametrize("out", OUT)
@pytest.mark.parametrize("restarts", [False, True])
def test_its_taint_is_removed_when_its_causes_close(
    out: Callable[[World], None], selector: str, restarts: bool
) -> None:
    world = quarantined(selector)
    out(world)
    world.run(30, step=5)
    if restarts:
        world.restart()
    world.heal_until_released(NODE, limit=900, step=10)
    world.run(5)
    assert not world.is_quarantined(NODE)
    assert not world.unschedulable(NODE)


@pytest.mark.parametrize("refused", [False, True], ids=["", "our-label-is-refused"])
@pytest.mark.parametrize("out", OUT)
@pytest.mark.parametrize(
    "undo",
    [
        lambda world: world.cordon(NODE, on=False),
        lambda world: world.untaint(NODE, TAINT_QUARANTINE),
    ],
    ids=["uncordoned", "untainted"],
)
def test_operator_requests_work_outside_the_selector(
    out: Callable[[World], None], undo: Callable[[World], None], refused: bool
) -> None:
    world = quarantined()
    if refused:
        world.refusing[d.RelabelNode] = (403, "nobody sets that label")
    out(world)
    world.run(30, step=5)
    undo(world)
    world.run(90, step=5)
    assert world.phase(NODE) == "Cancelled"
    assert not world.is_quarantined(NODE)


@pytest.mark.parametrize("out", OUT)
def test_a_namesake_inherits_nothing(out: Callable[[World], None]) -> None:
    world = quarantined()
    out(world)
    world.run(30, step=5)
    recreate(world)
    world.run(90, step=5)
    assert world.phase(NODE) == "NodeGone"
    assert not world.is_quarantined(NODE)


@pytest.mark.parametrize("selector", SELECTORS)
@pytest.mark.parametrize("out", [*OUT, recreate])
def test_restarted_watches_hide_nothing(out: Callable[[World], None], selector: str) -> None:
    world = draining(selector)
    before = world.now
    with watches_forgotten(world):
        out(world)
    world.run(120, step=5)
    assert evictions_after(world, before + 3) == 0
    assert world.phase(NODE) == ("NodeGone" if out is recreate else "Draining")
    assert world.is_quarantined(NODE) == (out is not recreate)
    with watches_forgotten(world):
        world.close_all(NODE)
    world.run(900, step=10)
    assert not world.is_quarantined(NODE)
    assert world.phase(NODE) in {"Released", "NodeGone"}


def test_a_taint_without_its_label_is_still_removed() -> None:
    world = quarantined()
    world.refusing[d.RemoveTaint] = (403, "nobody uncordons")
    leave(world)
    world.run(5)
    name = world.session(NODE).name
    world.quarantines[name]["spec"]["release"] = {"by": "ada"}
    world.run(10)
    assert world.is_quarantined(NODE)
    del world.quarantines[name]
    world.run(5)
    unlabel(world)
    world.run(5)
    world.refusing.clear()
    world.run(900, step=10)
    assert not world.is_quarantined(NODE)


def test_an_unreadable_node_is_checked_when_it_is_deleted() -> None:
    world = quarantined()
    leave(world)
    world.run(5)
    status = world.nodes[NODE]["status"]
    info, status["nodeInfo"] = status["nodeInfo"], 7
    world.touch(world.nodes[NODE])
    world.run(5)
    world.quarantines.clear()
    world.close_all(NODE)
    world.run(90, step=5)
    assert world.unschedulable(NODE), "nothing is done to what is not understood"
    status["nodeInfo"] = info
    unlabel(world)
    world.run(90, step=5)
    assert not world.is_quarantined(NODE)


class TestAManualSessionOutsideTheSelector:
    """Nobody watches such a node before it is quarantined."""

    def waiting(self, **labels: str) -> World:
        world = selected_world()
        world.add_node("aside", labels=labels)
        world.open_by_operator("aside")
        world.run(5)
        return world

    def test_what_held_it_up_is_over(self) -> None:
        world = self.waiting(**{"gpuward.io/opt-out": "true"})
        assert world.condition("aside", "Paused") == "OptOut"
        del world.nodes["aside"]["metadata"]["labels"]["gpuward.io/opt-out"]
        world.touch(world.nodes["aside"])
        world.run(90, step=5)
        assert world.is_quarantined("aside")

    def test_it_was_deleted(self) -> None:
        world = self.waiting(**{"gpuward.io/opt-out": "true"})
        del world.nodes["aside"]
        world.run(90, step=5)
        assert world.phase("aside") == "NodeGone"

    def test_another_machine_has_its_name(self) -> None:
        world = self.waiting(**{"gpuward.io/opt-out": "true"})
        world.add_node("aside")
        world.run(90, step=5)
        assert not world.is_quarantined("aside")
        assert world.phase("aside") == "NodeGone"


ACTS = 25
PLAYED = ("pool=gpu", "pool=gpu,pool", "pool in (gpu,other)")


def play(seed: int) -> None:
    dice = random.Random(seed)
    selector = dice.choice(PLAYED)
    world = World(policy_of(budget=ROOMY, nodeSelector=selector))
    world.add_nodes(5, pool="gpu")
    world.add_pdb("one", maxUnavailable=1)

    def falls_ill() -> None:
        for number in range(3):
            world.add_pod(f"slow-{world.version}-{number}", NODE, grace=120)
        world.incident(NODE)

    def comes_back() -> None:
        world.label(NODE, pool="gpu", spare=None)
        world.policy = policy_of(budget=ROOMY, nodeSelector=selector)

    def operator_uncordons() -> None:
        if world.is_quarantined(NODE):
            world.cordon(NODE, on=False)

    def operator_untaints() -> None:
        if world.is_quarantined(NODE):
            world.untaint(NODE, TAINT_QUARANTINE)

    def operator_deletes() -> None:
        if any(map(is_open, world.sessions(NODE))):
            del world.quarantines[world.session(NODE).name]

    here = (leave, unlabel, unlabel_and_leave, deselect)
    mine = (falls_ill, comes_back, operator_uncordons, operator_untaints, operator_deletes)
    acts: list[Callable[[], object]] = [*mine, *(lambda act=act: act(world) for act in here)]
    acts += [falls_ill, comes_back, lambda: world.close_all(NODE), lambda: world.restart()]
    acts.append(lambda: recreate(world) if dice.random() < 0.3 else None)
    names: list[int] = []
    for _ in range(ACTS):
        act = dice.randrange(len(acts))
        names.append(act)
        if dice.random() < 0.3:
            with watches_forgotten(world):
                acts[act]()
        else:
            acts[act]()
        world.run(3)
        before = len(world.writes(d.EvictPod))
        world.run(30, step=10)
        if not selects_node(world.policy, world.node(NODE)):
            assert len(world.writes(d.EvictPod)) == before, (seed, names)
    world.close_all(NODE)
    world.run(1500, step=30)
    assert not world.is_quarantined(NODE), (seed, names)
    assert not world.unschedulable(NODE), (seed, names)
    assert not any(map(is_open, world.sessions(NODE))), (seed, names, world.message(NODE))


@pytest.mark.parametrize(
    "seed",
    [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 60))],
)
def test_every_taint_is_removed_in_the_end(seed: int) -> None:
    play(seed)
