"""A cluster whose nodes are repaired through one adapter, and the system that follows its
requests.

The provider sees only what it would see in its own cluster: an object, a mark on one, one that
went. A minute later it ends in one of the ways that providers end: heals, gives up, hangs, lies.
"""

from __future__ import annotations

from typing import Any

from rules.api.names import ANNOTATION_RELEASE_GPU, DEPLOYED, PAUSED_BY_US, PREFIX_GPU_DEPLOY
from rules.api.repair.writes import ObjectAddress, WriteRepairObject
from rules.api.timestamps import format_time
from rules.repair.ladder import Step
from rules.repair.shipped import ADAPTERS
from tests.support.scenario.repair_world import NODE, RepairWorld, repair_policy
from tests.support.scenario.server.apiserver import OWN
from tests.support.scenario.server.provider_objects import VERSIONS

TEMPLATES = {
    "SelfNodeRemediation": {"remediationStrategy": "Automatic"},
    "FenceAgentsRemediation": {"agent": "fence_ipmilan", "timeout": "60s"},
    "MachineDeletionRemediation": {},
}
ROWS = [
    (name, str(step))
    for name, adapter in ADAPTERS.items()
    for step in adapter.steps
    if name != "NodeConditions"
]
"""Every adapter that is shipped, with each of its steps."""
OPERANDS = tuple(f"{PREFIX_GPU_DEPLOY}{name}" for name in ("device-plugin", "dcgm-exporter"))
POD = {
    "metadata": {"labels": {"app.kubernetes.io/name": "gpuward"}},
    "spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "agent"}]},
}
MACHINE_ANNOTATION = "machine.openshift.io/machine"
REBOOT_CAPABLE = "is-reboot-capable.self-node-remediation.medik8s.io"
HELD_OFF = "reboot.metal3.io/gpuward"
"""The annotation that keeps a host off."""
DRIVER = {"app.kubernetes.io/component": "nvidia-driver"}


def steps_for(name: str, step: str, **more: Any) -> dict[str, Any]:
    """The policy's line for one step."""
    wanted: dict[str, Any] = {"adapter": name, "timeout": "30m", **more}
    if name in TEMPLATES:
        wanted["template"] = "medik8s/gpu"
    return {step: wanted}


