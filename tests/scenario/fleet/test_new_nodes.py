"""Nodes that were never tested are tested, and a failed test is a fault like any other."""

from collections.abc import Coroutine
from typing import Any

import msgspec
import pytest

from remediator.replica import Replica
from rules.api.repair_writes import CreateTestJob, DeleteTestJob, SetValidated
from rules.session.validation.jobs import LABEL_JOB
from tests.support.scenario.repair_world import result_json
from tests.support.scenario.server.apiserver import OWN
from tests.support.scenario.session_world import ROOMY, World, policy_of

TEMPLATE = {"spec": {"containers": [{"name": "validate", "image": "gpuward-agent:1"}]}}
SWEEP_S = 30.0


class NewNodeWorld(World):
    """The sweep of `remediator.controller.housekeeping`, a scheduler, and a kubelet for Jobs."""

    def __init__(self, nodes: int) -> None:
        validate = {"provider": "Job", "newNodes": True}
        super().__init__(policy_of(budget=ROOMY, validate=validate, release={"healthyFor": "1m"}))
        for name in self.add_nodes(nodes):
            self.nodes[name]["status"]["allocatable"] = {"nvidia.com/gpu": "8"}
        self.busy: set[str] = set()
        self.results = {name: (0, result_json("pass")) for name in self.nodes}
        meta = {"name": "gpuward-validate", "namespace": OWN, "uid": "t"}
        self.templates["gpuward-validate"] = {"metadata": meta, "template": TEMPLATE}

    def _parts(self, replica: Replica) -> list[Coroutine[Any, Any, None]]:
        return [*super()._parts(replica), replica.new_node_tests.run()]

    def sweep(self) -> list[str]:
        """Until the next sweep; the nodes whose test was made."""
        before = len(self.writes(CreateTestJob))
        self.run(SWEEP_S, step=SWEEP_S)
        return [write.node for write in self.writes(CreateTestJob)[before:]]

    def sweep_for(self, seconds: float) -> None:
        self.run(seconds, step=SWEEP_S)

    def run_controllers(self) -> None:
        super().run_controllers()
        self._run_pods()

    def _run_pods(self) -> None:
        for name, job in self.jobs.items():
            node = job["metadata"]["annotations"]["gpuward.io/node"]
            if job.get("status") or node in self.busy:
                continue
            if (OWN, name) not in self.pods:
                self.add_pod(name, node, namespace=OWN, owner=("batch/v1", "Job", name))
                pod = self.pods[OWN, name]
                pod["metadata"]["ownerReferences"][0]["uid"] = job["metadata"]["uid"]
                pod["metadata"]["labels"] = {LABEL_JOB: name}
                pod["status"]["containerStatuses"][0]["name"] = "validate"
                pod["spec"]["containers"][0]["name"] = "validate"
                continue
            status, text = self.results[node]
            pod = self.pods[OWN, name]
            ended = {"exitCode": status, "message": text}
            pod["status"]["containerStatuses"][0]["state"] = {"terminated": ended}
            pod["status"]["phase"] = "Failed" if status else "Succeeded"
            kind = "Failed" if status else "Complete"
            job["status"] = {"conditions": [{"type": kind, "status": "True", "reason": "x"}]}

    def validated(self, node: str) -> str:
        known = self.node(node).condition("GPUValidated")
        return known.status if known is not None else ""


def test_every_new_node_is_tested_once_and_at_most_ten_at_once() -> None:
    world = NewNodeWorld(nodes=12)
    assert len(world.sweep()) == 10
    world.sweep_for(1200)
    assert {world.validated(name) for name in world.nodes} == {"True"}
    world.now += 7 * 86_400.0
    world.sweep_for(300)
    assert len(world.writes(CreateTestJob)) == 12
    assert world.quarantines == {}


def test_no_node_is_tested_where_the_policy_does_not_ask() -> None:
    world = NewNodeWorld(nodes=2)
    world.policy = policy_of(budget=ROOMY, validate={"provider": "Job"})
    assert world.sweep() == []


