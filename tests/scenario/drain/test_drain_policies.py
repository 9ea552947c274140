"""Which pods leave by which policy, what is named, and how nodes share the work of draining."""

import json
from itertools import pairwise

import pytest

from rules.api import writes as d
from rules.api.quarantine import PodNote, pods_of
from rules.api.timestamps import format_time
from tests.support.scenario.fleets import NODE, drain_of, evicted, fleet
from tests.support.scenario.server.border import EVICTION_S
from tests.support.scenario.session_world import START

DENIED = b'{"kind":"Status","message":"admission webhook \\"w\\" denied the request"}'
"""A webhook may deny with any code."""


def test_a_deadline_with_policy_report_only_reports() -> None:
    world = fleet(drain={"fatalTimeout": "5m"})
    world.add_pod("kept", NODE)
    world.add_pod("peer", "n1")
    world.add_pdb("keep", minAvailable=2, replicas=3)
    world.incident(NODE)
    world.run(400, step=5)
    assert world.condition(NODE, "NeedsHuman") == "DrainTimeout"
    assert (
        "The drain timeout has passed. PDB team-a/keep allows no disruption now"
        in world.message(NODE)
    )
    assert not world.writes(d.DeletePod, d.SetDisruptionTarget)


def test_stuck_pods_are_not_gone() -> None:
    world = fleet()
    world.add_pod("stuck", NODE, grace=10)
    world.pods["team-a", "stuck"]["hung"] = True
    world.incident(NODE)
    world.run(120, step=2)
    assert world.phase(NODE) == "Draining"
    assert world.condition(NODE, "Blocked") == "PodStuck"
    assert world.condition(NODE, "NeedsHuman") == "PodStuck"
    drain = drain_of(world)
    assert "main runs" in drain.left_by_failure.named[0].why


def test_a_pod_that_only_a_finalizer_holds_is_listed_and_holds_nothing_up() -> None:
    world = fleet()
    world.add_pod("held", NODE, grace=10)
    world.pods["team-a", "held"]["metadata"]["finalizers"] = ["example.com/keep"]
    world.incident(NODE)
    world.run(40, step=2)
    assert world.phase(NODE) == "Draining"
    world.run_until(NODE, "Quarantined", limit=60)
    drain = drain_of(world)
    why = "its containers have ended, but finalizer example.com/keep keeps the object"
    assert drain.left_by_failure == pods_of([PodNote(name="team-a/held", why=why)])
    assert "1 failed to leave" in world.message(NODE)
    world.run(120, step=10)
    assert world.condition(NODE, "NeedsHuman") == "", "it is no arrival either"


def test_three_pods_of_one_owner_that_return_once_are_no_loop() -> None:
    world = fleet()
    owner = ("example.com/v1", "Pinner", "pinned")
    for index in range(3):
        world.add_pod(f"a{index}", NODE, owner=owner)
    world.incident(NODE)
    world.run(3)
    world.sleep(2)
    for index in range(3):
        world.add_pod(f"b{index}", NODE, owner=owner)
        world.run(index)
    world.run_until(NODE, "Quarantined", limit=60)
    assert len(evicted(world)) == 6


@pytest.mark.parametrize("unmanaged", ["Report", "Evict"])
def test_unmanaged_pods_by_policy(unmanaged: str) -> None:
    world = fleet(drain={"unmanaged": unmanaged})
    world.add_pod("bare", NODE, owner=None)
    world.fail_until(NODE, "Quarantined")
    assert (evicted(world) == ["bare"]) == (unmanaged == "Evict")
    if unmanaged == "Report":
        drain = drain_of(world)
        assert drain.left_by_policy == pods_of([PodNote(name="team-a/bare", why="unmanaged")])


def test_counts_stay_true_where_the_names_are_bounded() -> None:
    world = fleet()
    for number in range(30):
        world.add_pod(f"bare-{number:02d}", NODE, owner=None)
    world.fail_until(NODE, "Quarantined")
    drain = drain_of(world)
    assert (len(drain.left_by_policy.named), drain.left_by_policy.total) == (20, 30)
    assert "(0 evicted, 30 skipped by policy, 0 failed to leave)" in world.message(NODE)


def test_pods_with_an_empty_dir_are_evicted() -> None:
    world = fleet()
    world.add_pod("scratch", NODE, volumes=[{"name": "tmp", "emptyDir": {}}])
    world.fail_until(NODE, "Quarantined")
    assert evicted(world) == ["scratch"]


def test_wait_completed_lets_a_job_end_within_its_time() -> None:
    rule = {"namespaces": ["jobs"], "strategy": "WaitCompleted", "maxWait": "10m"}
    world = fleet(pods=[rule])
    world.add_pod("short", NODE, namespace="jobs", owner=("batch/v1", "Job", "short"))
    world.add_pod("long", NODE, namespace="jobs", owner=("batch/v1", "Job", "long"))
    world.incident(NODE)
    world.run(300, step=5)
    world.pods["jobs", "short"]["status"]["phase"] = "Succeeded"
    world.run(295, step=5)
    assert evicted(world) == []
    assert world.condition(NODE, "Blocked") == "WaitCompleted"
    world.run(60)
    assert evicted(world) == ["long"]


def test_skip_leaves_pods_and_names_them() -> None:
    world = fleet(pods=[{"selector": "app=web", "strategy": "Skip"}])
    world.add_pod("kept", NODE)
    world.fail_until(NODE, "Quarantined")
    drain = drain_of(world)
    assert drain.left_by_policy == pods_of([PodNote(name="team-a/kept", why="policy Skip")])