class ProviderWorld(RepairWorld):
    """One node at fault, and whoever repairs it."""

    def __init__(self, name: str, step: str, does: str = "heals", **repair: Any) -> None:
        super().__init__(nodes=0, does=does)
        self.installed |= VERSIONS
        self.adapter, self.step = name, step
        wanted = {"steps": steps_for(name, step), "attempts": 1, **repair}
        self.policy = repair_policy(**wanted)
        self.action = self.policy.repair.action(name, step)
        self.add_nodes(2)
        self.followed: list[float] = []
        self._since: float | None = None
        self._standing(NODE)

    def _standing(self, node: str) -> None:
        """What is there in a cluster with such a system."""
        for index, key in enumerate(sorted(self.nodes)):
            meta = self.nodes[key]["metadata"]
            meta["annotations"] |= {
                "cluster.x-k8s.io/machine": f"m-{key}",
                "cluster.x-k8s.io/cluster-namespace": "capi",
                MACHINE_ANNOTATION: f"openshift/m-{key}",
                REBOOT_CAPABLE: "true",
            }
            if self.adapter == "HyperPod":
                meta["labels"]["sagemaker.amazonaws.com/node-health-status"] = "Schedulable"
            self.nodes[key]["spec"]["providerID"] = f"metal3://metal/host-{key}/{index}"
            self.put(
                "cluster.x-k8s.io/v1beta2",
                "machines",
                f"m-{key}",
                "capi",
                spec={
                    "clusterName": "c",
                    "infrastructureRef": {"kind": "Metal3Machine", "name": f"m3m-{key}"},
                },
                status={"phase": "Running", "nodeRef": {"name": key}},
            )
            self.put(
                "machine.openshift.io/v1beta1",
                "machines",
                f"m-{key}",
                "openshift",
                status={"nodeRef": {"name": key}},
            )
            self.put(
                "metal3.io/v1alpha1",
                "baremetalhosts",
                f"host-{key}",
                "metal",
                spec={
                    "online": True,
                    "consumerRef": {
                        "kind": "Metal3Machine",
                        "name": f"m3m-{key}",
                        "namespace": "capi",
                    },
                },
                status={"poweredOn": True, "operationalStatus": "OK"},
            )
            self.put(
                "karpenter.sh/v1",
                "nodeclaims",
                f"claim-{key}",
                metadata={"finalizers": ["karpenter.sh/termination"]},
                spec={},
                status={"nodeName": key},
            )
            self.put(
                "janitor.dgxc.nvidia.com/v1alpha1",
                "rebootnodes",
                f"old-{key}",
                spec={"nodeName": "elsewhere"},
            )
            if self.adapter == "GPUOperator":
                self._driver_pod(key)
            if self.adapter == "ResetGPUJob":
                meta["labels"] |= dict.fromkeys(OPERANDS, DEPLOYED)
        if self.action is not None and self.action.pod:
            self.put("v1", "podtemplates", self.action.pod, OWN, template=POD)
        for kind, spec in TEMPLATES.items():
            group = _medik8s_group(kind)
            self.put(
                f"{group}/v1alpha1",
                f"{kind.lower()}templates",
                "gpu",
                "medik8s",
                spec={"template": {"spec": spec}},
            )

    def _driver_pod(self, node: str) -> None:
        self.add_pod(
            f"nvidia-driver-{node}-{self.version}",
            node,
            namespace="gpu-operator",
            owner=("apps/v1", "DaemonSet", "nvidia-driver"),
            labels=DRIVER,
        )
        self.add_daemonset_owner("DaemonSet-gpu-operator-nvidia-driver")

    def fault(self) -> None:
        """An incident that asks for the step, with a GPU that the agent knows."""
        self.incident(NODE)
        status = self.healths[NODE]["status"]
        status["incidents"][0]["recommendedAction"] = _BEGINS.get(self.step, self.step)
        status["gpus"] = [{"uuid": f"GPU-{NODE}-0", "index": 0, "serial": "s0"}]
        status["expectedGpus"] = {"count": 1}

    # ------------------------------------------------------------------ what stands there

    def requests(self) -> list[dict[str, Any]]:
        """Objects and Nodes that carry a request of ours."""
        every = [*self.objects.values(), *self.nodes.values()]
        carry = [o for o in every if "gpuward.io/repair" in o["metadata"].get("annotations", {})]
        # A Job that is over is left for people to read, and does no more.
        return [o for o in carry if o.get("kind") != "Job" or not job_over(o)]

    def wanted(self) -> bool:
        """Whether the provider finds something to do."""
        if self.adapter == "Karpenter":
            claims = [o for o in self.held("nodeclaims") if o["status"]["nodeName"] == NODE]
            return any("deletionTimestamp" in c["metadata"] for c in claims)
        if self.adapter == "GPUOperator":
            return not any(
                pod["spec"]["nodeName"] == NODE and pod["metadata"]["namespace"] == "gpu-operator"
                for pod in self.pods.values()
            )
        return bool(self.requests())

    def asked_through(self) -> list[WriteRepairObject]:
        """Every request that was accepted, in order."""
        return [
            write
            for _, write, _, status in self.sent
            if isinstance(write, WriteRepairObject) and write.asks and status < 300
            if not _moves_away(write)
        ]

    # ------------------------------------------------------------------ the provider

    def _controllers(self) -> None:
        super()._controllers()
        if not self.wanted():
            self._since = None
            return
        self._since = self.now if self._since is None else self._since
        if self.now - self._since < 60 or self.followed:
            return
        self.followed.append(self.now)
        match self.does:
            case "heals":
                self._act()
            case "gives up":
                self._say_failed()
            case "lies":
                self._say_done()
                if self.step != Step.RESET_GPU:
                    self.close_all(NODE)

    def _act(self) -> None:
        if self.adapter == "Metal3" and self.step == Step.POWER_CYCLE:
            # Off until the annotation goes; on again, the node boots.
            self.objects[host_of(NODE)]["status"]["poweredOn"] = False
            return
        self._consume()
        match self.step:
            case Step.RESET_GPU | Step.RESTART_DRIVER:
                if self.adapter == "GPUOperator":
                    self._driver_pod(NODE)
                for gpu in self.healths[NODE]["status"]["gpus"]:
                    gpu["resetAt"] = format_time(self.now)
                for incident in self.healths[NODE]["status"]["incidents"]:
                    incident |= {"active": False, "closedBy": "Reset"}
            case Step.REPLACE_NODE:
                self.replace_node(NODE)
            case _:
                self.reboot(NODE)
                self.close_all(NODE)

    def power_comes_back(self) -> None:
        """The host of a power cycle boots once nobody keeps it off."""
        host = self.objects[host_of(NODE)]
        keys = host["metadata"].get("annotations", {})
        if not host["status"]["poweredOn"] and HELD_OFF not in keys:
            host["status"]["poweredOn"] = True
            self.reboot(NODE)
            self.close_all(NODE)

    def _consume(self) -> None:
        """What providers take away themselves when they have done it."""
        for one in self.requests():
            if one.get("kind") == "Job":
                end_job(one, "Complete")
            one["metadata"]["annotations"].pop("reboot.metal3.io", None)
            labels = one["metadata"].get("labels", {})
            if "sagemaker.amazonaws.com/node-health-status" in labels:
                labels["sagemaker.amazonaws.com/node-health-status"] = "Schedulable"
            self.touch(one)

    def replace_node(self, node: str) -> None:
        """The machine goes with its Node; another one registers under the same name."""
        annotations = {
            key: value
            for key, value in self.nodes[node]["metadata"]["annotations"].items()
            if "gpuward" not in key
        }
        del self.nodes[node], self.healths[node]
        for path in [p for p, o in self.objects.items() if o["metadata"]["name"].endswith(node)]:
            if path != host_of(node):
                del self.objects[path]
        self.add_node(node)
        self.nodes[node]["metadata"]["annotations"] |= annotations

    def _say_failed(self) -> None:
        for one in self.requests():
            for match in self.action.failed if self.action else ():
                if match.condition:
                    status = "True" if match.value is None else str(match.value)
                    one.setdefault("status", {})["conditions"] = [
                        {"type": match.condition, "status": status, "reason": match.reason}
                    ]
                else:
                    one["status"][match.field.rpartition(".")[2]] = match.value
                self.touch(one)

    def _say_done(self) -> None:
        for one in self.requests():
            if "conditions" in one.get("status", {}) and one in self.nodes.values():
                continue
            words = ("Succeeded", "Complete", "NodeReady", "SignalSent", "Ready")
            one.setdefault("status", {})["conditions"] = [
                {"type": word, "status": "True"} for word in words
            ]
            self.touch(one)


