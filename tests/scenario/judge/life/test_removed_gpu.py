"""Faults of a removed GPU close when no GPU is missing."""

import pytest

from rules.catalog.signals import Signal
from rules.judge.health_status import Health
from rules.judge.observation import PciFunction, PciSeen, TopologySeen
from tests.support.scenario.judgement_world import World, pci

NOWHERE = 0x60
"""The index of an address at which this node never had a GPU."""

FAULTS = (48, 79, 95)


def take_out(world: World, gpu: int) -> None:
    """Remove the card: neither the driver nor the bus shows it any more."""
    world.inventory = [each for each in world.inventory if each.index != gpu]
    world.config_space.pop(gpu)


def expect(world: World, count: int) -> None:
    world.annotations["gpuward.io/expected-gpus"] = str(count)


@pytest.mark.parametrize("nvml", [True, False], ids=["nvml", "kernel log alone"])
@pytest.mark.parametrize("xid", FAULTS)
def test_a_fault_at_an_address_that_no_gpu_has_ends_with_the_reboot(
    xid: int, *, nvml: bool
) -> None:
    world = World(nvml=nvml).start()
    world.xid(xid, NOWHERE)
    world.advance(120, polling=nvml)
    assert world.outcome().startswith("Fatal Drain")
    world.reboot().start()
    world.advance(120, polling=nvml)
    assert not world.active
    assert [i.closed_by for i in world.incidents] == ["GPULeft"]


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("nvml", [True, False], ids=["nvml", "kernel log alone"])
@pytest.mark.parametrize("xid", FAULTS)
def test_a_card_that_was_removed_for_good_leaves_no_fault_behind(
    xid: int, *, nvml: bool, restarts: bool
) -> None:
    world = World(nvml=nvml).start()
    world.advance(60, polling=nvml)
    world.xid(xid, 3)
    world.advance(120, polling=nvml)
    world.reboot()
    take_out(world, 3)
    world.start()
    world.advance(120, polling=nvml)
    assert any(i.row.severity == "Fatal" for i in world.active), "it is missing"
    if restarts:
        world.restart_agent().start()
    expect(world, 7)
    world.node()
    world.advance(120, polling=nvml)
    assert not world.active
    if nvml:
        assert world.assessment().health is Health.HEALTHY


def test_a_missing_gpu_keeps_its_fault_over_reboots() -> None:
    world = World().start()
    world.xid(79, 3)
    world.advance(120, polling=True)
    take_out(world, 3)
    for _ in range(2):
        world.reboot().start()
        world.advance(120, polling=True)
        assert "Xid79GPUFallenOffBus" in world.reasons


def test_an_expected_gpu_that_nothing_shows_keeps_its_fault() -> None:
    world = World()
    expect(world, 8)
    world.start()
    world.xid(79, 3)
    world.advance(120, polling=True)
    take_out(world, 3)
    for _ in range(2):
        world.reboot().start()
        world.advance(120, polling=True)
        assert "Xid79GPUFallenOffBus" in world.reasons


def test_an_agent_that_never_saw_the_gpu_keeps_its_fault_until_a_reboot() -> None:
    world = World()
    take_out(world, 3)
    world.xid(79, 3, lookback=True)
    world.start()
    world.advance(300, polling=True)
    assert world.outcome() == "Fatal Drain RestartNode"
    world.kernel(
        "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.82.07  Release Build"
    )
    world.advance(300, polling=True)
    assert world.outcome() == "Fatal Drain RestartNode"


def passed_through(world: World, gpu: int, *, others: str = "nvidia") -> None:
    functions = [
        PciFunction(
            address=f"{pci(index)}.0",
            vendor=0x10DE,
            device_class=0x0302,
            driver="vfio-pci" if index == gpu else others,
            config_space_ok=True,
        )
        for index in world.config_space
    ]
    world.see(PciSeen(at=world.now, functions=tuple(functions)))


