"""Which GPUs a pod holds, by the kubelet's list and its ResourceClaims; None if it is unknown."""

from typing import Any

import msgspec
import pytest

from rules.api import health
from rules.api.health import HeldDevice, Holder, Holders
from rules.api.pods import PodView, unreadable_pod
from rules.api.resource_slices import NodeDevices, node_devices
from rules.api.workloads import ResourceClaimView
from rules.drain import holdings
from rules.text import tolerant
from tests.support.cluster.slices import gpu_device, mig_device, slice_view, vfio_device
from tests.support.scenario.drain_objects import pod

NODE = "n0"
STARTED, READ = "2026-01-01T00:00:00Z", "2026-01-01T00:10:00Z"
DEVICES = node_devices(
    NODE,
    [
        slice_view(
            NODE,
            gpu_device(0),
            gpu_device(1),
            mig_device(2, 0),
            mig_device(2, 1),
            vfio_device(3, pci="p"),
        )
    ],
)
NOTHING: frozenset[str] = frozenset()


def gpus(*numbers: int) -> frozenset[str]:
    return frozenset(f"GPU-{number}" for number in numbers)


def target(request: int = 0, *claims: str, extended: str = "", **status: Any) -> PodView:
    """A pod that requests GPUs in a container and has claims."""
    limits = {"nvidia.com/gpu": str(request)} if request else {}
    named = [{"name": name, "resourceClaimName": name} for name in claims]
    made = {"extendedResourceClaimStatus": {"resourceClaimName": extended}} if extended else {}
    return pod(
        spec={
            "containers": [{"name": "c", "resources": {"limits": limits}}],
            "resourceClaims": named,
        },
        status={"startTime": STARTED} | made | status,
    )


def claim(
    *devices: str, pool: str = NODE, driver: str = "gpu.nvidia.com", **more: Any
) -> ResourceClaimView:
    results = [{"driver": driver, "pool": pool, "device": device, **more} for device in devices]
    status = {"allocation": {"devices": {"results": results}}}
    return msgspec.convert({"status": status}, ResourceClaimView)


def entry(*uuids: str, devices: tuple[str, ...] = (), name: str = "web-1") -> Holder:
    held = tuple(HeldDevice(driver="gpu.nvidia.com", pool=NODE, device=one) for one in devices)
    return Holder(namespace="team-a", pod=name, gpus=uuids, devices=held)


