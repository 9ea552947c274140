"""GPUs through DRA on one node of the demo, and the pods that claim them.

The simulated scheduler allocates no ResourceClaims. Pods that name the scheduler `dra` get their
claim and their node here: one untainted GPU each, or they wait.
"""

import asyncio
import contextlib
from typing import Any, Final

from hack.sim.cluster.client import Client, Object
from hack.sim.cluster.controllers.pods import is_ready, is_terminating
from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.fleet.fleet import Budget, Serving, budget_manifest, manifest
from hack.sim.cluster.resource import (
    DEPLOYMENTS,
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from hack.sim.demo.ledger import Ledger
from rules.api.device_taints import NO_SCHEDULE
from rules.api.resource_slices import GPU_DRIVER

SPACE: Final = "serving"
SCHEDULER: Final = "dra"
_CLAIM: Final = "gpu"
"""Name of the DeviceClass, of the template, and of the claim within a pod."""
_POLL_S: Final = 0.2
_ACTED_ON: Final = {
    "conditions": [{"type": "EvictionInProgress", "status": "False", "reason": "NotNoExecute"}]
}
"""What a controller manager with its feature gate on reports about a rule."""


class Devices:
    """The GPUs of one node and what they are allocated to."""

    def __init__(self, client: Client, ledger: Ledger, node: str) -> None:
        self._client = client
        self._ledger = ledger
        self._node = node
        self._gpus: list[str] = []
        self._claims: list[Object] = []
        self.tainted: set[str] = set()
        """Devices that a DeviceTaintRule keeps from new claims."""

    async def install(self, uuids: list[str]) -> None:
        """Publish the GPUs, and deploy a service of as many pods that claim one each."""
        client, self._gpus = self._client, [f"gpu-{index}" for index in range(len(uuids))]
        only = {"cel": {"expression": f"device.driver == '{GPU_DRIVER}'"}}
        device_class = {"metadata": {"name": _CLAIM}, "spec": {"selectors": [only]}}
        await client.create(DEVICE_CLASSES, device_class)
        devices = [
            {"name": name, "attributes": {"type": {"string": "gpu"}, "uuid": {"string": uuid}}}
            for name, uuid in zip(self._gpus, uuids, strict=True)
        ]
        pool = {"name": self._node, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": GPU_DRIVER, "nodeName": self._node, "pool": pool, "devices": devices}
        body = {"metadata": {"name": f"{self._node}-{GPU_DRIVER}"}, "spec": spec}
        await client.create(RESOURCE_SLICES, body)
        template = {"metadata": {"name": _CLAIM}, "spec": {"spec": _CLAIM_SPEC}}
        await client.create(RESOURCE_CLAIM_TEMPLATES, template, SPACE)
        budget = Budget(max_unavailable=1)
        service = Serving(
            name="dra", replicas=len(uuids), pool="dra", gpus=0, namespace=SPACE, budget=budget
        )
        deployment = manifest(service)
        pod = deployment["spec"]["template"]["spec"]
        pod["schedulerName"] = SCHEDULER
        pod["resourceClaims"] = [{"name": _CLAIM, "resourceClaimTemplateName": _CLAIM}]
        pod["containers"][0]["resources"]["claims"] = [{"name": _CLAIM}]
        await client.create(DEPLOYMENTS, deployment)
        await client.create(POD_DISRUPTION_BUDGETS, budget_manifest(service) or {})

    async def run(self) -> None:
        """Allocate GPUs to pods that wait for one, for ever."""
        while True:
            # A pod may go meanwhile; what is left of its claim goes with the next pass.
            with contextlib.suppress(ApiError):
                await self._allocate()
            await asyncio.sleep(_POLL_S)

    def holders(self) -> dict[str, str]:
        """The device of each ready pod, by the pod's UID."""
        pods = self._pods()
        return {
            uid: _device(claim)
            for claim in self._claims
            if (uid := _pod_uid(claim)) in pods and is_ready(pods[uid])
        }

    async def _allocate(self) -> None:
        rules, _ = await self._client.list(DEVICE_TAINT_RULES)
        for rule in rules:
            if "status" not in rule:
                name, status = rule["metadata"]["name"], {"status": _ACTED_ON}
                await self._client.patch(DEVICE_TAINT_RULES, name, status, subresource="status")
        self.tainted = {
            rule["spec"]["deviceSelector"]["device"]
            for rule in rules
            if rule["spec"]["taint"]["effect"] == NO_SCHEDULE
        }
        pods = self._pods()
        self._claims, _ = await self._client.list(RESOURCE_CLAIMS, SPACE)
        for claim in self._claims:
            if _pod_uid(claim) not in pods:
                await self._client.delete(RESOURCE_CLAIMS, claim["metadata"]["name"], SPACE)
        taken = self.tainted | {_device(claim) for claim in self._claims}
        free = [gpu for gpu in self._gpus if gpu not in taken]
        served = {_pod_uid(claim) for claim in self._claims}
        waiting = [pod for uid, pod in pods.items() if uid not in served]
        for pod, gpu in zip(waiting, free, strict=False):
            if not pod["spec"].get("nodeName") and not is_terminating(pod):
                await self._place(pod, gpu)

    async def _place(self, pod: Object, gpu: str) -> None:
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        claim = f"{name}-{_CLAIM}"
        owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}
        meta = {"name": claim, "ownerReferences": [owner]}
        await self._client.create(RESOURCE_CLAIMS, {"metadata": meta, "spec": _CLAIM_SPEC}, SPACE)
        result = {"request": _CLAIM, "driver": GPU_DRIVER, "pool": self._node, "device": gpu}
        status = {
            "allocation": {"devices": {"results": [result]}},
            "reservedFor": [{"resource": "pods", "name": name, "uid": uid}],
        }
        await self._client.patch(
            RESOURCE_CLAIMS, claim, {"status": status}, SPACE, subresource="status"
        )
        known = {"resourceClaimStatuses": [{"name": _CLAIM, "resourceClaimName": claim}]}
        await self._client.patch(PODS, name, {"status": known}, SPACE, subresource="status")
        await self._client.bind(SPACE, name, self._node)

    def _pods(self) -> dict[str, Object]:
        return {
            pod["metadata"]["uid"]: pod
            for pod in self._ledger.pods.values()
            if pod["spec"].get("schedulerName") == SCHEDULER
        }


_CLAIM_SPEC: Final[dict[str, Any]] = {
    "devices": {"requests": [{"name": _CLAIM, "exactly": {"deviceClassName": _CLAIM}}]}
}


def _pod_uid(claim: Object) -> str:
    """The UID of the pod that the claim is reserved for."""
    reserved = claim.get("status", {}).get("reservedFor") or [{}]
    return str(reserved[0].get("uid", ""))


def _device(claim: Object) -> str:
    """The device that is allocated to the claim."""
    allocated = claim.get("status", {}).get("allocation", {}).get("devices", {})
    return str((allocated.get("results") or [{}])[0].get("device", ""))
