"""Nodes whose accelerators no agent knows: AMD and Neuron, with conditions of NPD or EKS."""

from typing import Any

import pytest

from rules.api import writes as d
from rules.api.timestamps import format_time
from tests.support.scenario.repair_world import NODE, RESTART, STEPS, RepairWorld
from tests.support.scenario.session_world import ROOMY, policy_of

AMD = "AMDGPUHardwareAssertionHwa"
"""A condition of ROCm's gpu-operator tests for node-problem-detector."""
EKS = "AcceleratedHardwareReady"
HARDWARE = "HardwareAssertion"
TRIGGER = {
    "match": f"condition {AMD}=True:{HARDWARE}",
    "reason": "AMDHardwareAssertion",
    "severity": "Fatal",
    "level": "Drain",
    "action": "RestartNode",
}


class AmdWorld(RepairWorld):
    """Nodes with label and resource of AMD, and a provider that restarts them."""

    def __init__(self, *triggers: dict[str, Any], nodes: int = 5, **sections: Any) -> None:
        super().__init__(nodes, does="reboots")
        self.policy = policy_of(
            **{
                "nodeSelector": "feature.node.kubernetes.io/amd-gpu=true",
                "budget": ROOMY,
                "external": list(triggers) or [TRIGGER],
                **sections,
            }
        )
        self.keeps_evidence = False
        for name, node in self.nodes.items():
            node["metadata"]["labels"] = {"feature.node.kubernetes.io/amd-gpu": "true"}
            node["status"]["allocatable"] = {"amd.com/gpu": "8"}
            self.problem(name, "False", "NoHardwareAssertion")
        self.healths.clear()

    def problem(
        self, node: str, status: str, reason: str, *, kind: str = AMD, age: float = 0
    ) -> None:
        """The detector writes its condition."""
        conditions = self.nodes[node]["status"]["conditions"]
        conditions[:] = [each for each in conditions if each["type"] != kind]
        at = format_time(self.now - age)
        known = {"type": kind, "status": status, "lastTransitionTime": at}
        conditions.append({**known, "reason": reason, "message": "AFID 24"})
        self.touch(self.nodes[node])

    def add_amd_pod(self, name: str, node: str, gpus: int = 8, **more: Any) -> None:
        limits = {"amd.com/gpu": str(gpus)}
        self.add_pod(
            name, node, containers=[{"name": "main", "resources": {"limits": limits}}], **more
        )

    def reboot(self, node: str) -> None:
        """The fault ends with the boot."""
        info = self.nodes[node]["status"]["nodeInfo"]
        info["bootID"] += "-again"
        self.problem(node, "False", "NoHardwareAssertion")


def test_the_reason_decides_and_counts_from_when_it_was_observed() -> None:
    world = AmdWorld()
    world.problem(NODE, "True", "Throttled", age=7200)
    world.run(600, step=10)
    assert not world.sessions(NODE), "another reason of the same condition"
    world.problem(NODE, "True", HARDWARE, age=7800)
    world.run(100, step=5)
    assert not world.sessions(NODE), "the transition is that of the status, not of the reason"
    world.run(40, step=5)
    (cause,) = world.session(NODE).spec.causes
    assert cause.message == f"Node condition {AMD} is True: {HARDWARE}: AFID 24"


def test_another_reason_of_the_same_status_closes_nothing() -> None:
    world = AmdWorld()
    world.problem(NODE, "True", HARDWARE)
    world.run(200, step=5)
    assert world.phase(NODE) == "Quarantined"
    world.problem(NODE, "True", "Throttled")
    world.run(1800, step=20)
    assert world.phase(NODE) == "Quarantined"
    world.problem(NODE, "False", "NoHardwareAssertion")
    world.run(900, step=10)
    assert world.phase(NODE) == "Released"


def test_a_reason_that_ends_with_a_star_takes_all_that_begin_so() -> None:
    match = f"condition {EKS}=False:Neuron*"
    world = AmdWorld({**TRIGGER, "match": match})
    world.problem(NODE, "False", "NeuronHBMUncorrectableError", kind=EKS)
    world.problem("n1", "False", "DCGMError", kind=EKS)
    world.run(300, step=5)
    assert world.phase(NODE) == "Quarantined"
    assert not world.sessions("n1")