def job_over(job: dict[str, Any]) -> bool:
    """Whether the Job controller calls it Complete or Failed."""
    shown = job.get("status", {}).get("conditions", ())
    return any(c["type"] in {"Complete", "Failed"} and c["status"] == "True" for c in shown)


def end_job(job: dict[str, Any], kind: str, reason: str = "") -> None:
    """What the Job controller writes at its end."""
    job["status"] = {"conditions": [{"type": kind, "status": "True", "reason": reason}]}


def _moves_away(write: WriteRepairObject) -> bool:
    """Whether it only moves others off the GPUs."""
    meta: dict[str, Any] = write.body.get("metadata", {})
    return write.address.resource == "nodes" and (
        ANNOTATION_RELEASE_GPU in (meta.get("annotations") or {})
        or PAUSED_BY_US in (meta.get("labels") or {}).values()
    )


_BEGINS = {"RestartDriver": "RestartFabricManager"}


def host_of(node: str) -> str:
    """Where the BareMetalHost of a node is."""
    return ObjectAddress(
        api_version="metal3.io/v1alpha1",
        resource="baremetalhosts",
        namespace="metal",
        name=f"host-{node}",
    ).path


def _medik8s_group(kind: str) -> str:
    return {
        "SelfNodeRemediation": "self-node-remediation.medik8s.io",
        "FenceAgentsRemediation": "fence-agents-remediation.medik8s.io",
        "MachineDeletionRemediation": "machine-deletion-remediation.medik8s.io",
    }[kind]


def power_cycle() -> ProviderWorld:
    """A host that was asked to go off and does not."""
    world = ProviderWorld("Metal3", "PowerCycle", "hangs")
    world.fault()
    world.run(200, step=20)
    assert world.requests()
    return world
