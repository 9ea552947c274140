"""`plan` matches what the remediator does next: states with holds, people, budgets,
mode and breaker, each in a world with a real replica that goes on after the plan was made.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest

from rules.api import writes as d
from rules.api.quarantine import Phase
from rules.api.timestamps import format_time
from tests.support.scenario.asked_world import planned
from tests.support.scenario.repair_world import RepairWorld
from tests.support.scenario.session_world import ROOMY, World, policy_of

GOES_ON_S: Final = 15.0
"""How long the replica goes on after the plan; nothing else happens meanwhile."""
LULL: Final = {"lull": "yes"}
Act = Callable[[World, str], Any]


def _nothing(world: World, name: str) -> None: ...


def fault(world: World, name: str) -> None:
    world.incident(name)


def mild(world: World, name: str) -> None:
    world.incident(name, "RowRemapFailure", severity="Degraded", level="Cordon")


def reported(world: World, name: str) -> None:
    world.incident(name, "XidUnknown", severity="Degraded", level="Report")


def well(world: World, name: str) -> None:
    world.close_all(name)


def silent(world: World, name: str) -> None:
    world.set_ready(name, "Unknown")


def heard(world: World, name: str) -> None:
    world.set_ready(name, "True")


def opted_out(world: World, name: str) -> None:
    world.label(name, **{"gpuward.io/opt-out": "true"})


def opted_in(world: World, name: str) -> None:
    world.label(name, **{"gpuward.io/opt-out": None})


def lull(world: World, name: str) -> None:
    world.label(name, **LULL)


def lull_over(world: World, name: str) -> None:
    world.label(name, lull=None)


def held(world: World, name: str) -> None:
    world.annotate(name, "gpuward.io/hold", "mine")


def kured(world: World, name: str) -> None:
    world.annotate(name, "weave.works/kured-reboot-in-progress", "now")


def leased(world: World, name: str) -> None:
    spec = {
        "holderIdentity": "nmo", "leaseDurationSeconds": 3600, "renewTime": format_time(world.now),
    }  # fmt: skip
    world.leases[name] = {"metadata": {"name": name}, "spec": spec}


def by_operator(world: World, name: str) -> None:
    world.open_by_operator(name, f"{name}-by-hand")


def unselected(world: World, name: str) -> None:
    world.label(name, pool="other")


def gone(world: World, name: str) -> None:
    del world.nodes[name]


def cordoned(world: World, name: str) -> None:
    world.cordon(name)


def mute(world: World, name: str) -> None:
    """Its agent stopped long ago, as far as one can see."""
    world.silence(name)
    world.beat(world.healths[name], world.now - 3600)


def uncordoned(world: World, name: str) -> None:
    world.cordon(name, on=False)


def released(world: World, name: str) -> None:
    for session in world.quarantines.values():
        if session["spec"]["nodeName"] == name:
            session["spec"]["release"] = {"by": "ann", "reason": "mine"}
            world.touch(session)


def both(*acts: Act) -> Act:
    def act(world: World, name: str) -> None:
        for one in acts:
            one(world, name)

    return act


@dataclass(frozen=True)
class Row:
    """One node: what happened to it, time in which the replica worked, and what is so now."""

    before: Act
    at: Act = _nothing
    pods: str = "stays"
    """`stays`: it takes an hour to end; `none`."""


STATES: dict[str, Row] = {
    # Nobody has checked it yet.
    "new": Row(_nothing, fault),
    "new mild": Row(_nothing, mild),
    "new reported": Row(_nothing, reported),
    "new by hand": Row(_nothing, by_operator),
    "new and opted out": Row(opted_out, fault),
    "new and paused": Row(lull, fault),
    "new and silent": Row(silent, fault),
    "new and kured": Row(kured, fault),
    "new and leased": Row(leased, fault),
    "new and not selected": Row(unselected, fault),
    "new by hand, not selected": Row(unselected, by_operator),
    "new, cordoned by hand": Row(cordoned, fault),
    "new, its agent silent": Row(_nothing, both(fault, mute)),
    # Pending, because something kept it there.
    "pending, paused": Row(both(lull, fault)),
    "pending, no longer paused": Row(both(lull, fault), lull_over),
    "pending, well again": Row(both(lull, fault), well),
    "pending, returned to service": Row(both(lull, fault), released),
    "pending by hand, opted out": Row(both(opted_out, by_operator)),
    "pending by hand, opted in": Row(both(opted_out, by_operator), opted_in),
    "pending, leased": Row(both(leased, fault)),
    "pending, gone": Row(both(lull, fault), gone),
    # Tainted and not drained.
    "quarantined, silent": Row(both(silent, fault)),
    "quarantined, heard again": Row(both(silent, fault), heard),
    "quarantined, well again": Row(both(silent, fault), well),
    "quarantined mild": Row(mild),
    "quarantined mild, now Fatal": Row(mild, fault),
    "quarantined mild, opted out": Row(mild, opted_out),
    "quarantined mild, uncordoned": Row(mild, uncordoned),
    "quarantined mild, held": Row(mild, held),
    "quarantined mild, well again": Row(mild, well),
    "quarantined mild, silent agent": Row(mild, mute),
    "quarantined mild, returned to service": Row(mild, released),
    # Draining.
    "draining": Row(fault),
    "draining, paused": Row(fault, lull),
    "draining, opted out": Row(fault, opted_out),
    "draining, kured": Row(fault, kured),
    "draining, leased": Row(fault, leased),
    "draining, silent": Row(fault, silent),
    "draining, well again": Row(fault, well),
    "draining, returned to service": Row(fault, released),
    "draining, gone": Row(fault, gone),
    "draining, uncordoned": Row(fault, uncordoned),
    # Drained.
    "quarantined": Row(fault, pods="none"),
    "quarantined, paused": Row(fault, lull, pods="none"),
    "quarantined, held": Row(fault, held, pods="none"),
    "tainted, well again": Row(fault, well, pods="none"),
    "quarantined, returned to service": Row(fault, released, pods="none"),
    "validating": Row(both(fault), both(well), pods="none"),
}


def world_of(mode: str, **budget: Any) -> World:
    """Every state on a node of its own, and some nodes that are well."""
    world = World(_policy(mode, **budget))
    for number, row in enumerate(STATES.values()):
        name = f"n{number:02}"
        world.add_node(name, labels={"pool": "ours"})
        if row.pods == "stays":
            world.add_pod(f"p-{name}", name, gpus=8, grace=3600)
    world.add_nodes(8, pool="ours")
    world.pause("lull", nodeSelector={"matchLabels": LULL})
    return world


def _policy(mode: str, draining: int = 100, **budget: Any) -> Any:
    limits = {"nodesDraining": draining}
    budget = {**ROOMY, **budget}
    return policy_of(mode=mode, nodeSelector="pool=ours", budget=budget, limits=limits)


def _each() -> Iterator[tuple[str, str, Row]]:
    for number, (case, row) in enumerate(STATES.items()):
        yield f"n{number:02}", case, row


def what_happens(world: World) -> dict[str, str]:
    """Run the replica, and return for each node what it did, in the terms of the plan."""
    before = {name: world.phase(name) for name in world.nodes}
    sessions = {name: world.sessions(name) for name, _, _ in _each()}
    sent = len(world.sent)
    world.run(GOES_ON_S)
    writes = [write for _, write, _, code in world.sent[sent:] if code < 300 or code == 429]
    return {
        name: _did(world, name, writes, before.get(name, ""), len(sessions[name]))
        for name, _, _ in _each()
    }


def _did(world: World, name: str, writes: list[d.Write], before: str, sessions: int) -> str:
    mine = [write for write in writes if getattr(write, "node", "") == name]
    quarantined = any(isinstance(write, d.TaintAndCordon) for write in mine)
    evicts = any(isinstance(write, d.EvictPod) and not write.dry_run for write in mine)
    if not world.sessions(name):
        return "nothing"
    session = world.session(name)
    if session.status.mode == "Shadow":
        return "nothing"
    phase = session.status.phase or "Pending"
    if Phase(phase).ended:
        if before == phase and len(world.sessions(name)) == sessions:
            return "nothing"
        return "release" if phase == Phase.RELEASED else f"end, {phase}"
    if phase == Phase.PENDING:
        return "wait"
    drains = session.spec.level == "Drain"
    halted = any(world.condition(name, kind) for kind in ("Paused", "NodeUnreachable"))
    if drains and (evicts or (phase == Phase.DRAINING and not halted)):
        return "drain"
    if phase in {Phase.MARKED, Phase.DRAINING} and drains:
        return "cordon and taint, wait, then drain" if quarantined else "wait, then drain"
    if quarantined:
        return "cordon and taint"
    return f"stay {phase}" if phase == before else f"go on to {phase}"


def line_of(plan: dict[str, dict[str, Any]], name: str) -> str:
    found = plan.get(name, {"would": "nothing", "then": ""})
    return ", then ".join(filter(None, (found["would"], found["then"])))


def compared(plan: dict[str, dict[str, Any]], happened: dict[str, str]) -> dict[str, Any]:
    """Where they differ, by the state of the node."""
    return {
        case: (line_of(plan, name), happened[name])
        for name, case, _ in _each()
        if line_of(plan, name) != happened[name]
    }


BUDGETS: dict[str, dict[str, Any]] = {
    "room": {},
    "full": {"maxUnavailable": {"percent": 100, "atMost": 1}},
    "some": {"maxUnavailable": {"percent": 100, "atMost": 27}},
    "one drain": {"draining": 1},
    "tripped": {"maxNew": {"count": 3, "window": "10m"}, "cooldown": "30m"},
}


@pytest.fixture(scope="module")
def reached() -> World:
    """Every state reached under Enforce, with room for all."""
    world = world_of("Enforce")
    for name, _, row in _each():
        row.before(world, name)
    world.run(60)
    return world


def settled(reached: World, mode: str, budget: str) -> World:
    """The same at a new leader, under a policy that has just become this one."""
    world = reached.fork()
    world.policy = _policy(mode, **BUDGETS[budget])
    world.run(5)
    # The order of requests within one second is not defined.
    for people in (True, False):
        for name, _, row in _each():
            if (row.at is by_operator) is people:
                row.at(world, name)
        world.now += 2 * people
    world.sync_pdbs()
    return world


@pytest.mark.parametrize("budget", BUDGETS)
def test_plan_matches_the_remediator_in_enforce(reached: World, budget: str) -> None:
    world = settled(reached, "Enforce", budget)
    plan = planned(world)
    assert compared(plan, what_happens(world)) == {}
    assert {name: one["blockedBy"] for name, one in plan.items() if waits(one)} == {
        name: why_it_waits(world, name) for name, one in plan.items() if waits(one)
    }


@pytest.mark.parametrize("budget", BUDGETS)
def test_plan_matches_shadow_and_what_enforce_would_do(reached: World, budget: str) -> None:
    world = settled(reached, "Shadow", budget)
    plan = planned(world)
    fork = world.fork()
    what_happens(world)
    disruption = (d.TaintAndCordon, d.EvictPod, d.DeletePod)
    since = [
        write for at, write, _, _ in world.sent if at > fork.now and isinstance(write, disruption)
    ]
    assert [write for write in since if not getattr(write, "dry_run", False)] == []
    fork.policy = _policy("Enforce", **BUDGETS[budget])
    assert compared(plan, what_happens(fork)) == {}


def waits(one: dict[str, Any]) -> bool:
    return "wait" in one["would"]


def why_it_waits(world: World, name: str) -> str:
    return world.condition(name, "Blocked")


@pytest.mark.parametrize("faults", [2, 3, 9])
@pytest.mark.parametrize(("mode", "since_s"), [("Enforce", 0), ("Shadow", 0), ("Shadow", 120)])
def test_plan_foresees_that_faults_at_one_moment_open_the_breaker(
    mode: str, since_s: int, faults: int
) -> None:
    storm: dict[str, Any] = {
        "maxNew": {"count": 3, "window": "10m"},
        "perReason": {"count": 9, "window": "1h"},
    }
    world = World(_policy(mode, **storm))
    names = world.add_nodes(30, pool="ours")
    world.run(5)
    for name in names[:faults]:
        world.incident(name)
    world.run(since_s)
    plan = planned(world)
    world.policy = _policy("Enforce", **storm)
    world.run(GOES_ON_S)
    opens = "CorrelatedCause" if faults >= 3 else ""
    found = {name: (one["would"], one["blockedBy"]) for name, one in plan.items()}
    assert found == dict.fromkeys(names[:faults], ("wait" if opens else "drain", opens))
    quarantined = {name for name in names if world.is_quarantined(name)}
    assert quarantined == set(names[:faults] if not opens else ())


def test_plan_foresees_a_release_in_the_middle_of_a_repair() -> None:
    """The request is taken back first, and that is not all."""
    world = RepairWorld(5, does="hangs")
    world.incident("n0")
    world.run_until("n0", "Repairing")
    assert planned(world)["n0"]["would"] == "stay Repairing"
    released(world, "n0")
    assert planned(world)["n0"]["would"] == "release"
    world.run(GOES_ON_S)
    assert world.phase("n0") == "Released"
