"""Our own Jobs: who is moved off a GPU before its reset comes back whatever happens (issue 13)."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from rules.api import writes as d
from rules.api.names import ANNOTATION_RELEASE_GPU, PAUSED_BY_US, PREFIX_GPU_DEPLOY
from rules.api.quarantine import Mode
from rules.api.repair_writes import WriteRepairObject
from tests.support.repair.job_world import EXPORTER, PLUGIN, JobWorld
from tests.support.scenario.provider_world import end_job
from tests.support.scenario.repair_world import NODE, repair_policy
from tests.support.scenario.session_world import kill_points

RESET = ("ResetGPUJob", "ResetGPU")
RESTART = ("RestartNodeJob", "RestartNode")


def broken(name: str, step: str, does: str = "heals", **repair: Any) -> JobWorld:
    world = JobWorld(name, step, does, **repair)
    world.fault()
    return world


def test_a_reset_of_our_own_brings_the_node_back() -> None:
    world = broken(*RESET)
    world.run(1800, step=5)
    assert world.sessions(NODE)[0].status.phase == "Released"
    (attempt,) = world.sessions(NODE)[0].status.repair
    assert attempt.state == "Proven"
    assert "each accused GPU was reset" in attempt.proof
    assert attempt.cleared == (f"{EXPORTER}=true", f"{PLUGIN}=true")
    assert world.moved_at_reset == [True]
    assert world.settled
    assert [key for key in world.labels if key.startswith(PREFIX_GPU_DEPLOY)] == [PLUGIN, EXPORTER]


def test_what_moves_others_is_on_record_first_and_the_job_comes_last() -> None:
    world = broken(*RESET)
    world.until(lambda: world.held("jobs"))
    about = [
        (type(write).__name__, getattr(write, "verb", ""))
        for _, write, _, status in world.sent
        if status < 300 and isinstance(write, d.WriteSessionStatus | WriteRepairObject)
    ]
    order = [each for each in about if each[0] == "WriteRepairObject"]
    assert [verb for _, verb in order] == ["patch", "create"]
    recorded = [
        write.status.repair[0].cleared
        for _, write, _, _ in world.sent[: _first(world, "patch")]
        if isinstance(write, d.WriteSessionStatus) and write.status.repair
    ]
    assert recorded[-1] == (f"{EXPORTER}=true", f"{PLUGIN}=true")


def _first(world: JobWorld, verb: str) -> int:
    return next(
        index
        for index, (_, write, _, _) in enumerate(world.sent)
        if isinstance(write, WriteRepairObject) and write.verb == verb
    )


def test_the_job_is_one_pod_on_the_node_with_its_purpose() -> None:
    world = broken(*RESET)
    world.until(lambda: world.held("jobs"))
    job, session = world.job, world.session(NODE)
    assert job["metadata"]["name"] == f"{session.name}-resetgpu-1"
    pod = job["spec"]["template"]
    assert pod["spec"]["nodeName"] == NODE
    assert pod["spec"]["containers"] == [{"name": "a", "image": "agent"}]
    assert pod["metadata"]["annotations"] == {
        "gpuward.io/repair-gpus": f"GPU-{NODE}-0",
        "gpuward.io/repair-boot": world.node(NODE).boot_id,
    }
    spec = {k: v for k, v in job["spec"].items() if isinstance(v, int)}
    assert spec == {
        "completions": 1, "parallelism": 1, "backoffLimit": 0, "activeDeadlineSeconds": 900,
        "ttlSecondsAfterFinished": 86_400,
    }  # fmt: skip


@pytest.mark.parametrize("does", ["refuses", "vanishes", "hangs"])
def test_a_reset_that_does_not_happen_restores_the_labels(does: str) -> None:
    world = broken(*RESET, does)
    world.until(lambda: world.followed)
    world.run(60)
    assert world.settled is (does != "hangs")
    world.run(1900, step=20)
    assert world.steps_of() == [("ResetGPU", "Failed")]
    assert world.settled
    assert len(world.held("jobs")) == (1 if does == "refuses" else 0), "what is over can be read"


def test_holders_that_stay_lead_to_a_reboot() -> None:
    steps = {
        "ResetGPU": {"adapter": "ResetGPUJob", "timeout": "30m"},
        "RestartNode": {"adapter": "NodeConditions", "timeout": "30m"},
    }
    world = broken(*RESET, "refuses")
    world.policy = repair_policy(steps=steps)
    world.run(600, step=5)
    assert [step for step, _ in world.steps_of()] == ["ResetGPU", "RestartNode"]
    text = world.sessions(NODE)[0].status.repair[0].proof
    assert "ResetGPUJob gave up: jobs.batch" in text
    assert world.settled


def test_a_job_that_the_reboot_itself_ends_has_not_given_up() -> None:
    world = broken(*RESTART, "cut off")
    world.run(1800, step=10)
    assert world.steps_of() == [("RestartNode", "Proven")]
    assert world.sessions(NODE)[0].status.phase == "Released"


def test_a_restart_that_reports_a_refusal_has_failed() -> None:
    world = broken(*RESTART, "refuses")
    world.run(300, step=5)
    assert world.steps_of() == [("RestartNode", "Failed")]


def test_a_reboot_during_a_reset_restores_the_labels() -> None:
    """The Job's pod ends with the boot: its status ends nothing, the agent has to check again."""
    world = broken(*RESET, "hangs")
    world.until(lambda: world.held("jobs"))
    world.reboot(NODE)
    end_job(world.job, "Failed", "BackoffLimitExceeded")
    world.touch(world.job)
    world.run(60)
    assert world.settled


