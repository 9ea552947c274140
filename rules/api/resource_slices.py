"""Views of ResourceSlices: the GPU devices of NVIDIA's DRA driver on a node, and the taints that
any driver publishes on its devices.

The driver publishes one pool per node, named after the node. A GPU has its UUID as attribute
`uuid`. A MIG device has the UUID of its GPU as `parentUUID`, also before it is created. A GPU for
virtual machines has only the PCI address of its GPU. A slice that does not fit this is not used.

A driver replaces the slices of a pool one by one and increments the generation of the pool. Slices
do not contain the taints of DeviceTaintRules.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from rules.api import names, object_name
from rules.api.metadata import DOUBT_FIELD, ObjectMeta, View

GPU_DRIVER: Final = "gpu.nvidia.com"
"""NVIDIA's DRA driver for GPUs and MIG devices."""
PATH: Final = "/apis/resource.k8s.io/v1/resourceslices"
MAX_DEVICES: Final = 4_096
"""More than 16 GPUs have with all their MIG placements. Slices with more devices are not used."""
_GPU_UUID: Final = "GPU-"
_MAX_UUID: Final = 96


class AttributeValue(View, frozen=True, kw_only=True):
    """The value of an attribute; only strings matter."""

    string: str = ""


class DeviceAttributes(View, frozen=True, kw_only=True):
    """The attributes that identify the GPU of a device."""

    uuid: AttributeValue = AttributeValue()
    parent_uuid: AttributeValue = msgspec.field(name="parentUUID", default=AttributeValue())
    pci: AttributeValue = msgspec.field(
        name="resource.kubernetes.io/pciBusID", default=AttributeValue()
    )


class DeviceTaint(View, frozen=True, kw_only=True):
    """A taint that the driver publishes with a device."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str = ""


class BasicDevice(View, frozen=True, kw_only=True):
    """Attributes and taints of a device, where v1beta1 has them."""

    attributes: DeviceAttributes = DeviceAttributes()
    taints: tuple[DeviceTaint, ...] = ()


class Device(BasicDevice, frozen=True, kw_only=True):
    """One device of a slice."""

    name: str = ""
    basic: BasicDevice | None = None


class ResourcePool(View, frozen=True, kw_only=True):
    """The pool of a slice; only slices of its highest generation are in effect."""

    name: str = ""
    generation: int = 0
    resource_slice_count: int = 0


class SliceSpec(View, frozen=True, kw_only=True):
    """The node, pool and devices of a slice."""

    driver: str = ""
    node_name: str = ""
    pool: ResourcePool = ResourcePool()
    devices: tuple[Device, ...] = ()


class ResourceSliceView(View, frozen=True, kw_only=True):
    """A ResourceSlice of resource.k8s.io (v1, and v1beta1 before it)."""

    metadata: ObjectMeta = ObjectMeta()
    spec: SliceSpec = SliceSpec()
    doubt: str = DOUBT_FIELD


class DeviceAddress(NamedTuple):
    """What identifies a device: claims and DeviceTaintRules refer to it so."""

    driver: str
    pool: str
    device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuDevice:
    """A GPU or MIG device of a node."""

    address: DeviceAddress
    gpu: str
    """The UUID of the GPU, for a MIG device that of its GPU; "" if it is not known."""
    taints: tuple[DeviceTaint, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDevices:
    """The GPU devices of a node as its ResourceSlices show them."""

    by_address: Mapping[DeviceAddress, GpuDevice] = field(default_factory=dict)
    complete: bool = False
    """Whether all slices of the pool were read and agree. The driver writes them one by one."""

    def gpu_of(self, address: DeviceAddress) -> str:
        """Return the UUID of the GPU that the device is or belongs to; "" if it is not known."""
        device = self.by_address.get(address)
        return device.gpu if device is not None else ""

    def of_gpu(self, uuid: str) -> tuple[GpuDevice, ...] | None:
        """Return the devices of the GPU: itself, its MIG devices, and itself for virtual machines.
        Empty if the node does not publish the GPU, None while that is not known.
        """
        if not self.complete or not uuid:
            return None
        found = (device for device in self.by_address.values() if device.gpu == uuid)
        return tuple(sorted(found, key=lambda device: device.address))


def node_devices(
    node: str, slices: Iterable[ResourceSliceView], *, all_read: bool = True
) -> NodeDevices:
    """Return the GPU devices of the node. Slices of other nodes, pools and drivers are ignored.
    `all_read` is False if slices may be missing.
    """
    own = [item for item in slices if _is_of(item.spec, node)]
    current, consistent = _current(own)
    if sum(len(item.spec.devices) for item in current) > MAX_DEVICES:
        return NodeDevices()
    named: defaultdict[str, list[BasicDevice]] = defaultdict(list)
    for item in current:
        for device in item.spec.devices:
            named[device.name].append(device.basic or device)
    valid = {name: same for name, same in named.items() if _is_device_name(name)}
    at_pci = _gpus_by_pci(device for same in valid.values() for device in same)
    by_address = {}
    for name, same in valid.items():
        address = DeviceAddress(GPU_DRIVER, node, name)
        gpu = _uuid_of(same[0].attributes, at_pci) if len(same) == 1 else ""
        taints = tuple(taint for device in same for taint in device.taints)
        by_address[address] = GpuDevice(address=address, gpu=gpu, taints=taints)
    complete = (
        all_read
        and consistent
        and len(valid) == len(named)
        and all(len(same) == 1 for same in named.values())
    )
    return NodeDevices(by_address=by_address, complete=complete)


class TaintedDevice(NamedTuple):
    """A device, and one of its taints."""

    device: str
    taint: DeviceTaint


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTaints:
    """The tainted devices of one driver on one node."""

    tainted: tuple[TaintedDevice, ...] = ()
    complete: bool = False
    """Whether all slices were read and agree, so that a missing taint was removed."""


UNKNOWN: Final = NodeTaints()


def fields_of(driver: str, node: str = "") -> str:
    """Return the field selector of the driver's slices, of one node if it is named."""
    fields = {"spec.driver": driver, **({"spec.nodeName": node} if node else {})}
    return ",".join(object_name.field_selector(*field) for field in fields.items())


