"""ResourceSlices as DRA drivers publish them."""

from typing import Any

import msgspec

from rules.api.resource_slices import GPU_DRIVER, ResourceSliceView

NEURON = "neuron.aws.com"


def gpu_device(number: int, uuid: str = "", *, pci: str = "", **more: Any) -> dict[str, Any]:
    """A GPU; its UUID is `GPU-NUMBER` by default."""
    attributes = {"type": {"string": "gpu"}, "uuid": {"string": uuid or f"GPU-{number}"}}
    return {"name": f"gpu-{number}", "attributes": attributes | _at(pci), **more}


def mig_device(number: int, start: int, *, uuid: str = "", parent: str = "") -> dict[str, Any]:
    """A MIG device of a GPU; it has no `uuid` while it is not created."""
    attributes = {"type": {"string": "mig"}, "profile": {"string": "1g.10gb"}}
    attributes["parentUUID"] = {"string": parent or f"GPU-{number}"}
    if uuid:
        attributes["uuid"] = {"string": uuid}
    return {"name": f"gpu-{number}-mig-1g10gb-19-{start}", "attributes": attributes}


def vfio_device(number: int, *, pci: str) -> dict[str, Any]:
    """A GPU for virtual machines; its UUID is made from its PCI address."""
    attributes = {"type": {"string": "vfio"}, "uuid": {"string": "5f1c-1a2b"}}
    return {"name": f"gpu-vfio-{number}", "attributes": attributes | _at(pci)}


def taint(key: str, effect: str = "NoExecute", **more: Any) -> dict[str, Any]:
    """A taint of a device."""
    return {"key": key, "effect": effect, **more}


def neuron_slice(
    node: str, *devices: Any, generation: int = 1, count: int = 1, **more: Any
) -> dict[str, Any]:
    """The spec of a slice of AWS's driver with these devices in the node's pool."""
    given = {"driver": NEURON, **more}
    return slice_spec(node, *devices, generation=generation, count=count, **given)


def slice_spec(
    node: str, *devices: dict[str, Any], generation: int = 1, count: int = 1, **more: Any
) -> dict[str, Any]:
    """The spec of a slice with these devices in the node's pool."""
    pool = {"name": node, "generation": generation, "resourceSliceCount": count}
    spec = {"driver": GPU_DRIVER, "nodeName": node, "pool": pool, "devices": list(devices)}
    return spec | more


def slice_view(node: str, *devices: dict[str, Any], **more: Any) -> ResourceSliceView:
    """The view of such a slice."""
    return msgspec.convert({"spec": slice_spec(node, *devices, **more)}, ResourceSliceView)


def _at(pci: str) -> dict[str, Any]:
    return {"resource.kubernetes.io/pciBusID": {"string": pci}} if pci else {}
