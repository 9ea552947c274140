"""While pods use the node's other GPUs, a test loads only the repaired GPU, or is skipped."""

import copy
from typing import Any

import pytest

from rules.session.validation.jobs import ANNOTATION_SINGLE, VISIBLE_GPUS
from tests.support.scenario.repair_world import NODE, ROOMY, ValidationWorld
from tests.support.scenario.session_world import policy_of

GPU = f"GPU-{NODE}-0"
SINGLE = {ANNOTATION_SINGLE: "true"}
CLAIMS = {"resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": "all"}]}


class PartWorld(ValidationWorld):
    """A node of two GPUs, of which one fails; the drain scope is Holders."""

    def __init__(self, annotations: dict[str, str], **spec: Any) -> None:
        super().__init__("passes")
        validate, drain = {"provider": "Job"}, {"scope": "Holders"}
        self.policy = policy_of(budget=ROOMY, validate=validate, drain=drain)
        template = self.templates["gpuward-validate"]
        template["metadata"]["annotations"] = annotations
        template["template"]["spec"] |= spec
        container = template["template"]["spec"]["containers"][0]
        container["env"] = [{"name": VISIBLE_GPUS, "value": "all"}, {"name": "A", "value": "b"}]

    def falls_ill_and_heals(self, gpu: str = GPU) -> None:
        status = self.healths[NODE]["status"]
        status["gpus"] = [{"uuid": each} for each in (gpu, f"GPU-{NODE}-1")]
        self.incident(NODE, gpu=gpu)
        status["incidents"][0] |= {"scope": "GPU", "recommendedAction": "ResetGPU"}
        self.touch(self.healths[NODE])
        self.run_until(NODE, "Quarantined")
        assert self.session(NODE).status.drain is not None
        self.close_all(NODE)
        self.run_until(NODE, "Validating")

    def variables(self) -> list[dict[str, str]]:
        (job,) = self.jobs.values()
        (container,) = job["spec"]["template"]["spec"]["containers"]
        found: list[dict[str, str]] = container["env"]
        return found


def test_only_the_repaired_gpu_is_visible_to_the_test() -> None:
    world = PartWorld(SINGLE)
    world.falls_ill_and_heals()
    before = copy.deepcopy(world.templates)
    world.run(60)
    assert world.variables() == [{"name": "A", "value": "b"}, {"name": VISIBLE_GPUS, "value": GPU}]
    assert world.templates == before
    world.run_until(NODE, "Released")
    assert world.tests_of() == [("Passed", "pass")]


@pytest.mark.parametrize(
    ("annotations", "spec", "gpu"),
    [({}, {}, GPU), (SINGLE, CLAIMS, GPU), (SINGLE, {}, "all"), (SINGLE, {}, "GPU-x,all")],
    ids=["not valid for single GPUs", "claims", "all", "several"],
)
def test_a_test_that_could_load_other_gpus_is_skipped(
    annotations: dict[str, str], spec: dict[str, Any], gpu: str
) -> None:
    world = PartWorld(annotations, **spec)
    world.falls_ill_and_heals(gpu)
    world.run_until(NODE, "Released")
    assert world.made() == []
    assert [state for state, _ in world.tests_of()] == ["Skipped"]
    (test,) = world.session(NODE).status.validation
    assert "PodTemplate gpuward-validate cannot test single GPUs" in test.message
    assert any(entry.step == "TestSkipped" for entry in world.session(NODE).status.timeline)
    assert world.node(NODE).condition("GPUValidated") is None


def test_once_all_gpu_pods_are_evicted_a_skipped_test_runs_on_all_gpus() -> None:
    world = PartWorld({})
    world.falls_ill_and_heals()
    world.run(60)
    assert [state for state, _ in world.tests_of()] == ["Skipped"]
    stored = world.quarantines[world.session(NODE).name]
    stored["status"]["drain"]["scope"] = "GPUPods"
    world.touch(stored)
    world.run(60)
    assert world.variables()[0] == {"name": VISIBLE_GPUS, "value": "all"}
