"""Drain scenarios, numbered as in the reference list, in virtual time and without a server."""

import json

import pytest

from rules.api import writes as d
from rules.api.quarantine import PodNote
from rules.api.timestamps import parse_time
from tests.support.scenario.fleets import NODE, drain_of, evicted, fleet
from tests.support.scenario.session_world import ROOMY, policy_of


def test_s03_a_pdb_is_honoured_to_the_end_and_named_on_the_first_pass() -> None:
    world = fleet()
    world.add_pod("single", NODE)
    world.add_pod("other", NODE, labels={"app": "other"})
    world.add_pdb("keep", minAvailable=1)
    world.incident(NODE, severity="Degraded")
    world.run(2)
    assert world.phase(NODE) == "Draining"
    assert world.condition(NODE, "Blocked") == "BudgetNeverAllows"
    assert world.condition(NODE, "NeedsHuman") == "BudgetNeverAllows"
    assert "team-a/keep" in world.message(NODE)
    assert "allows no disruption: minAvailable is 1 and the PDB covers 1 pod" in world.message(
        NODE
    )
    assert "ReplicaSet team-a/web" in world.message(NODE)
    world.run(600, step=5)
    assert "other" in evicted(world)
    assert "single" not in evicted(world)
    assert not world.writes(d.DeletePod)
    assert ("team-a", "single") in world.pods


def test_s13_a_pod_bound_in_the_race_is_evicted_and_a_drained_node_was_empty_for_settle() -> None:
    world = fleet()
    world.add_pod("first", NODE)
    world.incident(NODE)
    world.run(2)
    world.add_pod("late", NODE)
    world.run_until(NODE, "Quarantined", limit=60)
    assert evicted(world) == ["first", "late"]
    gone = max(at for at, write, _, _ in world.sent if isinstance(write, d.EvictPod))
    assert world.now - gone >= world.policy.drain.settle_s


def test_s15_two_pdbs_on_one_pod_need_an_operator_and_are_both_named() -> None:
    world = fleet()
    world.add_pod("both", NODE)
    world.add_pod("other", NODE, labels={"app": "other"})
    world.add_pdb("one", minAvailable=0)
    world.add_pdb("two", minAvailable=0)
    world.incident(NODE)
    world.run(300, step=2)
    assert world.condition(NODE, "NeedsHuman") == "MultipleBudgets"
    assert "team-a/one and team-a/two" in world.message(NODE)
    assert evicted(world).count("both") <= 5
    assert "other" in evicted(world)


def test_s16_a_budget_that_opens_is_used_at_once_and_was_not_hammered() -> None:
    world = fleet()
    for index in range(3):
        world.add_pod(f"here-{index}", NODE)
    for index in range(3):
        world.add_pod(f"there-{index}", "n1")
    world.add_pdb("shared", minAvailable=5)
    world.pods["team-a", "there-0"]["status"]["conditions"][0]["status"] = "False"
    world.sync_pdbs()
    world.incident(NODE)
    world.run(420)
    assert 1 <= len(evicted(world)) <= 30
    assert ("team-a", "here-0") in world.pods
    world.pods["team-a", "there-0"]["status"]["conditions"][0]["status"] = "True"
    world.sync_pdbs()
    opened = world.now
    world.run(10)
    accepted = [at for at, w, _, code in world.sent if isinstance(w, d.EvictPod) and code == 201]
    assert accepted
    assert accepted[0] - opened <= 10


def test_s18_a_crash_looping_app_is_not_drained_and_the_remedy_is_named() -> None:
    world = fleet()
    for index in range(2):
        world.add_pod(f"loop-{index}", NODE, ready=False)
    world.add_pdb("keep", minAvailable=1)
    world.eviction_answers = [budget_full()] * 40
    world.incident(NODE)
    world.run(100, step=2)
    assert world.phase(NODE) == "Draining"
    assert "AlwaysAllow" in world.message(NODE)
    world.pdbs["team-a", "keep"]["spec"]["unhealthyPodEvictionPolicy"] = "AlwaysAllow"
    world.eviction_answers = []
    world.run_until(NODE, "Quarantined", limit=200)


def test_s18_a_single_crash_looping_pod_has_a_remedy_of_its_own() -> None:
    world = fleet()
    world.add_pod("loop", NODE, ready=False)
    world.add_pdb("keep", minAvailable=1)
    world.incident(NODE)
    world.run(10)
    assert world.condition(NODE, "NeedsHuman") == "BudgetNeverAllows"
    assert "Set unhealthyPodEvictionPolicy: AlwaysAllow (the pod is not Ready)" in world.message(
        NODE
    )
    world.pdbs["team-a", "keep"]["spec"]["unhealthyPodEvictionPolicy"] = "AlwaysAllow"
    world.run_until(NODE, "Quarantined", limit=200)


def budget_full() -> tuple[int, dict[str, str], bytes]:
    cause = {"reason": "DisruptionBudget", "message": "keep needs 1 healthy pods and has 0"}
    body = {"kind": "Status", "message": "Cannot evict", "details": {"causes": [cause]}}
    return 429, {}, json.dumps(body).encode()