def test_with_a_job_that_is_taken_back_its_pod_goes() -> None:
    """Without a propagation policy a deleted Job leaves its pods, which would reboot the node."""
    world = broken(*RESTART, "hangs")
    world.until(lambda: world.held("jobs"))
    _release(world)
    world.run(60)
    (gone,) = [w for w in world.writes(WriteRepairObject) if w.verb == "delete"]
    assert gone.body["propagationPolicy"] == "Background"
    assert world.held("jobs") == []


def _hold(world: JobWorld) -> None:
    world.annotate(NODE, "gpuward.io/hold", "look first")


def _delete(world: JobWorld) -> None:
    del world.quarantines[world.session(NODE).name]
    world.close_all(NODE)


def _release(world: JobWorld) -> None:
    session = world.quarantines[world.session(NODE).name]
    session["spec"]["release"] = {"by": "eve"}
    world.touch(session)


def _off(world: JobWorld) -> None:
    world.policy = repair_policy(mode="Off")


def _shadow(world: JobWorld) -> None:
    world.policy = msgspec.structs.replace(world.policy, mode=Mode.SHADOW)


ACTS: list[Callable[[JobWorld], None]] = [
    _hold,
    _delete,
    _release,
    _off,
    _shadow,
    lambda world: world.cordon(NODE, on=False),
    lambda world: world.label(NODE, **{"gpuward.io__opt-out": "true"}),
    lambda world: world.annotate(NODE, "gpuward.io/session", None),
    lambda world: world.pause(all=True),
    lambda world: world.taint(NODE, "karpenter.sh/disrupted"),
]
LABELS = [
    "hold", "delete", "release", "off", "shadow", "uncordon", "opt out", "quarantine off", "pause",
    "owner",
]  # fmt: skip


def moved_off() -> JobWorld:
    """Others have been moved off, nobody was asked yet, and another leader takes over."""
    plain = broken(*RESET)
    died = kill_points(plain, lambda: plain.until(lambda: plain.held("jobs")))
    world = next(
        died[index + 1][1]
        for index, (write, _) in enumerate(died)
        if isinstance(write, WriteRepairObject) and write.verb == "patch"
    )
    assert world.moved
    assert world.held("jobs") == []
    return world


@pytest.mark.parametrize("act", ACTS, ids=LABELS)
def test_a_stopped_step_restores_the_labels(
    act: Callable[[JobWorld], None],
) -> None:
    world = moved_off()
    act(world)
    world.run(60)
    assert world.held("jobs") == []
    assert world.settled


@pytest.mark.parametrize("act", [_delete, _release, ACTS[5], ACTS[7]])
def test_a_session_that_ends_amid_a_reset_takes_its_job_along(
    act: Callable[[JobWorld], None],
) -> None:
    world = broken(*RESET, "hangs")
    world.until(lambda: world.held("jobs"))
    act(world)
    world.run(60)
    assert world.settled
    if act is not _delete:
        # Of a deleted one the owner reference takes it.
        assert world.held("jobs") == []


def test_a_step_that_was_held_moves_them_again_when_it_goes_on() -> None:
    world = moved_off()
    _hold(world)
    world.run(120)
    assert world.settled
    world.annotate(NODE, "gpuward.io/hold", None)
    world.run(1200, step=5)
    assert world.steps_of() == [("ResetGPU", "Proven")]
    assert world.moved_at_reset == [True]
    assert world.settled


@pytest.mark.parametrize("value", ["false", "paused-for-driver-upgrade"])
def test_labels_of_the_gpu_operator_stay(value: str) -> None:
    world = broken(*RESET)
    world.labels[EXPORTER] = "false"
    world.until(lambda: world.held("jobs"))
    assert (world.labels[PLUGIN], world.labels[EXPORTER]) == (PAUSED_BY_US, "false")
    world.labels[PLUGIN] = value
    world.touch(world.nodes[NODE])
    world.run(600, step=5)
    assert (world.labels[PLUGIN], world.labels[EXPORTER]) == (value, "false")
    assert world.released is None


def test_an_operators_agent_label_stays() -> None:
    world = broken(*RESET)
    world.annotate(NODE, ANNOTATION_RELEASE_GPU, "swapping a card")
    world.until(lambda: world.held("jobs"))
    world.run(600, step=5)
    assert world.released == "swapping a card"
    assert PAUSED_BY_US not in world.labels.values()


def test_without_an_operator_nothing_is_invented() -> None:
    world = broken(*RESET)
    for key in (PLUGIN, EXPORTER):
        del world.labels[key]
    world.run(1200, step=5)
    assert world.steps_of() == [("ResetGPU", "Proven")]
    assert [key for key in world.labels if key.startswith(PREFIX_GPU_DEPLOY)] == []
    assert world.sessions(NODE)[0].status.repair[0].cleared == ()


@pytest.mark.parametrize("does", ["heals", "refuses"])
def test_a_leader_killed_at_any_write_resets_once_and_restores_the_labels(
    does: str,
) -> None:
    plain = broken(*RESET, does)
    end = plain.now + 600
    died = kill_points(plain, lambda: plain.run(500, step=10))
    want = plain.steps_of()
    first = next(
        index
        for index, (write, _) in enumerate(died)
        if isinstance(write, WriteRepairObject) and write.verb == "patch"
    )
    for write, world in died[first - 2 :]:
        world.run(end - world.now, step=10)
        assert world.steps_of() == want, write
        assert len(world.asked_through()) == 1, write
        assert world.settled, write
        assert world.moved_at_reset in ([], [True]), write


def test_shadow_moves_no_pod() -> None:
    world = broken(*RESET)
    _shadow(world)
    world.run(600, step=10)
    assert world.writes(WriteRepairObject) == []
    assert "then request ResetGPU from ResetGPUJob" in world.message(NODE)
