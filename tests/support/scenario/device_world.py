"""A cluster whose GPUs are devices of NVIDIA's DRA driver, and its garbage collector."""

from typing import Any

from rules.api.resource_slices import GPU_DRIVER
from tests.support.cluster.slices import gpu_device, slice_spec
from tests.support.scenario.session_world import ROOMY, World, policy_of

NODE = "n0"
GPUS = 8
REASON = "Xid48DoubleBitECCError"
SLICES = "/apis/resource.k8s.io/v1/resourceslices/"


def device_policy(**sections: Any) -> Any:
    sections = {"budget": ROOMY, "isolate": "Device"} | sections
    return policy_of(**sections)


class DeviceWorld(World):
    """Two nodes of eight GPUs, without the device plugin."""

    def __init__(self, **sections: Any) -> None:
        super().__init__(device_policy(**sections))
        for name in self.add_nodes(2):
            del self.nodes[name]["status"]["allocatable"]["nvidia.com/gpu"]
            self.healths[name]["status"]["gpus"] = [
                {"uuid": uuid(name, i), "index": i, "health": "Healthy"} for i in range(GPUS)
            ]
            self.publish(name, *range(GPUS))

    def publish(self, node: str, *order: int) -> None:
        """The driver publishes the node's GPUs: the first one of `order` as gpu-0, and so on."""
        known = self.objects.get(f"{SLICES}{node}-{GPU_DRIVER}")
        generation = known["spec"]["pool"]["generation"] + 1 if known else 1
        devices = [gpu_device(i, uuid(node, number)) for i, number in enumerate(order)]
        spec = slice_spec(node, *devices, generation=generation)
        self.put("resource.k8s.io/v1", "resourceslices", f"{node}-{GPU_DRIVER}", spec=spec)

    def fault(self, gpu: int, node: str = NODE, **more: Any) -> str:
        """A fault of one GPU, which a reset repairs."""
        found = self.incident(node, REASON, gpu=uuid(node, gpu), **more)
        self.healths[node]["status"]["incidents"][0]["recommendedAction"] = "ResetGPU"
        return found

    def rules(self) -> dict[str, dict[str, Any]]:
        """The device taints, by device name."""
        return {r["spec"]["deviceSelector"]["device"]: r for r in self.held("devicetaintrules")}

    def delete_rule(self, device: str) -> None:
        path = next(p for p, o in self.objects.items() if o is self.rules()[device])
        del self.objects[path]

    def run_controllers(self) -> None:
        super().run_controllers()
        uids = {session["metadata"]["uid"] for session in self.quarantines.values()}
        for path, obj in list(self.objects.items()):
            owners = obj["metadata"].get("ownerReferences", ())
            if owners and all(owner["uid"] not in uids for owner in owners):
                del self.objects[path]


def uuid(node: str, gpu: int) -> str:
    return f"GPU-{node}-{gpu}"
