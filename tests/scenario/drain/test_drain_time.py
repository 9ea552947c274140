"""The drain's time, its turns, what blocks it for a day, and force that is refused."""

from typing import Any

import pytest

from rules.api import writes as d
from rules.session.status import condition
from tests.support.scenario.fleets import NODE, drain_of, evicted, fleet
from tests.support.scenario.session_world import World


def test_a_session_writes_its_status_once_a_phase() -> None:
    world = fleet(drain={"settle": "1s"})
    for number in range(4):
        world.add_pod(f"web-{number}", NODE)
    world.fail_until(NODE, "Quarantined")
    world.heal_until_released(NODE)
    statuses = [write.status for write in world.writes(d.WriteSessionStatus)]
    phases = [status.phase for status in statuses]
    assert phases == ["Marked", "Draining", "Quarantined", "Validating", "Released"]
    drain = statuses[1].drain
    assert drain is not None
    assert len(drain.waiting.names) == 4, "listed before the first eviction"
    assert drain_of(world).evicted == 4


@pytest.mark.parametrize("absent", ["paused", "away"])
def test_s46_a_bound_is_not_used_up_while_nothing_could_be_evicted(absent: str) -> None:
    world = fleet()
    world.add_pod("held", NODE, annotations={"karpenter.sh/do-not-disrupt": "true"})
    world.incident(NODE)
    world.run(60)
    if absent == "paused":
        world.pause()
        world.run(1800, step=5)
        world.pauses.clear()
    else:
        world.sleep(1800)
    world.run(500, step=5)
    assert evicted(world) == []
    world.run(60, step=5)
    assert evicted(world) == ["held"]


def test_s45_a_clock_step_fires_no_deadline() -> None:
    world = fleet(drain={"fatalTimeout": "30m", "onTimeout": "Force"})
    world.add_pod("kept", NODE)
    world.add_pdb("keep", minAvailable=1)
    world.incident(NODE)
    world.run(60)
    world.now += 3600
    world.run(60)
    assert not world.writes(d.DeletePod)
    assert world.condition(NODE, "NeedsHuman") != "DrainTimeout"


@pytest.mark.parametrize("restart", [False, True])
def test_s46_an_outage_gives_pods_their_time_back(restart: bool) -> None:
    world = fleet(drain={"fatalTimeout": "30m", "onTimeout": "Force"})
    world.add_pod("kept", NODE)
    world.add_pdb("keep", minAvailable=1)
    world.incident(NODE)
    world.run(600, step=5)
    world.sleep(7200)
    if restart:
        world.restart()
    world.run(1100, step=5)
    assert not world.writes(d.DeletePod)
    world.run(200, step=5)
    assert world.writes(d.DeletePod)
    drain = drain_of(world)
    assert abs(drain.suspended_seconds - 7200) <= 10


def test_a_long_grace_period_after_the_timeout_needs_no_operator() -> None:
    """The budget that kept it is gone, and its pod was evicted."""
    world = fleet(drain={"fatalTimeout": "5m"})
    world.add_pod("kept", NODE, grace=600)
    world.add_pdb("keep", minAvailable=1)
    world.incident(NODE)
    world.run(400, step=5)
    assert "The drain timeout has passed. PDB team-a/keep allows no disruption" in world.message(
        NODE
    )
    world.pdbs.clear()
    world.run(120, step=5)
    assert evicted(world) == ["kept"]
    assert world.phase(NODE) == "Draining"
    assert world.condition(NODE, "NeedsHuman") == ""
    assert world.condition(NODE, "Blocked") == ""
    assert "1/1 pods evicted, 1 of them still terminating (team-a/kept). " in world.message(NODE)
    over = "The drain timeout has passed. The pods that are left terminate by themselves."
    assert world.message(NODE).endswith(over)


class TestForceKeepsEveryPromise:
    """Deleted only after the later of the promised times, and after an eviction was refused."""

    def test_a_pod_with_a_longer_wait_of_its_own_is_not_deleted_before_it(self) -> None:
        world = fleet(
            drain={"fatalTimeout": "30m", "onTimeout": "Force"},
            pods=[{"selector": "app=web", "strategy": "WaitCompleted", "maxWait": "12h"}],
        )
        world.add_pod("long", NODE)
        world.add_pdb("keep", minAvailable=1)
        world.incident(NODE)
        world.run(11 * 3600, step=60)
        assert not world.writes(d.DeletePod, d.EvictPod)
        world.run(2 * 3600, step=30)
        first, *_ = world.writes(d.DeletePod, d.EvictPod)
        assert isinstance(first, d.EvictPod), "it is asked to go first"
        assert world.writes(d.DeletePod)

    def test_a_do_not_disrupt_that_is_honoured_longer_is_kept(self) -> None:
        world = fleet(drain={"fatalTimeout": "5m", "onTimeout": "Force"})
        world.add_pod("held", NODE, annotations={"karpenter.sh/do-not-disrupt": "true"})
        world.add_pdb("keep", minAvailable=1)
        world.incident(NODE)
        world.run(590, step=10)
        assert not world.writes(d.DeletePod)
        world.run(300, step=10)
        assert world.writes(d.DeletePod)

    def test_a_pod_that_may_end_by_itself_is_asked_before_it_is_deleted(self) -> None:
        world = fleet(
            drain={"fatalTimeout": "5m", "onTimeout": "Force"},
            pods=[{"selector": "app=web", "strategy": "WaitCompleted"}],
        )
        world.add_pod("job", NODE)
        world.incident(NODE)
        world.run(400, step=2)
        assert [type(w).__name__ for w in world.writes(d.DeletePod, d.EvictPod)] == ["EvictPod"]
        assert ("team-a", "job") not in world.pods, "the eviction was enough"