def test_s48_a_missing_permission_is_named() -> None:
    world = fleet()
    world.add_pod("web-1", NODE)
    text = 'pods "web-1" is forbidden: User "x" cannot create resource "pods/eviction"'
    body = json.dumps({"kind": "Status", "message": text, "code": 403}).encode()
    world.eviction_answers = [(403, {}, body)] * 100
    world.incident(NODE)
    world.run(30)
    assert world.condition(NODE, "Blocked") == "MissingPermission"
    assert world.condition(NODE, "NeedsHuman") == "MissingPermission"
    assert "Grant the remediator create on pods/eviction" in world.message(NODE)
    world.eviction_answers = []
    world.run_until(NODE, "Quarantined", limit=120)


@pytest.mark.parametrize(
    ("answer", "reason", "human"),
    [
        pytest.param((401, {}, b'{"kind":"Status"}'), "MissingPermission", False, id="401"),
        pytest.param((403, {}, b'{"kind":"Status"}'), "MissingPermission", True, id="403"),
        pytest.param(
            (403, {}, DENIED),
            "EvictionRefused",
            False,
            id="webhook",
        ),
        pytest.param(
            (429, {"Retry-After": "1"}, b"Too many requests"), "ApiBusy", False, id="429"
        ),
        pytest.param((404, {}, DENIED), "EvictionRefused", False, id="webhook, as not found"),
        pytest.param((409, {}, DENIED), "EvictionRefused", False, id="webhook, as a conflict"),
        pytest.param((503, {}, b"overloaded"), "NoAnswer", False, id="503"),
    ],
)
def test_s48_every_bad_answer_is_reported_and_survived(
    answer: tuple[int, dict[str, str], bytes], reason: str, human: bool
) -> None:
    world = fleet()
    world.add_pod("web-1", NODE)
    world.eviction_answers = [answer] * 100
    world.incident(NODE)
    world.run(60)
    assert world.phase(NODE) == "Draining"
    assert world.condition(NODE, "Blocked") == reason
    assert bool(world.condition(NODE, "NeedsHuman")) == human
    world.eviction_answers = []
    world.run_until(NODE, "Quarantined", limit=120)


def test_s49_the_message_is_stable_and_does_not_grow_with_the_pods() -> None:
    lengths = []
    for count in (5, 200):
        world = fleet()
        for index in range(count):
            world.add_pod(f"web-{index:03}", NODE, grace=600)
        world.add_pdb("keep", minAvailable=count)
        world.incident(NODE)
        world.run(5)
        before = len(world.status_changes)
        world.run(60)
        assert len(world.status_changes) == before, "the same state is written once"
        lengths.append(len(world.message(NODE)))
        drain = drain_of(world)
        assert len(drain.waiting.named) <= 20
    assert abs(lengths[0] - lengths[1]) < 20


def test_one_eviction_in_flight_per_pdb_over_all_nodes_and_fair() -> None:
    world = fleet()
    for node in ("n0", "n1"):
        for index in range(4):
            world.add_pod(f"{node}-{index}", node)
    world.add_pdb("shared", minAvailable=0)
    for node in ("n0", "n1"):
        world.incident(node)
    world.run(8)
    names = evicted(world)
    times = [at for at, write, _, _ in world.sent if isinstance(write, d.EvictPod)]
    apart = [round(later - at, 3) for at, later in pairwise(times)]
    assert min(apart) >= EVICTION_S, "one in flight"
    assert [name[:2] for name in names[:6]] == ["n0", "n1", "n0", "n1", "n0", "n1"]


def test_a_blocked_node_blocks_no_other() -> None:
    world = fleet(limits={"nodesDraining": 1})
    world.add_pod("kept", "n0")
    world.add_pdb("keep", minAvailable=1)
    world.add_pod("free", "n1", labels={"app": "free"})
    world.incident("n0")
    world.run(5)
    world.incident("n1")
    world.run(30)
    assert world.phase("n0") == "Draining"
    assert world.phase("n1") == "Quarantined"


def test_started_at_survives_a_restart_and_so_does_the_count() -> None:
    world = fleet()
    world.add_pod("gone", NODE)
    world.add_pod("kept", NODE, labels={"app": "kept"})
    world.add_pdb("keep", app="kept", minAvailable=1)
    world.incident(NODE)
    world.run(10)
    world.restart()
    world.run(10)
    drain = drain_of(world)
    assert drain.evicted == 1
    assert drain.started_at == format_time(START)


@pytest.mark.parametrize("grace", [0, 30])
@pytest.mark.parametrize("pods", [2, 12])
def test_who_was_evicted_is_counted_by_the_next_process(grace: int, pods: int) -> None:
    world = fleet()
    for index in range(pods):
        world.add_pod(f"p{index}", NODE, grace=grace)
    world.incident(NODE)
    while len(evicted(world)) < pods:
        world.cycle()
    # The process dies before it writes down what it did, and it takes a while until the next.
    world.restart()
    world.sleep(15)
    world.run_until(NODE, "Quarantined", limit=60)
    drain = drain_of(world)
    assert drain.evicted == pods
    assert f"({pods} evicted" in world.message(NODE)


def test_a_fault_that_ends_just_then_forgets_no_eviction() -> None:
    world = fleet()
    world.add_pod("gone", NODE)
    world.incident(NODE)
    while not evicted(world):
        world.cycle()
    world.close_all(NODE)
    world.run(5)
    assert world.phase(NODE) == "Validating"
    drain = drain_of(world)
    assert drain.evicted == 1
