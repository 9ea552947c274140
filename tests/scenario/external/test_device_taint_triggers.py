"""Taints that other DRA drivers put on devices are triggers, on nodes without an agent."""

from typing import Any

from rules.api import writes as d
from rules.api.timestamps import format_time
from rules.policy.policy import Policy
from tests.support.cluster.slices import NEURON, neuron_slice, taint
from tests.support.scenario.repair_world import NODE, RESTART, STEPS, RepairWorld
from tests.support.scenario.session_world import ROOMY, policy_of

KEY = "neuron.example/unhealthy"
TRIGGER = {
    "match": f"deviceTaint {NEURON} {KEY}",
    "reason": "NeuronDeviceTainted",
    "severity": "Fatal",
    "level": "Drain",
    "action": "RestartNode",
}
SLICES = "/apis/resource.k8s.io/v1/resourceslices/"


def neuron_policy(*triggers: dict[str, Any], **sections: Any) -> Policy:
    given = {"nodeSelector": "team=trn", "budget": ROOMY, "external": list(triggers) or [TRIGGER]}
    return policy_of(**{**given, **sections})


class NeuronWorld(RepairWorld):
    """Trainium nodes, and a provider that restarts them."""

    def __init__(self, *triggers: dict[str, Any], **sections: Any) -> None:
        super().__init__(3, does="reboots")
        self.policy = neuron_policy(*triggers, **sections)
        self.keeps_evidence = False
        self.installed["resource.k8s.io"] = "v1"
        self.generation = 0
        self.healths.clear()
        for name, node in self.nodes.items():
            node["metadata"]["labels"] = {"team": "trn"}
            node["status"]["allocatable"] = {"aws.amazon.com/neuron": "16"}
            self.publish(name)

    def publish(self, node: str, *taints: dict[str, Any], **more: Any) -> None:
        """The driver publishes the devices of the node again, the first one with these taints."""
        self.generation += 1
        devices = {"name": "neuron-0", "taints": list(taints)}, {"name": "neuron-1"}
        spec = neuron_slice(node, *devices, generation=self.generation, **more)
        self.put("resource.k8s.io/v1", "resourceslices", f"{node}-slice", spec=spec)

    def fault(self, node: str = NODE, **more: Any) -> None:
        self.publish(node, taint(KEY, timeAdded=format_time(self.now)), **more)

    def reboot(self, node: str) -> None:
        """The fault ends with the boot."""
        self.nodes[node]["status"]["nodeInfo"]["bootID"] += "-again"
        self.publish(node)

    def add_neuron_pod(self, name: str, node: str) -> None:
        limits = {"aws.amazon.com/neuron": "16"}
        self.add_pod(name, node, containers=[{"name": "main", "resources": {"limits": limits}}])


def test_a_tainted_device_drains_its_node_until_the_taint_leaves() -> None:
    world = NeuronWorld(drain={"scope": "GPUPods"})
    world.add_neuron_pod("train", NODE)
    world.add_pod("web", NODE, labels={"app": "other"})
    world.run(60, step=5)
    world.fault()
    world.run(110, step=5)
    assert not world.sessions(NODE), "it has not lasted for two minutes"
    world.run(120, step=5)
    assert [write.name for write in world.writes(d.EvictPod)] == ["train"]
    assert world.phase(NODE) == "Quarantined"
    assert world.nodes[NODE]["spec"]["unschedulable"]
    (cause,) = world.session(NODE).spec.causes
    expected = f"Node device neuron-0 of {NEURON} has taint {KEY}:NoExecute"
    assert (cause.source, cause.message) == ("External", expected)
    world.publish(NODE)
    world.run(900, step=10)
    assert world.phase(NODE) == "Released"
    assert not world.is_quarantined(NODE)
    assert not world.sessions("n1")


def test_missing_and_incomplete_slices_close_nothing() -> None:
    world = NeuronWorld()
    world.fault()
    world.run(200, step=5)
    assert world.phase(NODE) == "Quarantined"
    del world.objects[f"{SLICES}{NODE}-slice"]
    world.run(900, step=10)
    assert world.phase(NODE) == "Quarantined", "the driver does not run"
    world.publish(NODE, count=2)
    world.run(900, step=10)
    assert world.phase(NODE) == "Quarantined", "half of the pool is missing"
    world.restart()
    world.run(60, step=5)
    assert world.phase(NODE) == "Quarantined"
    world.publish(NODE)
    world.run(900, step=10)
    assert world.phase(NODE) == "Released"


def test_other_drivers_effects_and_the_taints_of_gpuward_open_nothing() -> None:
    world = NeuronWorld({**TRIGGER, "match": f"deviceTaint {NEURON} *"})
    world.publish(NODE, taint(KEY, "None"), taint("gpuward.io/quarantine", "NoSchedule"))
    world.fault("n1", driver="gpu.example.com")
    world.run(600, step=10)
    assert not world.quarantines
    world.fault()
    world.run(200, step=5)
    assert world.phase(NODE) == "Quarantined"


def test_the_slices_are_watched_only_while_the_policy_names_a_driver() -> None:
    world = NeuronWorld({**TRIGGER, "match": "condition GpuBroken"})
    world.run(60, step=5)
    assert not world.open_watches(SLICES.rstrip("/"))
    world.fault()
    world.policy = neuron_policy()
    world.run(200, step=5)
    assert world.phase(NODE) == "Quarantined"
    assert world.open_watches(SLICES.rstrip("/")) == 1
    world.policy = neuron_policy({**TRIGGER, "match": "condition GpuBroken"})
    world.run(900, step=10)
    assert not world.open_watches(SLICES.rstrip("/"))
    assert not world.replica.world.device_taints
    assert world.phase(NODE) == "Released", "the policy has no such trigger any more"


def test_the_repair_is_requested_and_the_node_returns() -> None:
    world = NeuronWorld(repair={"mode": "Auto", "steps": STEPS})
    world.fault()
    world.run(1800, step=10)
    assert world.done == [(NODE, RESTART)]
    assert world.phase(NODE) == "Released"
