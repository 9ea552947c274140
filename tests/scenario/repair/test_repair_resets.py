"""Which GPUs and pods a repair is about: those accused, parts, and the pods of our own Jobs."""

from typing import Any

import pytest

from rules.api.repair_writes import WriteRepairObject
from rules.api.timestamps import format_time
from rules.session.repair.ladder import NO_ACCUSED_GPU, must_name, rungs
from tests.support.repair.job_world import JobWorld
from tests.support.scenario.provider_world import OWN_ADAPTERS, ProviderWorld, end_job
from tests.support.scenario.repair_world import NODE, RecordWorld, repair_policy
from tests.support.scenario.server.apiserver import OWN
from tests.support.scenario.session_world import CrashError

REST = {"RestartNode": {"adapter": "NodeConditions", "timeout": "30m"}}
NAMING = ["Resets", "ResetGPUJob"]


def world_of(name: str, *, gpus: list[str], accused: list[str]) -> ProviderWorld:
    """A fault that asks for a reset, on a node whose driver lists these GPUs."""
    kind = JobWorld if name == "ResetGPUJob" else ProviderWorld
    reset = {"adapter": name, "timeout": "30m"}
    world = kind(name, "ResetGPU", steps={"ResetGPU": reset, **REST})
    world.fault()
    status = world.healths[NODE]["status"]
    status["gpus"] = [{"uuid": gpu, "index": at, "serial": ""} for at, gpu in enumerate(gpus)]
    status["incidents"][0]["gpus"] = accused
    world.touch(world.healths[NODE])
    return world


def test_a_reset_that_names_its_gpus_is_held_to_it() -> None:
    for name in NAMING:
        action = world_of(name, gpus=[], accused=[]).action
        assert action is not None
        assert must_name("ResetGPU", action)
        assert not must_name("RestartNode", action)


@pytest.mark.parametrize("name", NAMING)
@pytest.mark.parametrize(
    ("gpus", "accused"),
    [(["GPU-a", "GPU-b"], []), (["GPU-a", "GPU-b"], ["GPU-gone"])],
    ids=["nobody", "one that is not there"],
)
def test_without_an_accused_gpu_none_is_reset(
    name: str, gpus: list[str], accused: list[str]
) -> None:
    world = world_of(name, gpus=gpus, accused=accused)
    world.run_until(NODE, "Repairing", step=5)
    session = world.session(NODE)
    health = world.snapshot().healths[NODE]
    shown = rungs(session, (), session.spec.causes, health, world.policy, world.now)
    text = {rung.step: rung.detail for rung in shown if rung.state == "Passed"}
    assert text["ResetGPU"] == NO_ACCUSED_GPU
    world.run(200, step=5)
    assert world.steps_of()[0][0] == "RestartNode"
    assert world.held("jobs") == []
    assert world.held("gpuresets") == []


OLD, NEW, OTHER = f"GPU-{NODE}-0", "GPU-new", "GPU-other"
SLOT = "0000:3b:00.0"


def gpu(uuid: str, pci: str = SLOT) -> dict[str, str]:
    return {"uuid": uuid, "serial": f"serial-of-{uuid[4:]}", "pci": pci, "health": "Healthy"}


class PartsWorld(RecordWorld):
    """A node with two GPUs with serial numbers, of which the first fails."""

    def __init__(self, *steps: str, **repair: str) -> None:
        super().__init__(*steps, **repair)
        self.gpus(gpu(OLD), gpu(OTHER, "0000:4b:00.0"))

    def gpus(self, *listed: dict[str, str]) -> None:
        status = self.healths[NODE]["status"]
        status["gpus"] = [dict(one) for one in listed]
        status["virtualization"] = "none"

    def swap(self, uuid: str = NEW) -> None:
        """The node was opened, the part replaced, and it boots."""
        self.gpus(gpu(uuid), gpu(OTHER, "0000:4b:00.0"))
        self.reboot(NODE)
        self.close_all(NODE)


def test_a_replaced_part_does_not_clear_the_old_one() -> None:
    """The runbook of a return ends with it, and the old part may be plugged in elsewhere."""
    world = PartsWorld(mode="Off")
    world.fail_until(NODE, "Quarantined")
    world.swap()
    world.run(60)
    world.annotate(NODE, "gpuward.io/repaired", f"{format_time(world.now)} RMA 4711 (ada)")
    world.run_until(NODE, "Released", limit=7200, step=5)
    world.keep_records()
    record = world.record()
    assert record.actions == ()
    assert "nothing on record counts against it" not in record.message