def test_s19_daemonsets_mirrors_and_orphans() -> None:
    world = fleet()
    world.add_pod("ds", NODE, owner=("apps/v1", "DaemonSet", "plugin"))
    world.add_daemonset_owner("DaemonSet-team-a-plugin")
    world.add_pod("orphan", NODE, owner=("apps/v1", "DaemonSet", "gone"))
    world.missing_owners.add("DaemonSet-team-a-gone")
    world.add_pod("foreign", NODE, owner=("example.com/v1", "DaemonSet", "custom"))
    world.add_pod("static", NODE, owner=None, annotations={"kubernetes.io/config.mirror": "x"})
    world.add_pod("done", NODE, phase="Succeeded")
    world.fail_until(NODE, "Quarantined")
    assert evicted(world) == ["orphan"]
    drain = drain_of(world)
    assert drain.left_by_policy.named == (
        PodNote(name="team-a/ds", why="DaemonSet"),
        PodNote(name="team-a/foreign", why="DaemonSet"),
        PodNote(name="team-a/static", why="static pod"),
    )


def test_a_node_is_not_drained_before_its_daemonsets_are_read() -> None:
    world = fleet()
    world.add_pod("ds", NODE, owner=("apps/v1", "DaemonSet", "plugin"))
    world.hanging.add("daemonsets")
    world.incident(NODE)
    world.run(25)
    assert world.phase(NODE) == "Draining"
    world.add_daemonset_owner("DaemonSet-team-a-plugin")
    world.hanging.clear()
    world.run_until(NODE, "Quarantined", limit=30)


def test_s20_grace_is_the_pods_own_and_a_terminating_pod_is_not_asked_again() -> None:
    world = fleet()
    world.add_pod("slow", NODE, grace=1800)
    world.incident(NODE)
    world.run(1700, step=10)
    assert evicted(world) == ["slow"]
    wire = next(r for _, w, r, _ in world.sent if isinstance(w, d.EvictPod))
    assert wire.body is not None
    assert "gracePeriodSeconds" not in wire.body["deleteOptions"]
    assert world.phase(NODE) == "Draining"
    assert "1/1 pods evicted, 1 of them still terminating (team-a/slow)" in world.message(NODE)
    world.run_until(NODE, "Quarantined", limit=200)


def test_a_halted_drain_reports_the_last_list() -> None:
    world = fleet()
    world.add_pod("slow", NODE, grace=60)
    world.incident(NODE)
    world.run(20)
    world.policy = policy_of(mode="Shadow", budget=ROOMY)
    world.run(120, step=10)
    assert world.phase(NODE) == "Draining"
    assert "1 of them still terminating when last checked (team-a/slow)" in world.message(NODE)


@pytest.mark.parametrize("grace", [0, 7, 1800])
def test_s22_force_keeps_job_semantics_and_is_per_pod(grace: int) -> None:
    world = fleet(drain={"fatalTimeout": "5m", "onTimeout": "Force"})
    world.add_pod("worker", NODE, owner=("batch/v1", "Job", "train"), grace=grace)
    world.add_pdb("keep", minAvailable=1)
    world.incident(NODE)
    world.run(298, step=2)
    assert not world.writes(d.DeletePod)
    world.add_pod("late", NODE, grace=grace)
    world.pdbs["team-a", "keep"]["frozen"] = True
    world.run(10)
    forced = world.writes(d.SetDisruptionTarget, d.DeletePod)
    assert [type(w).__name__ for w in forced] == ["SetDisruptionTarget", "DeletePod"]
    delete = forced[1]
    assert isinstance(delete, d.DeletePod)
    assert delete.name == "worker"
    assert delete.grace_s == max(1, grace)
    wire = next(r for _, w, r, _ in world.sent if isinstance(w, d.DeletePod))
    assert wire.body is not None
    assert wire.body["preconditions"] == {"uid": delete.uid}
    assert ("team-a", "late") in world.pods, "a later pod has its own full time"
    assert "drain.onTimeout: Force" in delete.by_policy
    world.run(5)
    forced_entries = [e for e in world.session(NODE).status.timeline if e.step == "Forced"]
    assert [entry.message for entry in forced_entries] == [
        "team-a/worker deleted by policy (drain.onTimeout: Force)"
    ]


def test_s24_ordinary_pods_leave_before_critical_ones() -> None:
    world = fleet()
    world.add_pod("dns", NODE, priorityClassName="system-cluster-critical", grace=5)
    world.add_pod("web", NODE, grace=5)
    world.fail_until(NODE, "Quarantined", limit=90)
    assert evicted(world) == ["web", "dns"]
    times = [at for at, w, _, _ in world.sent if isinstance(w, d.EvictPod)]
    assert times[1] - times[0] >= 5


