"""A cluster whose nodes are repaired through one adapter, and the system that follows its
requests.

The provider sees only what it would see in its own cluster: an object, a taint and cordon on one,
one that went. A minute later it ends in one of the ways that providers end: heals, gives up,
hangs, lies.
"""

from typing import Any

from rules.api.names import ANNOTATION_RELEASE_GPU, DEPLOYED, PAUSED_BY_US, PREFIX_GPU_DEPLOY
from rules.api.repair_writes import WriteRepairObject
from rules.api.timestamps import format_time
from rules.repair.adapter import ADAPTERS, NewObject
from rules.repair.ladder import Step
from tests.support.scenario.repair_world import NODE, RepairWorld, repair_policy
from tests.support.scenario.server.apiserver import OWN, VERSIONS

JANITOR = "janitor.dgxc.nvidia.com/v1alpha1"
OWN_ADAPTERS: dict[str, Any] = {
    "Reboots": {
        "object": {
            "apiVersion": JANITOR,
            "kind": "RebootNode",
            "spec": {"nodeName": "{node}"},
        },
        "resource": "rebootnodes",
    },
    "Resets": {
        "object": {
            "apiVersion": JANITOR,
            "kind": "GPUReset",
            "spec": {"nodeName": "{node}", "selector": {"uuids": "{gpuUUIDs}"}},
        },
        "resource": "gpuresets",
    },
    "Remediation": {
        "object": {
            "apiVersion": "self-node-remediation.medik8s.io/v1alpha1",
            "kind": "SelfNodeRemediation",
            "metadata": {
                "name": "{node}",
                "namespace": "medik8s",
                "annotations": {"remediation.medik8s.io/node-name": "{node}"},
            },
            "spec": {"remediationStrategy": "Automatic"},
        },
        "resource": "selfnoderemediations",
        "failed": "Succeeded=False",
    },
    "Operation": {"label": "oke.oraclecloud.com/node_operation=gpuward-reboot"},
}
"""What a policy may bring: new objects, with a name of gpuward or the node's, and a label."""
ROWS = [
    *(
        (name, str(step))
        for name, adapter in ADAPTERS.items()
        for step in adapter.steps
        if name != "NodeConditions"
    ),
    ("Reboots", "RestartNode"),
    ("Reboots", "PowerCycle"),
    ("Resets", "ResetGPU"),
    ("Remediation", "RestartNode"),
    ("Operation", "RestartNode"),
]
"""Every adapter that is shipped, with each of its steps, and those of a policy's own."""
OPERANDS = tuple(f"{PREFIX_GPU_DEPLOY}{name}" for name in ("device-plugin", "dcgm-exporter"))
POD = {
    "metadata": {"labels": {"app.kubernetes.io/name": "gpuward"}},
    "spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "agent"}]},
}


def steps_for(name: str, step: str, **more: Any) -> dict[str, Any]:
    """The policy's line for one step."""
    return {step: {"adapter": name, "timeout": "30m", **more}}


class ProviderWorld(RepairWorld):
    """One faulty node and its repair provider."""

    def __init__(self, name: str, step: str, does: str = "heals", **repair: Any) -> None:
        super().__init__(nodes=0, does=does)
        self.installed |= VERSIONS
        self.adapter, self.step = name, step
        wanted = {
            "steps": steps_for(name, step),
            "adapters": OWN_ADAPTERS,
            "attempts": 1,
            **repair,
        }
        self.policy = repair_policy(**wanted)
        self.action = self.policy.repair.action(name, step)
        self.add_nodes(2)
        self.followed: list[float] = []
        self._since: float | None = None
        self._standing(NODE)

    def _standing(self, node: str) -> None:
        """What is there in a cluster with such a system."""
        for key in sorted(self.nodes):
            meta = self.nodes[key]["metadata"]
            meta["annotations"]["cluster.x-k8s.io/machine"] = f"m-{key}"
            self.put(
                "cluster.x-k8s.io/v1beta2",
                "machines",
                f"m-{key}",
                "capi",
                spec={"clusterName": "c"},
                status={"phase": "Running", "nodeRef": {"name": key}},
            )
            self.put(
                "karpenter.sh/v1",
                "nodeclaims",
                f"claim-{key}",
                metadata={"finalizers": ["karpenter.sh/termination"]},
                spec={},
                status={"nodeName": key},
            )
            self.put(JANITOR, "rebootnodes", f"old-{key}", spec={"nodeName": "elsewhere"})
            if self.adapter == "ResetGPUJob":
                meta["labels"] |= dict.fromkeys(OPERANDS, DEPLOYED)
        if isinstance(self.action, NewObject) and self.action.pod:
            self.put("v1", "podtemplates", self.action.pod, OWN, template=POD)

    def fault(self) -> None:
        """An incident that asks for the step, with a GPU that the agent knows."""
        self.incident(NODE)
        status = self.healths[NODE]["status"]
        status["incidents"][0]["recommendedAction"] = self.step
        status["gpus"] = [{"uuid": f"GPU-{NODE}-0", "index": 0, "serial": "s0"}]
        status["expectedGpus"] = {"count": 1}

    # ------------------------------------------------------------------ state

    def requests(self) -> list[dict[str, Any]]:
        """Objects and Nodes that carry a request of gpuward."""
        every = [*self.objects.values(), *self.nodes.values()]
        carry = [o for o in every if "gpuward.io/repair" in o["metadata"].get("annotations", {})]
        # A Job that is over is left for people to read, and does no more.
        return [o for o in carry if o.get("kind") != "Job" or not job_over(o)]

    def wanted(self) -> bool:
        """Whether the provider finds something to do."""
        if self.adapter == "Karpenter":
            claims = [o for o in self.held("nodeclaims") if o["status"]["nodeName"] == NODE]
            return any("deletionTimestamp" in c["metadata"] for c in claims)
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

    def run_controllers(self) -> None:
        super().run_controllers()
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
        self._consume()
        match self.step:
            case Step.RESET_GPU | Step.RESTART_DRIVER:
                for gpu in self.healths[NODE]["status"]["gpus"]:
                    gpu["resetAt"] = format_time(self.now)
                for incident in self.healths[NODE]["status"]["incidents"]:
                    incident |= {"active": False, "closedBy": "Reset"}
            case Step.REPLACE_NODE:
                self.replace_node(NODE)
            case _:
                self.reboot(NODE)
                self.close_all(NODE)

    def _consume(self) -> None:
        """What providers take away themselves when they have done it."""
        for one in self.requests():
            if one.get("kind") == "Job":
                end_job(one, "Complete")
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
            del self.objects[path]
        self.add_node(node)
        self.nodes[node]["metadata"]["annotations"] |= annotations

    def _say_failed(self) -> None:
        failed = self.action.failed if isinstance(self.action, NewObject) else None
        assert failed is not None
        for one in self.requests():
            one.setdefault("status", {})["conditions"] = [
                {"type": failed.type, "status": failed.status, "reason": failed.reason}
            ]
            self.touch(one)

    def _say_done(self) -> None:
        for one in self.requests():
            if "conditions" in one.get("status", {}) and one in self.nodes.values():
                continue
            conditions = ("Succeeded", "Complete", "NodeReady", "SignalSent", "Ready")
            one.setdefault("status", {})["conditions"] = [
                {"type": one, "status": "True"} for one in conditions
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


def power_cycle() -> ProviderWorld:
    """A power cycle that was asked for and does not happen."""
    world = ProviderWorld("Reboots", "PowerCycle", "hangs")
    world.fault()
    world.run(200, step=20)
    assert world.requests()
    return world
