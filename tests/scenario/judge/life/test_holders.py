"""Which pods hold which GPUs: when it is published, how devices are resolved, how often."""

import msgspec
import pytest
from msgspec.structs import replace

from rules.api.health import HeldDevice, Holder, Holders
from rules.api.timestamps import format_time
from rules.judge.facts import holders
from rules.judge.health_object import Difference, differs, fitted
from rules.judge.observation import (
    AssignedDevice,
    PodDevices,
    PodResourcesSeen,
    SourceName,
    SourceState,
)
from tests.support.scenario.judgement_world import World, pci, uuid

MIG = "MIG-7a1b0000-0000-4000-8000-00000000abcd"


def listed(world: World, *pods: PodDevices, cut: bool = False) -> None:
    world.source(SourceName.POD_RESOURCES, SourceState.UP)
    world.see(PodResourcesSeen(at=world.now, pods=pods, cut=cut))


def pod(name: str, *ids: str, resource: str = "nvidia.com/gpu") -> PodDevices:
    return PodDevices(namespace="train", pod=name, plugin=tuple((resource, each) for each in ids))


def published(world: World) -> Holders | None:
    return world.published().status.holders


def test_holders_are_published_while_an_incident_asks_for_an_action(world: World) -> None:
    listed(world, pod("b", uuid(1)), pod("a", uuid(0), uuid(3)))
    assert published(world) is None
    world.xid(31)
    assert published(world) is None
    world.xid(95, gpu=1)
    assert published(world) == Holders(
        read_at=format_time(world.now),
        complete=True,
        pods=(
            Holder(namespace="train", pod="b", gpus=(uuid(1),)),
            Holder(namespace="train", pod="a", gpus=(uuid(0), uuid(3))),
        ),
    )
    world.reboot().start()
    world.advance(60, polling=True)
    assert not world.active
    listed(world, pod("b", uuid(1)))
    assert published(world) is None


@pytest.mark.parametrize(
    ("device", "resource", "gpu"),
    [
        (uuid(2), "nvidia.com/gpu", 2),
        (f"{uuid(2)}::7", "nvidia.com/gpu.shared", 2),
        (f"{uuid(2)}-4", "volcano.sh/vgpu-number", 2),
        (MIG, "nvidia.com/mig-1g.10gb", 2),
        (f"MIG-{uuid(2)}/7/0", "nvidia.com/mig-1g.10gb", 2),
        ("nvidia4", "nvidia.com/gpu", 2),
        ("nvidia4/gi3", "nvidia.com/gpu", 2),
        (f"{pci(2)}.0", "nvidia.com/GH100_H100_PCIE", 2),
        ("nvidia9", "nvidia.com/gpu", None),
        (MIG.replace("7", "8"), "nvidia.com/mig-1g.10gb", None),
        ("a\x00b", "nvidia.com/gpu.shared", None),
    ],
)
def test_a_device_is_resolved_to_its_gpu(
    world: World, device: str, resource: str, gpu: int | None
) -> None:
    world.inventory[2] = replace(world.inventory[2], minor=4, mig_devices=(MIG,))
    world.enumerate()
    world.xid(95)
    listed(world, pod("a", device, resource=resource))
    found = published(world)
    assert found is not None
    if gpu is None:
        assert (found.complete, found.reason, found.pods) == (False, holders.UNKNOWN_DEVICE, ())
    else:
        assert found.complete
        assert found.pods == (Holder(namespace="train", pod="a", gpus=(uuid(gpu),)),)


def test_other_devices_are_left_out(world: World) -> None:
    world.xid(95)
    listed(
        world,
        pod("nic", "0000:a1:00.2", resource="nvidia.com/hostdev"),
        pod("amd", "0", resource="amd.com/gpu"),
    )
    assert published(world) == Holders(read_at=format_time(world.now), complete=True)


def test_devices_of_a_dra_claim_keep_their_name_in_the_slice(world: World) -> None:
    world.xid(95)
    of = {
        driver: AssignedDevice(driver=driver, pool="n1", device="gpu-3", claim="c\x1b")
        for driver in ("gpu.nvidia.com", "dra.net")
    }
    listed(world, PodDevices(namespace="train", pod="a", dra=tuple(of.values())))
    found = published(world)
    assert found is not None
    assert found.complete
    (holder,) = found.pods
    assert holder.devices == (
        HeldDevice(driver="gpu.nvidia.com", pool="n1", device="gpu-3", claim="c\\x1b"),
    )


def test_a_pod_with_an_invalid_name_makes_the_list_incomplete(world: World) -> None:
    world.xid(95)
    listed(world, pod("../a", uuid(0)), pod("b", uuid(1)))
    found = published(world)
    assert found is not None
    assert (found.complete, [each.pod for each in found.pods]) == (False, ["b"])


def test_a_list_that_is_not_current_is_not_published(world: World) -> None:
    listed(world, pod("a", uuid(0)))
    world.advance(60)
    world.xid(95)
    assert published(world) == Holders(reason=holders.NOT_READ)
    listed(world, pod("a", uuid(0)))
    world.source(SourceName.POD_RESOURCES, SourceState.DOWN, "NoAnswer")
    found = published(world)
    assert found is not None
    assert (found.complete, found.reason, len(found.pods)) == (False, "NoAnswer", 1)
    world.advance(60)
    assert published(world) == Holders(reason="NoAnswer")


def test_without_the_api_nothing_is_published(world: World) -> None:
    world.xid(95)
    assert published(world) is None
    world.source(SourceName.POD_RESOURCES, SourceState.ABSENT, "NoSocket")
    assert published(world) is None


def test_a_changed_list_is_written_soon_and_its_time_waits(world: World) -> None:
    world.xid(95)
    listed(world, pod("a", uuid(0)))
    before = world.published()
    world.advance(10)
    listed(world, pod("a", uuid(0)))
    assert differs(before, world.published()) is Difference.REFRESHED
    listed(world)
    assert differs(before, world.published()) is Difference.SOON


def test_a_long_list_is_cut_after_the_holders_of_faulty_gpus(world: World) -> None:
    world.xid(95, gpu=7)
    pods = [pod(f"{'p' * 200}-{n}", uuid(n % 7)) for n in range(300)]
    listed(world, *pods, pod("z", uuid(7)))
    found = published(world)
    assert found is not None
    assert found.pods[0] == Holder(namespace="train", pod="z", gpus=(uuid(7),))
    assert (found.complete, found.reason) == (False, holders.TOO_MANY)
    assert len(msgspec.json.encode(found)) <= holders.MAX_BYTES + 512
    listed(world, pod("z", uuid(7)), cut=True)
    found = published(world)
    assert found is not None
    assert (found.complete, found.reason) == (False, holders.TOO_MANY)


def test_holders_give_way_to_active_incidents(world: World) -> None:
    world.xid(95)
    listed(world, pod("a", uuid(0)))
    status = world.published().status
    assert status.holders is not None
    small = replace(
        status,
        gpus=tuple(replace(gpu, readings=None) for gpu in status.gpus),
        incidents=tuple(replace(incident, evidence=()) for incident in status.incidents),
        holders=replace(status.holders, complete=False, reason="NoRoom", pods=()),
    )
    assert fitted(status, len(msgspec.json.encode(small))) == small