def test_s25_a_pod_that_comes_back_three_times_stops_the_loop_and_names_its_owner() -> None:
    world = fleet()
    owner = ("example.com/v1", "Pinner", "stubborn")
    world.add_pod("p0", NODE, owner=owner)
    world.incident(NODE)
    for index in range(1, 30):
        world.run(2)
        if not world.pods_on(NODE):
            world.add_pod(f"p{index}", NODE, owner=owner)
    assert world.phase(NODE) == "Draining"
    assert len(evicted(world)) == 3
    assert world.condition(NODE, "NeedsHuman") == "PodReturns"
    assert "Pinner stubborn recreates its pod" in world.message(NODE)


def test_s26_volumes_must_detach_for_a_while_and_are_then_reported() -> None:
    world = fleet()
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    world.add_pod("db", NODE, volumes=[volume])
    daemon = {"name": "log", "persistentVolumeClaim": {"claimName": "log"}}
    world.add_pod("ds", NODE, owner=("apps/v1", "DaemonSet", "log"), volumes=[daemon])
    world.add_daemonset_owner("DaemonSet-team-a-log")
    for name in ("data", "log"):
        world.claims[f"team-a/{name}"] = {
            "metadata": {"name": name},
            "spec": {"volumeName": f"pv-{name}"},
        }
        world.attachments.append(
            {
                "metadata": {"name": name},
                "spec": {"nodeName": NODE, "source": {"persistentVolumeName": f"pv-{name}"}},
            }
        )
    world.incident(NODE)
    world.run(340, step=5)
    assert world.phase(NODE) == "Draining"
    world.run_until(NODE, "Quarantined", limit=60)
    drain = drain_of(world)
    assert drain.left_by_failure.named == (PodNote(name="volume pv-data", why="still attached"),)


@pytest.mark.parametrize(
    ("annotation", "value", "severity", "waits_s"),
    [
        pytest.param("karpenter.sh/do-not-disrupt", "5m", "Fatal", 300, id="duration"),
        pytest.param("karpenter.sh/do-not-disrupt", "true", "Fatal", 600, id="bounded-fatal"),
        pytest.param("karpenter.sh/do-not-disrupt", "4h", "Fatal", 600, id="duration-bounded"),
        pytest.param("karpenter.sh/do-not-disrupt", "soon", "Fatal", 0, id="unreadable"),
        pytest.param(
            "cluster-autoscaler.kubernetes.io/safe-to-evict",
            "false",
            "Fatal",
            600,
            id="autoscaler",
        ),
        pytest.param("karpenter.sh/do-not-disrupt", "30m", "Degraded", 1800, id="degraded"),
    ],
)
def test_s27_do_not_disrupt_is_honoured_within_bounds(
    annotation: str, value: str, severity: str, waits_s: int
) -> None:
    world = fleet()
    world.add_pod("held", NODE, annotations={annotation: value})
    world.incident(NODE, severity=severity)
    world.run(max(0, waits_s - 5), step=5)
    if waits_s:
        assert evicted(world) == []
        assert world.condition(NODE, "Blocked") == "DoNotDisrupt"
        until = parse_time(world.session(NODE).status.until) or 0.0
        assert 0 < until - world.now <= 10
    world.run(20)
    assert evicted(world) == ["held"]


def test_s31_a_pdb_that_protects_an_entire_gang_is_recognised() -> None:
    world = fleet()
    for index in range(2):
        world.add_pod(
            f"rank-{index}",
            f"n{index}",
            owner=("batch/v1", "Job", "llm-worker"),
            labels={"trainer.kubeflow.org/trainjob-name": "llm"},
            gpus=8,
        )
    world.add_pdb("gang", minAvailable=2)
    world.incident(NODE)
    world.run(40)
    assert world.condition(NODE, "Blocked") == "GangBudget"
    assert world.condition(NODE, "NeedsHuman") == "GangBudget"
    assert "TrainJob team-a/llm" in world.message(NODE)
    assert "suspend" in world.message(NODE)


@pytest.mark.parametrize(("severity", "leaves"), [("Degraded", False), ("Fatal", True)])
def test_s32_a_degraded_pod_without_room_stays(severity: str, leaves: bool) -> None:
    world = fleet()
    world.add_pod("big", NODE, gpus=8)
    for index in (1, 2, 3):
        world.add_pod(f"busy-{index}", f"n{index}", gpus=8)
    world.incident(NODE, severity=severity)
    world.run(60)
    assert (evicted(world) == ["big"]) == leaves
    if not leaves:
        assert world.condition(NODE, "Blocked") == "NoCapacity"
        del world.pods["team-a", "busy-2"]
        world.run_until(NODE, "Quarantined", limit=60)


def test_s32_a_fault_that_becomes_fatal_in_the_middle_of_its_drain_is_treated_as_that() -> None:
    world = fleet()
    world.add_pod("big", NODE, gpus=8)
    for index in (1, 2, 3):
        world.add_pod(f"busy-{index}", f"n{index}", gpus=8)
    world.incident(NODE, severity="Degraded")
    world.run(30)
    assert world.condition(NODE, "Blocked") == "NoCapacity"
    world.healths[NODE]["status"]["incidents"][0]["severity"] = "Fatal"
    world.run_until(NODE, "Quarantined", limit=60)
    assert evicted(world) == ["big"]
    assert [cause.severity for cause in world.session(NODE).spec.causes] == ["Fatal"]