def node_taints(slices: Collection[ResourceSliceView]) -> NodeTaints:
    """Return the tainted devices in all slices of one driver and node; gpuward's taints are not
    among them.
    """
    if sum(len(item.spec.devices) for item in slices) > MAX_DEVICES:
        return UNKNOWN
    pools: defaultdict[str, list[ResourceSliceView]] = defaultdict(list)
    for item in slices:
        pools[item.spec.pool.name].append(item)
    found = [_current(pool) for pool in pools.values()]
    tainted = [
        TaintedDevice(device.name, taint)
        for current, _ in found
        for item in current
        for device in item.spec.devices
        for taint in (device.basic or device).taints
        if not taint.key.startswith(f"{names.PREFIX}/")
    ]
    tainted.sort(key=lambda one: (one.device, one.taint.key, one.taint.effect))
    return NodeTaints(
        tainted=tuple(tainted),
        complete=bool(found) and all(consistent for _, consistent in found),
    )


def _current(pool: Collection[ResourceSliceView]) -> tuple[list[ResourceSliceView], bool]:
    """Return the slices of the pool's highest generation, and whether all were read."""
    latest = max((item.spec.pool.generation for item in pool), default=0)
    current = [item for item in pool if item.spec.pool.generation == latest]
    counts = {item.spec.pool.resource_slice_count for item in current}
    return current, counts == {len(current)} and not any(item.doubt for item in pool)


def _is_of(spec: SliceSpec, node: str) -> bool:
    # A node's plugin may write the slices of its node only, but with any pool name.
    return spec.driver == GPU_DRIVER and spec.node_name == node and spec.pool.name == node


def _is_device_name(name: str) -> bool:
    return len(name) <= object_name.MAX_LABEL_CHARS and object_name.is_object_name(name)


def _gpus_by_pci(devices: Iterable[BasicDevice]) -> dict[str, str]:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for device in devices:
        if gpu := _uuid_of(device.attributes, {}):
            found[device.attributes.pci.string].add(gpu)
    return {pci: next(iter(gpus)) for pci, gpus in found.items() if pci and len(gpus) == 1}


def _uuid_of(attributes: DeviceAttributes, at_pci: Mapping[str, str]) -> str:
    named = {
        value.string
        for value in (attributes.uuid, attributes.parent_uuid)
        if value.string.startswith(_GPU_UUID) and len(value.string) <= _MAX_UUID
    }
    if not named:
        return at_pci.get(attributes.pci.string, "")
    return next(iter(named)) if len(named) == 1 else ""