def test_the_drain_evicts_the_pods_with_amd_gpus_within_their_pdb() -> None:
    world = AmdWorld(drain={"scope": "GPUPods"})
    world.add_amd_pod("serve-0", NODE)
    world.add_amd_pod("serve-1", "n1")
    world.add_pod("web", NODE, labels={"app": "other"})
    world.add_pdb("serve", minAvailable=2)
    world.problem(NODE, "True", HARDWARE)
    world.run(300, step=5)
    assert world.phase(NODE) == "Draining"
    assert "PDB team-a/serve" in world.message(NODE)
    world.add_amd_pod("serve-2", "n2")
    world.sync_pdbs()
    world.run(120, step=5)
    assert [write.name for write in world.writes(d.EvictPod)] == ["serve-0"]
    assert world.phase(NODE) == "Quarantined"


def test_nodes_of_one_gang_are_drained_together() -> None:
    world = AmdWorld()
    labels = {"jobset.sigs.k8s.io/jobset-name": "llm", "app": "llm"}
    for name in ("n0", "n1", "n2"):
        world.add_amd_pod(f"llm-{name}", name, labels=labels, owner=("batch/v1", "Job", "llm"))
    for name in ("n0", "n1"):
        world.problem(name, "True", HARDWARE)
    world.run(125, step=5)
    assert world.condition("n0", "Blocked") == "GangWindow"
    assert "JobSet team-a/llm" in world.message("n0")
    world.run(60, step=1)
    assert {write.node for write in world.writes(d.EvictPod)} == {"n0", "n1"}


def test_the_budget_holds_for_nodes_without_an_agent() -> None:
    world = AmdWorld(nodes=6, budget={**ROOMY, "maxUnavailable": {"percent": 100, "atMost": 1}})
    for name in ("n0", "n1", "n2"):
        world.problem(name, "True", HARDWARE)
    world.run(600, step=10)
    assert len([name for name in world.nodes if world.is_quarantined(name)]) == 1


def test_a_degraded_drain_waits_for_free_amd_gpus() -> None:
    world = AmdWorld({**TRIGGER, "severity": "Degraded"}, nodes=2)
    world.add_amd_pod("train", NODE)
    world.add_amd_pod("other", "n1", gpus=4, labels={"app": "other"})
    world.problem(NODE, "True", HARDWARE)
    world.run(400, step=10)
    assert world.phase(NODE) == "Draining"
    assert not world.writes(d.EvictPod)
    del world.pods["team-a", "other"]
    world.run(120, step=10)
    assert [write.name for write in world.writes(d.EvictPod)] == ["train"]


def test_free_gpus_of_another_vendor_are_no_room() -> None:
    world = AmdWorld({**TRIGGER, "severity": "Degraded"}, nodes=2)
    world.nodes["n1"]["status"]["allocatable"] = {"nvidia.com/gpu": "8"}
    world.add_amd_pod("train", NODE)
    world.problem(NODE, "True", HARDWARE)
    world.run(400, step=10)
    assert world.phase(NODE) == "Draining"
    assert not world.writes(d.EvictPod)


@pytest.mark.parametrize("known", ["an agent before", "a reset"])
def test_a_step_that_needs_an_agent_waits(known: str) -> None:
    first = "ResetGPU" if known == "a reset" else "RestartNode"
    world = AmdWorld({**TRIGGER, "action": first}, repair={"mode": "Auto", "steps": STEPS})
    if known == "an agent before":
        world.nodes[NODE]["metadata"]["labels"]["gpuward.io/health"] = "healthy"
    world.problem(NODE, "True", HARDWARE)
    world.run(1800, step=10)
    assert world.done == []
    assert f"{first} by NodeConditions is next: the node has no health" in world.message(NODE)


@pytest.mark.parametrize("mode", ["Auto", "Ask"])
def test_the_restart_is_requested_by_condition_and_the_node_returns(mode: str) -> None:
    world = AmdWorld(repair={"mode": mode, "steps": STEPS})
    world.problem(NODE, "True", HARDWARE)
    if mode == "Ask":
        world.run(600, step=10)
        assert world.condition(NODE, "RepairProposed") == "RestartNode"
        return
    world.run(1800, step=10)
    assert world.done == [(NODE, RESTART)]
    assert world.steps_of() == [("RestartNode", "Proven")]
    assert world.phase(NODE) == "Released"