def test_its_pod_asks_for_all_gpus_at_the_lowest_priority_on_that_node() -> None:
    world = NewNodeWorld(nodes=1)
    for key in ("readiness.k8s.io/gpu-validated", "team", "node.kubernetes.io/disk-pressure"):
        world.taint("n0", key)
    (name,) = world.sweep()
    (job,) = world.jobs.values()
    spec = job["spec"]["template"]["spec"]
    assert "nodeName" not in spec
    assert spec["priorityClassName"] == "gpuward-new-node-test"
    assert spec["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "8"}
    assert name in str(spec["affinity"])
    tolerated = [t["key"] for t in spec["tolerations"]]
    assert tolerated == ["readiness.k8s.io/gpu-validated", "team"]
    assert "ownerReferences" not in job["metadata"]


def test_a_busy_node_is_left_alone_and_tried_again_in_an_hour() -> None:
    world = NewNodeWorld(nodes=2)
    world.busy = {"n0"}
    world.sweep_for(600)
    assert world.validated("n0") == ""
    assert world.validated("n1") == "True"
    assert all("n1" in name for name in world.jobs), "the Job that waited is gone"
    world.busy = set()
    world.sweep_for(3600)
    assert world.validated("n0") == "True"


def test_a_failed_test_quarantines_within_budget_and_its_repair_is_tested() -> None:
    world = NewNodeWorld(nodes=3)
    world.results["n1"] = (2, result_json("fail", value=7.0))
    world.sweep_for(300)
    assert world.validated("n1") == "False"
    session = world.session("n1")
    (cause,) = session.spec.causes
    assert (cause.source, cause.reason, cause.severity) == (
        "Validation",
        "ValidationFailed",
        "Fatal",
    )
    assert world.phase("n1") == "Quarantined"
    assert world.condition("n1", "NeedsHuman") == "ValidationFailed"
    assert {world.phase("n0"), world.phase("n2")} == {""}
    assert len(world.sessions("n1")) == 1


def test_where_the_policy_only_reports_failed_tests_no_session_opens() -> None:
    world = NewNodeWorld(nodes=2)
    world.policy = msgspec.structs.replace(
        world.policy, reasons=policy_of(reasons={"ValidationFailed": {"level": "Report"}}).reasons
    )
    world.results["n1"] = (2, result_json("fail", value=7.0))
    world.sweep_for(300)
    assert world.validated("n1") == "False"
    assert world.quarantines == {}


@pytest.mark.parametrize("why", ["cordon", "opt-out", "hold", "pause", "session", "mig", "shadow"])
def test_a_node_with_another_matter_is_not_tested(why: str) -> None:
    world = NewNodeWorld(nodes=2)
    match why:
        case "cordon":
            world.cordon("n0")
        case "opt-out":
            world.nodes["n0"]["metadata"]["labels"]["gpuward.io/opt-out"] = "true"
        case "hold":
            world.annotate("n0", "gpuward.io/hold", "x")
        case "pause":
            world.pause(nodes=["n0"])
        case "session":
            world.open_by_operator("n0")
        case "mig":
            world.nodes["n0"]["status"]["allocatable"] = {"nvidia.com/mig-1g.10gb": "7"}
        case "shadow":
            shadow = policy_of(mode="Shadow").mode
            world.policy = msgspec.structs.replace(world.policy, mode=shadow)
    expected = [] if why == "shadow" else ["n1"]
    assert world.sweep() == expected


def test_a_test_that_runs_when_its_node_falls_ill_is_ended() -> None:
    world = NewNodeWorld(nodes=2)
    world.sweep_for(30)
    assert len(world.jobs) == 2
    world.incident("n0")
    world.cycle()
    world.sweep()
    assert all("n1" in name for name in world.jobs)


def test_a_result_of_another_boot_or_of_a_foreign_job_does_not_count() -> None:
    world = NewNodeWorld(nodes=2)
    world.sweep_for(60)
    world.reboot("n0")
    for job in world.jobs.values():
        if job["metadata"]["annotations"]["gpuward.io/node"] == "n1":
            job["metadata"]["annotations"]["gpuward.io/test-of"] = "somebody"
    world.sweep_for(60)
    assert (world.validated("n0"), world.validated("n1")) == ("", "")


def test_a_passed_job_goes_once_its_result_is_on_the_node_and_a_failed_one_is_kept() -> None:
    world = NewNodeWorld(nodes=3)
    world.results["n1"] = (2, result_json("fail", value=7.0))
    world.sweep_for(300)
    assert [world.validated(f"n{index}") for index in range(3)] == ["True", "False", "True"]
    (left,) = world.jobs
    assert "n1" in left
    sent, asked = len(world.sent), len(world.gets)
    world.sweep_for(300)
    assert list(world.jobs) == [left]
    of_pods = [selector for path, selector in world.gets[asked:] if path.endswith("/pods")]
    assert not any(LABEL_JOB in each for each in of_pods), "nobody reads what is known"
    assert not any(isinstance(w, SetValidated | DeleteTestJob) for _, w, _, _ in world.sent[sent:])


@pytest.mark.parametrize("claims", [True, False])
def test_a_node_is_tested_by_a_template_that_requests_gpus_as_it_offers_them(
    claims: bool,
) -> None:
    world = NewNodeWorld(nodes=3)
    for name in ("n1", "n2"):
        world.nodes[name]["status"]["allocatable"] = {"cpu": "8"}
    world.nodes["n1"]["metadata"]["labels"]["gpuward.io/gpus"] = "8"
    world.nodes["n2"]["metadata"]["labels"] |= {"gpuward.io/gpus": "8", "gpuward.io/mig": "all"}
    if claims:
        given = [{"name": "gpus", "resourceClaimTemplateName": "gpuward-validate"}]
        spec = {**TEMPLATE["spec"], "resourceClaims": given}
        world.templates["gpuward-validate"]["template"] = {"spec": spec}
    assert world.sweep() == (["n1"] if claims else ["n0"])
    (job,) = world.jobs.values()
    requested = job["spec"]["template"]["spec"]["containers"][0].get("resources", {})
    assert ("limits" in requested) is not claims
    world.sweep_for(300)
    tested = {name for name in world.nodes if world.validated(name)}
    assert tested == ({"n1"} if claims else {"n0"})
