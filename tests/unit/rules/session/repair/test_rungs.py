"""The ladder as people are shown it: what was tried, what is next, what comes after."""

from rules.policy.policy import Policy
from rules.session.causes import cause_context, open_causes
from rules.session.repair.ladder import LadderRung, rungs
from tests.support.scenario.repair_world import NODE, ROOMY, STEPS, RepairWorld, repair_policy
from tests.support.scenario.session_world import policy_of


def shown(world: RepairWorld, policy: Policy | None = None) -> tuple[LadderRung, ...]:
    snapshot = world.snapshot()
    session = world.session(NODE)
    causes = open_causes(session, cause_context(world.node(NODE), snapshot)) or session.spec.causes
    health = snapshot.healths[NODE]
    return rungs(session, (), causes, health, policy or world.policy, world.now)


def states(found: tuple[LadderRung, ...]) -> list[tuple[str, str]]:
    return [(rung.step, rung.state) for rung in found]


def test_the_ladder_while_it_is_climbed() -> None:
    world = RepairWorld(does="reboots", mode="Ask")
    world.incident(NODE)
    world.run(60, step=5)
    assert states(shown(world)) == [
        ("RestartNode", "Next"), ("PowerCycle", "Passed"), ("ReplaceNode", "Later"),
    ]  # fmt: skip
    assert shown(world)[1].clause == "PowerCycle skipped: has no adapter"
    world.policy = repair_policy()
    world.run(2400, step=5)
    found = shown(world)
    assert states(found)[0] == ("RestartNode", "Proven")
    assert "new boot" in found[0].clause
    world.run(4 * 3600, step=10)
    assert states(shown(world)) == [
        ("RestartNode", "Proven"), ("PowerCycle", "Passed"), ("ReplaceNode", "Failed"),
    ]  # fmt: skip


def test_off_shows_only_what_was_tried() -> None:
    world = RepairWorld(does="hangs")
    world.incident(NODE)
    world.run(120, step=5)
    assert states(shown(world, policy_of())) == [("RestartNode", "Asked")]
    fresh = RepairWorld()
    fresh.policy = policy_of()
    fresh.incident(NODE)
    fresh.run(60, step=5)
    assert shown(fresh) == ()


def test_a_level_that_leaves_the_pods_has_no_next_step() -> None:
    world = RepairWorld(mode="Ask")
    world.incident(NODE)
    world.run(60, step=5)
    assert shown(world)
    reason = world.session(NODE).spec.causes[0].reason
    gentler = policy_of(
        budget=ROOMY, repair={"mode": "Ask", "steps": STEPS}, reasons={reason: {"level": "Cordon"}}
    )
    assert shown(world, gentler) == ()


def test_walk_once_the_causes_are_closed_nothing_is_next() -> None:
    world = RepairWorld()
    world.fail_until(NODE, "Validating", limit=1800)
    assert states(shown(world)) == [("RestartNode", "Proven")]