SOON_S = 20
"""A check at the Job, and two lists `drain.settle` apart."""
CLIMBS = {
    "ResetGPU": {"adapter": "ResetGPUJob", "timeout": "30m"},
    "RestartNode": {"adapter": "NodeConditions", "timeout": "30m"},
}
GETS_POWER = {
    "RestartNode": {"adapter": "RestartNodeJob", "timeout": "10m"},
    "PowerCycle": {"adapter": "Reboots", "timeout": "30m"},
}


def climbing(steps: dict[str, Any], does: str) -> JobWorld:
    first = next(iter(steps))
    world = JobWorld(steps[first]["adapter"], first, does)
    world.policy = repair_policy(steps=steps, adapters=OWN_ADAPTERS)
    world.fault()
    return world


def test_the_step_after_a_job_that_refused_follows_within_seconds() -> None:
    world = climbing(CLIMBS, "refuses")
    world.until(lambda: world.followed)
    ended_at = world.now
    world.until(lambda: world.asks(NODE, "GPUNeedsRestart"))
    assert world.now - ended_at <= SOON_S
    assert world.steps_of() == [("ResetGPU", "Failed"), ("RestartNode", "Asked")]
    after = [change.message for change in world.status_changes if change.at >= ended_at]
    assert not [message for message in after if "still uses a GPU" in message]


def test_a_silent_job_is_read_at_long_intervals() -> None:
    """Two reads in the time of the first second, then ever fewer, down to one each 5 s."""
    world = climbing(CLIMBS, "hangs")
    world.until(lambda: world.held("jobs"))
    before = len(world.gets)
    world.run(600)
    reads = [path for path, _ in world.gets[before:] if "/jobs/" in path]
    assert 60 <= len(reads) <= 600 / 5 + 20


def test_an_own_pod_that_does_not_terminate_is_named() -> None:
    world = climbing(CLIMBS, "refuses")
    world.pods_stay = True
    world.until(lambda: world.followed)
    world.run(60)
    pod = f"{OWN}/{world.job['metadata']['name']}-pod of Job {world.job['metadata']['name']}"
    assert f"RestartNode by NodeConditions is next, once {pod} has ended" in world.message(NODE)
    assert world.condition(NODE, "Blocked") == ""
    world.run(180)
    assert world.condition(NODE, "Blocked") == "PodUsesGPU"
    assert f"{pod} still uses one of its GPUs" in world.message(NODE)
    assert not world.asks(NODE, "GPUNeedsRestart")


def test_a_node_that_did_not_come_back_gets_its_power_cycle() -> None:
    """Its Job's pod runs for ever for the API server: no kubelet reports its end."""
    world = climbing(GETS_POWER, "hangs")
    world.until(lambda: world.held("jobs"))
    world.pods_stay = True
    world.set_ready(NODE, "Unknown")
    world.silence(NODE)
    world.run(1200, step=5)
    assert world.steps_of() == [("RestartNode", "Failed"), ("PowerCycle", "Asked")]


def test_a_pod_of_others_keeps_even_a_lost_node_from_its_power_cycle() -> None:
    world = climbing(GETS_POWER, "hangs")
    world.until(lambda: world.held("jobs"))
    world.set_ready(NODE, "Unknown")
    world.silence(NODE)
    world.add_pod("late", NODE, gpus=1, owner=None)
    world.run(1200, step=5)
    assert world.steps_of() == [("RestartNode", "Failed")]


@pytest.mark.parametrize("stops", ["pause", "nothing"])
def test_a_job_without_a_record_is_followed_and_labels_stay_cleared(
    stops: str,
) -> None:
    plain = climbing(CLIMBS, "heals")
    plain.until(lambda: plain.held("jobs"))
    world = climbing(CLIMBS, "heals")
    made = next(
        number
        for number, (_, write, _, _) in enumerate(plain.sent)
        if isinstance(write, WriteRepairObject) and write.verb == "create"
    )
    world.crash_after = made + 1
    with pytest.raises(CrashError):
        world.run(600)
    assert len(world.held("jobs")) == 1
    world.sleep(15)
    if stops == "pause":
        world.pause(all=True)
    world.restart()
    world.run(10)
    assert world.steps_of() == [("ResetGPU", "Asked")]
    assert world.moved
    end_job(world.job, "Complete")
    world.touch(world.job)
    world.run(SOON_S)
    assert world.settled
    assert len(world.asked_through()) == 1