def held(
    the_pod: PodView,
    *entries: Holder,
    read_at: str = READ,
    devices: NodeDevices = DEVICES,
    **claims: ResourceClaimView | None,
) -> frozenset[str] | None:
    listed = holdings.listed_by_pod(Holders(read_at=read_at, pods=entries))
    counted = sum(len(one.gpus) if one else 1 for name, one in claims.items() if name != "x")
    the_pod = msgspec.structs.replace(the_pod, claimed_gpus=counted)
    own = holdings.entries_of(the_pod, read_at, listed)
    return holdings.held_by(the_pod, own, claims, devices)


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        pytest.param(held(target()), NOTHING, id="no GPUs"),
        pytest.param(held(target(1)), None, id="no source"),
        pytest.param(held(target(1), entry("GPU-0")), gpus(0), id="the kubelet"),
        pytest.param(held(target(2), entry("GPU-0")), None, id="less than requested"),
        pytest.param(held(target(), entry("GPU-0")), gpus(0), id="more than requested"),
        pytest.param(
            held(target(2), entry("GPU-0"), entry("GPU-1")), gpus(0, 1), id="two pods of a name"
        ),
        pytest.param(held(target(1), entry("GPU-0", name="web-2")), None, id="another pod"),
        pytest.param(held(target(1), entry("GPU-0", "")), None, id="an empty UUID"),
        pytest.param(
            held(target(1), entry("GPU-0"), read_at=STARTED), None, id="list as old as the pod"
        ),
        pytest.param(held(target(1), entry("GPU-0"), read_at=""), None, id="list without a time"),
        pytest.param(held(target(1, startTime=None), entry("GPU-0")), None, id="not started"),
        pytest.param(held(target(1, phase="Failed"), entry("GPU-0")), NOTHING, id="finished"),
        pytest.param(held(unreadable_pod("team-a/web-1", NODE)), None, id="unreadable pod"),
        pytest.param(held(target(0, "a"), a=claim("gpu-0")), gpus(0), id="a claim"),
        pytest.param(
            held(target(0, "a"), a=claim("gpu-2-mig-1g10gb-19-0", "gpu-2-mig-1g10gb-19-1")),
            gpus(2),
            id="two MIG devices of a GPU",
        ),
        pytest.param(
            held(target(0, "a"), a=claim("gpu-0"), devices=NodeDevices()), None, id="no slices"
        ),
        pytest.param(held(target(0, "a"), a=claim("gpu-9")), None, id="no such device"),
        pytest.param(held(target(0, "a"), a=claim("gpu-vfio-3")), None, id="device without UUID"),
        pytest.param(held(target(0, "a"), a=claim("gpu-0", pool="n1")), None, id="another pool"),
        pytest.param(
            held(target(0, "a"), a=claim("nic-0", driver="dra.example.com")), NOTHING, id="no GPU"
        ),
        pytest.param(held(target(0, "a"), a=None), None, id="unreadable claim"),
        pytest.param(held(target(0, "a"), a=ResourceClaimView()), NOTHING, id="not allocated"),
        pytest.param(
            held(target(0, "a", "b"), a=claim("gpu-0"), b=None), None, id="one of two unreadable"
        ),
        pytest.param(
            held(target(0, "a"), a=claim("gpu-0", adminAccess=True)), NOTHING, id="monitoring"
        ),
        pytest.param(
            held(target(0, "a"), entry(devices=("gpu-0",)), a=claim("gpu-0", adminAccess=True)),
            NOTHING,
            id="monitoring, listed by the kubelet",
        ),
        pytest.param(
            held(target(1, extended="x"), x=claim("gpu-1")), gpus(1), id="made for a container"
        ),
        pytest.param(
            held(target(2, extended="x"), x=claim("gpu-1")), None, id="made for one of two"
        ),
        pytest.param(held(target(1, extended="x"), x=None), None, id="made, unreadable"),
        pytest.param(
            held(target(1, "a"), entry("GPU-0"), a=claim("gpu-1")), gpus(0, 1), id="both kinds"
        ),
        pytest.param(
            held(target(1, "a"), a=claim("gpu-1")), None, id="both kinds, the kubelet is silent"
        ),
        pytest.param(
            held(target(1, "a"), entry(devices=("gpu-1",)), a=claim("gpu-1")),
            None,
            id="the kubelet lists the claimed device only",
        ),
        pytest.param(
            held(target(0, "a"), entry(devices=("gpu-0",)), a=claim("gpu-1")),
            gpus(0, 1),
            id="kubelet and claim differ",
        ),
    ],
)  # fmt: skip
def test_which_gpus_a_pod_holds(
    found: frozenset[str] | None, wanted: frozenset[str] | None
) -> None:
    assert found == wanted


def test_pods_that_share_a_claim_hold_the_same_gpu() -> None:
    for name in ("one", "two"):
        sharing = msgspec.structs.replace(target(0, "a"), metadata=pod(name).metadata)
        assert held(sharing, a=claim("gpu-1")) == gpus(1)


def test_a_list_that_is_too_long_is_not_used() -> None:
    many = (entry("GPU-0"), *(entry("GPU-1", name=f"p{n}") for n in range(health.MAX_HOLDERS)))
    assert held(target(1), *many[:-1]) == gpus(0)
    assert held(target(1), *many) is None


def test_a_claim_that_was_read_in_part_is_not_used() -> None:
    results = [{"driver": "gpu.nvidia.com", "pool": NODE, "device": "gpu-0"}, {"driver": 7}]
    status = {"allocation": {"devices": {"results": results}}}
    read = tolerant.understand(msgspec.json.encode({"status": status}), ResourceClaimView).value
    assert read is not None
    assert held(target(0, "a"), a=read) is None


def test_a_pod_that_is_read_again_keeps_what_the_list_found() -> None:
    listed = msgspec.structs.replace(pod(), claimed_gpus=2, held=gpus(0))
    again = holdings.as_listed(pod(status={"phase": "Pending"}), [pod("other"), listed])
    assert (again.claimed_gpus, again.held, again.status.phase) == (2, gpus(0), "Pending")
    assert holdings.as_listed(pod("new"), [listed]).held is None