@pytest.mark.parametrize("nvml", [True, False], ids=["nvml", "kernel log alone"])
@pytest.mark.parametrize("xid", FAULTS)
def test_a_gpu_that_is_passed_through_after_a_reboot_is_no_fault_of_this_node(
    xid: int, *, nvml: bool
) -> None:
    world = World(nvml=nvml).start()
    world.xid(xid, 3)
    world.advance(120, polling=nvml)
    world.reboot()
    world.inventory = [each for each in world.inventory if each.index != 3]
    world.poll_pci = lambda: passed_through(world, 3)  # type: ignore[method-assign]
    world.start()
    world.advance(120, polling=nvml)
    assert not world.active


def test_a_repair_report_closes_faults_of_a_removed_gpu() -> None:
    world = World().start()
    world.readings(3, remap_failure=1)
    world.advance(60, polling=True)
    world.xid(95, 3)
    world.advance(60, polling=True)
    take_out(world, 3)
    world.enumerate()
    expect(world, 7)
    world.report_repaired()
    world.advance(60, polling=True)
    assert not [i for i in world.active if i.row.severity == "Fatal"]


def test_a_repair_report_closes_nothing_of_a_missing_gpu() -> None:
    world = World().start()
    world.readings(3, remap_failure=1)
    world.advance(60, polling=True)
    take_out(world, 3)
    world.enumerate()
    world.report_repaired()
    world.advance(60, polling=True)
    assert "RowRemapFailure" in world.reasons


def test_a_state_of_a_gpu_that_left_ends_with_the_reboot() -> None:
    world = World().start()
    links = (0, *(1,) * 17)
    world.will_read(3, nvlink_states=links)
    world.advance(120, polling=True)
    assert world.outcome() == "Degraded Cordon ResetGPU"
    world.reboot()
    take_out(world, 3)
    expect(world, 7)
    world.values[3] = {Signal.PRESENCE: "lost"}
    world.start()
    world.advance(120, polling=True)
    assert not world.active


@pytest.mark.parametrize("nvml", [True, False], ids=["nvml", "kernel log alone"])
def test_a_fabric_fault_ends_with_a_lower_expected_count(*, nvml: bool) -> None:
    world = World(nvml=nvml).start()
    world.kernel("nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 33 LTSSM Fault Up")
    world.advance(60, polling=nvml)
    assert world.outcome() == "Fatal Drain RestartNode"
    world.reboot()
    take_out(world, 3)
    expect(world, 7)
    world.start()
    world.advance(120, polling=nvml)
    assert not world.active


def describe(world: World, cell: str, remotes: tuple[str, ...], up: int) -> None:
    """The driver describes the links between the cards, and every poll reads them."""
    count = len(world.inventory)
    row = [cell] * count
    world.see(
        TopologySeen(
            at=world.now,
            gpus=tuple(gpu.uuid for gpu in world.inventory),
            links=tuple((*row[:n], "X", *row[n + 1 :]) for n in range(count)),
            remotes=(remotes,) * count,
            numa=(0,) * count,
        )
    )
    for gpu in world.inventory:
        world.will_read(gpu.index, nvlink_states=(up,) * 4)


@pytest.mark.parametrize("reported", ["before the reboot", "after it"])
def test_links_to_a_card_that_was_removed_for_good_are_not_down(reported: str) -> None:
    world = World(2, switched=False).start()
    describe(world, "NV4", ("gpu",) * 4, 1)
    world.advance(120, polling=True)
    world.reboot()
    take_out(world, 1)
    if reported == "before the reboot":
        expect(world, 1)
    world.start()
    describe(world, "X", ("",) * 4, 0)
    world.advance(120, polling=True)
    if reported == "after it":
        assert "NVLinkDown" in world.reasons
        expect(world, 1)
        world.node()
        world.advance(120, polling=True)
    assert not world.active


def test_a_removed_nvlink_bridge_is_not_missing_after_a_repair_report() -> None:
    world = World(2, switched=False).start()
    describe(world, "NV4", ("gpu",) * 4, 1)
    world.advance(120, polling=True)
    world.reboot().start()
    describe(world, "SYS", ("",) * 4, 0)
    world.advance(120, polling=True)
    assert world.reasons == {"NVLinkDown"}
    world.report_repaired()
    world.restart_agent().start()
    describe(world, "SYS", ("",) * 4, 0)
    world.advance(120, polling=True)
    assert not world.active