def recreated(world: World, node: str) -> None:
    """The workload's controller: what left comes back elsewhere, ready."""
    for name in {w.name for w in world.writes(d.EvictPod)}:
        gone = ("team-a", name) not in world.pods
        if gone and ("team-a", f"{name}-new") not in world.pods:
            world.add_pod(f"{name}-new", node)
    world.sync_pdbs()


@pytest.mark.parametrize(
    ("sick", "pdb"),
    [
        pytest.param({"phase": "Pending", "ready": False}, {}, id="pending"),
        pytest.param(
            {"ready": False}, {"unhealthyPodEvictionPolicy": "AlwaysAllow"}, id="always-allow"
        ),
        pytest.param({"ready": False}, {}, id="unready-in-a-healthy-budget"),
    ],
)
def test_a_pod_that_the_budget_ignores_goes_first_and_opens_it(
    sick: dict[str, Any], pdb: dict[str, Any]
) -> None:
    world = fleet()
    for index in range(3):
        world.add_pod(f"a{index}", NODE)
    world.add_pod("z-sick", NODE, **sick)
    world.add_pod("there", "n1")
    world.add_pdb("keep", minAvailable=4, **pdb)
    world.incident(NODE)
    for _ in range(300):
        world.run(1)
        recreated(world, "n2")
    assert world.phase(NODE) == "Quarantined"
    assert evicted(world)[0] == "z-sick"


def test_a_full_budget_is_asked_for_each_of_its_pods_in_turn() -> None:
    world = fleet()
    for index in range(4):
        world.add_pod(f"a{index}", NODE)
    world.add_pod("there", "n1", ready=False)
    world.add_pdb("keep", minAvailable=4)
    world.incident(NODE)
    world.run(60)
    assert set(evicted(world)) == {"a0", "a1", "a2", "a3"}
    assert len(evicted(world)) <= 10, "one question at a time, less and less often"
    drain = drain_of(world)
    assert drain.blocked[0].pods.names == ("team-a/a0", "team-a/a1", "team-a/a2")
    assert drain.blocked[0].pods.total == 4


def test_a_pod_that_a_webhook_keeps_does_not_delay_its_neighbours() -> None:
    world = fleet()
    for index in range(3):
        world.add_pod(f"a{index}", NODE)
    world.add_pdb("keep", minAvailable=0)
    refusal: tuple[int, dict[str, str], bytes] = (
        400,
        {},
        b'{"kind": "Status", "message": "not now"}',
    )
    world.eviction_answers = [refusal]
    world.incident(NODE)
    world.run(5)
    assert evicted(world)[:3] == ["a0", "a1", "a2"]


HOUR_S = 3600.0
FATAL_TIMEOUT_S = 1800.0
OVER = "The drain timeout has passed"


def blocked_world(limits: dict[str, Any]) -> World:
    """A fault on a node with one of two pods of a workload whose budget lets neither go."""
    world = fleet(5)
    world.add_pod("w-1", NODE)
    world.add_pod("w-2", "n1")
    world.add_pdb("keep", **limits)
    world.run(5)
    world.incident(NODE)
    return world


def state_of(world: World) -> tuple[str, str, bool, bool]:
    """Phase, what blocks, whether an operator must act, whether the drain timeout has passed."""
    status = world.session(NODE).status
    blocked, needs = condition(status, "Blocked"), condition(status, "NeedsHuman")
    return (
        status.phase,
        blocked.reason if blocked is not None and blocked.status == "True" else "",
        needs is not None and needs.status == "True",
        OVER in status.message,
    )


