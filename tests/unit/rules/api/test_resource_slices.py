"""Which devices of a node belong to a GPU, by the ResourceSlices of NVIDIA's DRA driver."""

import msgspec
import pytest

from rules.api import resource_slices
from rules.api.resource_slices import (
    DeviceAddress,
    DeviceTaint,
    NodeDevices,
    ResourceSliceView,
    node_devices,
)
from rules.text import tolerant
from tests.support.cluster.slices import (
    gpu_device,
    mig_device,
    slice_spec,
    slice_view,
    vfio_device,
)

NODE = "n0"
PCI = "0000:1b:00.0"


def names(devices: NodeDevices, uuid: str) -> list[str] | None:
    found = devices.of_gpu(uuid)
    return found if found is None else [device.address.device for device in found]


def gpu_of(devices: NodeDevices, device: str) -> str:
    return devices.gpu_of(DeviceAddress("gpu.nvidia.com", NODE, device))


def test_a_gpu_has_its_mig_devices_and_itself_for_virtual_machines() -> None:
    devices = node_devices(
        NODE,
        [
            slice_view(NODE, gpu_device(0, pci=PCI), mig_device(0, 0), count=2),
            slice_view(
                NODE,
                gpu_device(1),
                mig_device(0, 2, uuid="MIG-7"),
                vfio_device(0, pci=PCI),
                count=2,
            ),
        ],
    )
    assert names(devices, "GPU-0") == [
        "gpu-0",
        "gpu-0-mig-1g10gb-19-0",
        "gpu-0-mig-1g10gb-19-2",
        "gpu-vfio-0",
    ]
    assert names(devices, "GPU-1") == ["gpu-1"]
    assert names(devices, "GPU-2") == []
    assert gpu_of(devices, "gpu-0-mig-1g10gb-19-2") == "GPU-0"


def test_a_slice_that_only_has_counters_counts() -> None:
    """For MIG devices that are created on demand the driver writes one slice of counters."""
    counters = slice_view(NODE, count=2, sharedCounters=[{"name": "gpu-0-counter-set"}])
    devices = node_devices(NODE, [counters, slice_view(NODE, mig_device(0, 0), count=2)])
    assert names(devices, "GPU-0") == ["gpu-0-mig-1g10gb-19-0"]


def test_the_older_version_is_read_too() -> None:
    basic = {"attributes": gpu_device(3)["attributes"], "taints": [{"key": "k"}]}
    devices = node_devices(NODE, [slice_view(NODE, {"name": "gpu-3", "basic": basic})])
    (device,) = devices.of_gpu("GPU-3") or ()
    assert [taint.key for taint in device.taints] == ["k"]


def test_taints_of_the_driver_are_shown() -> None:
    taint = {"key": "gpu.nvidia.com/xid", "value": "79", "effect": "NoSchedule"}
    devices = node_devices(NODE, [slice_view(NODE, gpu_device(0, taints=[taint]))])
    (device,) = devices.of_gpu("GPU-0") or ()
    assert device.taints == (DeviceTaint(**taint),)


@pytest.mark.parametrize(
    "slices",
    [
        pytest.param([], id="none"),
        pytest.param([slice_view(NODE, gpu_device(0), count=2)], id="one of two"),
        pytest.param(
            [
                slice_view(NODE, gpu_device(0), generation=2, count=2),
                slice_view(NODE, gpu_device(1), generation=1, count=2),
            ],
            id="republished by half",
        ),
        pytest.param(
            [slice_view(NODE, gpu_device(0), gpu_device(0, "GPU-1"))], id="a name given twice"
        ),
        pytest.param([slice_view(NODE, {**gpu_device(0), "name": "Gpu/0"})], id="invalid name"),
        pytest.param([slice_view("n1", gpu_device(0))], id="another node"),
        pytest.param([slice_view(NODE, gpu_device(0), nodeName="n1")], id="the pool of another"),
        pytest.param(
            [slice_view(NODE, gpu_device(0), driver="dra.example.com")], id="another driver"
        ),
        pytest.param(
            [
                slice_view(NODE, *(gpu_device(n) for n in range(128)), count=33)
                for n in range(resource_slices.MAX_DEVICES // 128 + 1)
            ],
            id="too many devices",
        ),
    ],
)
def test_the_devices_of_a_gpu_are_not_known(slices: list[ResourceSliceView]) -> None:
    assert node_devices(NODE, slices).of_gpu("GPU-0") is None
    assert node_devices(NODE, slices).of_gpu("") is None


def test_a_slice_that_was_not_read_or_only_in_part_leaves_the_pool_incomplete() -> None:
    complete_slice = slice_view(NODE, gpu_device(0))
    assert not node_devices(NODE, [complete_slice], all_read=False).complete
    spec = slice_spec(NODE, gpu_device(0), {"name": 7})
    read = tolerant.understand(msgspec.json.encode({"spec": spec}), ResourceSliceView).value
    assert read is not None
    assert not node_devices(NODE, [read]).complete
    assert node_devices(NODE, [complete_slice]).complete


def test_another_node_cannot_name_devices_of_this_pool() -> None:
    foreign = slice_view(NODE, gpu_device(0, "GPU-x"), nodeName="n1", generation=9)
    devices = node_devices(NODE, [foreign, slice_view(NODE, gpu_device(0))])
    assert gpu_of(devices, "gpu-0") == "GPU-0"


@pytest.mark.parametrize(
    "device",
    [
        pytest.param(mig_device(0, 0, uuid="GPU-1"), id="two GPUs"),
        pytest.param(gpu_device(0, "MIG-1"), id="no UUID of a GPU"),
        pytest.param(gpu_device(0, "GPU-" + "0" * 100), id="too long"),
        pytest.param(vfio_device(0, pci=PCI), id="only for virtual machines, without its GPU"),
        pytest.param({"name": "gpu-0"}, id="no attributes"),
    ],
)
def test_a_device_whose_gpu_is_not_known(device: dict) -> None:
    devices = node_devices(NODE, [slice_view(NODE, device, gpu_device(5))])
    assert gpu_of(devices, device["name"]) == ""
    assert gpu_of(devices, "gpu-9") == ""