@pytest.mark.parametrize("limits", [{"minAvailable": 2}, {"maxUnavailable": 0}], ids=str)
def test_a_pdb_that_never_allows_is_reported_at_once_with_few_writes(
    limits: dict[str, int],
) -> None:
    world = blocked_world(limits)
    world.run(FATAL_TIMEOUT_S - 60, step=30)
    assert state_of(world) == ("Draining", "BudgetNeverAllows", True, False)
    world.run(120, step=30)
    assert state_of(world) == ("Draining", "BudgetNeverAllows", True, True)
    world.run(24 * HOUR_S, step=60)
    assert state_of(world) == ("Draining", "BudgetNeverAllows", True, True)
    assert "relax the PDB" in world.message(NODE)
    assert world.writes(d.EvictPod) == []
    reasons = [event.reason for event in world.writes(d.EmitEvent)]
    assert reasons == ["QuarantineMarked", "QuarantineNeedsHuman"]
    assert len(world.writes(d.WriteSessionStatus)) <= 6, "a day of waiting is no day of writing"

    del world.pdbs["team-a", "keep"]
    world.run_until(NODE, "Quarantined", limit=120)
    assert state_of(world) == ("Quarantined", "", False, False)
    assert len(world.writes(d.EvictPod)) == 1
    assert world.phases(NODE) == ["Marked", "Draining", "Quarantined"]


def test_a_pause_hides_no_work_of_an_operator() -> None:
    world = blocked_world({"minAvailable": 2})
    world.run(60, step=5)
    needed = condition(world.session(NODE).status, "NeedsHuman")
    assert needed is not None
    world.pause()
    world.run(600, step=10)
    assert state_of(world) == ("Draining", "Paused", True, False)
    assert condition(world.session(NODE).status, "NeedsHuman") == needed
    world.pauses.clear()
    world.pdbs.clear()
    world.run_until(NODE, "Quarantined", limit=600)
    assert not world.condition(NODE, "NeedsHuman")


def test_force_without_its_component_is_reported_with_the_blocker() -> None:
    world = fleet(drain={"fatalTimeout": "5m", "onTimeout": "Force"})
    world.add_pod("worker", NODE)
    world.add_pdb("keep", minAvailable=1)
    world.refusing[d.SetDisruptionTarget] = (403, 'pods "worker" is forbidden')
    world.incident(NODE)
    world.run(330, step=2)
    assert ("team-a", "worker") in world.pods
    drain = drain_of(world)
    assert [(b.pdb, b.pods.names, b.permanent) for b in drain.blocked] == [
        ("team-a/keep", ("team-a/worker",), True)
    ]
    assert world.condition(NODE, "Blocked") == "MissingPermission"
    assert world.condition(NODE, "NeedsHuman") == "MissingPermission"
    assert "PDB team-a/keep allows no disruption" in world.message(NODE)
    assert "drain.onTimeout is Force, but the API server refuses" in world.message(NODE)
    assert "Apply the force component" in world.message(NODE)
    world.refusing.clear()
    world.run_until(NODE, "Quarantined", limit=120)


@pytest.mark.parametrize(
    ("code", "answer", "reason", "remedy"),
    [
        (403, 'admission webhook "guard" denied the request: no', "EvictionRefused", "webhook"),
        (422, 'Pod "worker" is invalid', "EvictionRefused", "webhook"),
        (401, "Unauthorized", "MissingPermission", "service account and token"),
    ],
)
def test_who_refuses_a_deletion_by_force_is_who_is_to_be_asked(
    code: int, answer: str, reason: str, remedy: str
) -> None:
    world = fleet(drain={"fatalTimeout": "5m", "onTimeout": "Force"})
    world.add_pod("worker", NODE)
    world.add_pdb("keep", minAvailable=1)
    world.refusing[d.SetDisruptionTarget] = (code, answer)
    world.incident(NODE)
    world.run(330, step=2)
    assert world.condition(NODE, "Blocked") == reason
    assert answer in world.message(NODE)
    assert remedy in world.message(NODE)
    assert "force component" not in world.message(NODE)
    world.refusing.clear()
    world.run_until(NODE, "Quarantined", limit=120)


def test_the_next_leader_keeps_the_report_until_it_has_an_answer() -> None:
    world = fleet(drain={"fatalTimeout": "5m", "onTimeout": "Force"})
    world.add_pod("worker", NODE)
    world.add_pdb("keep", minAvailable=1)
    world.refusing[d.SetDisruptionTarget] = (403, 'pods "worker" is forbidden')
    world.incident(NODE)
    world.run(330, step=2)
    before = world.message(NODE)
    world.restart()
    reports = set()
    for _ in range(20):
        world.run(0.5, step=0.5)
        reports.add((world.condition(NODE, "Blocked"), world.message(NODE)))
    assert {reason for reason, _ in reports} == {"MissingPermission"}
    assert all(
        "drain.onTimeout is Force, but the API server refuses" in text for _, text in reports
    )
    assert before in {text for _, text in reports}
    world.refusing.clear()
    world.run_until(NODE, "Quarantined", limit=120)
