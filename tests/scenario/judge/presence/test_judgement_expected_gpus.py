"""The expected number of GPUs, and the release of the driver."""

import pytest

from rules.catalog.signals import Signal
from rules.judge.health_status import Health
from rules.judge.observation import PciFunction, PciSeen, SourceName, SourceState
from tests.support.scenario.judgement_world import SOUND, World, pci, uuid


def test_the_learned_count_alone_is_degraded(world: World) -> None:
    assert world.published().status.expected_gpus.count == 8
    world.reboot()
    del world.inventory[7], world.values[7], world.config_space[7]
    world.start()
    world.advance(60, polling=True)
    assert world.outcome() == "Degraded Report Investigate"
    assert world.assessment().reason == "GPUCountMismatch"
    assert world.published().labels["gpuward.io/gpus"] == "8"


@pytest.mark.parametrize("later", [True, False], ids=["corrected later", "from the start"])
def test_a_count_that_nothing_ever_showed_drains_no_node(*, later: bool) -> None:
    world = World(7)
    if later:
        world.start()
        world.advance(60, polling=True)
        assert not world.active
    world.annotations["gpuward.io/expected-gpus"] = "8"
    world.start()
    world.advance(3600, polling=True)
    assert world.only().row.reason == "GPUCountMismatch"
    assert world.outcome() == "Degraded Report Investigate"
    assert world.only().scope == "Node"
    world.annotate("expected-gpus", "7")
    world.advance(60, polling=True)
    assert not world.active


@pytest.mark.parametrize("listed", [True, False], ids=["still listed", "no longer listed"])
@pytest.mark.parametrize("counted", [True, False], ids=["annotation", "learned"])
def test_a_gpu_that_is_removed_on_purpose_drains_no_node(*, counted: bool, listed: bool) -> None:
    """`nvidia-smi drain`, then `echo 1 > remove`: the bus and the driver show one fewer."""
    world = World()
    if counted:
        world.annotations["gpuward.io/expected-gpus"] = "8"
    world.start()
    world.advance(60, polling=True)
    world.config_space.pop(3)
    if listed:
        world.values[3] = {Signal.PRESENCE: "lost"}
    else:
        world.inventory.pop(3)
        world.enumerate()
    for _ in range(60):
        world.advance(60, polling=True)
        world.enumerate()
    assert world.assessment().gpus_healthy == 7
    assert len(world.incidents) == 1, "it is reported of once"
    assert world.only().row.reason == "GPUCountMismatch"
    assert world.outcome() == "Degraded Report Investigate"
    world.annotate("expected-gpus", "7")
    world.advance(60, polling=True)
    assert not world.active


@pytest.mark.parametrize("reported_by", ["a kernel line", "the port", "all ones", "the driver"])
def test_a_gpu_that_is_absent_and_reported_is_lost(world: World, reported_by: str) -> None:
    world.advance(60, polling=True)
    if reported_by == "the driver":
        world.values[3] = {Signal.PRESENCE: "lost"}
        world.source(SourceName.KERNEL_LOG, SourceState.DOWN, "KmsgUnreadable")
    else:
        gone = world.inventory.pop(3)
        world.values[3] = {}
    if reported_by == "all ones":
        world.config_space[3] = False
    else:
        world.config_space.pop(3)
    if reported_by == "a kernel line":
        world.kernel("NVRM: GPU at PCI:0000:13:00: GPU has fallen off the bus.")
    if reported_by == "the port":
        world.kernel(f"pcieport {gone.pci}: AER: Uncorrectable (Fatal) error message received "
                     f"from {gone.pci}")  # fmt: skip
    world.enumerate()
    world.advance(60, polling=True)
    assert world.assessment().health is Health.UNHEALTHY


@pytest.mark.parametrize("on_bus", [True, False], ids=["on the bus", "the bus shows no GPU"])
@pytest.mark.parametrize("counted", [True, False], ids=["annotation", "learned"])
def test_the_bus_is_evidence_only_where_it_once_showed_a_gpu(
    *, on_bus: bool, counted: bool
) -> None:
    """WSL2, Tegra and some virtual machines: NVML lists GPUs that /sys/bus/pci does not."""
    world = World(4)
    if counted:
        world.annotations["gpuward.io/expected-gpus"] = "4"
    if not on_bus:
        world.config_space.clear()
    world.start()
    world.advance(60, polling=True)
    world.values[2] = {Signal.PRESENCE: "lost"}
    world.advance(60, polling=True)
    assert world.outcome() == "Degraded Report Investigate"
    world.restart_agent().start()
    world.advance(60, polling=True)
    assert world.outcome() == "Degraded Report Investigate"
    world.values[2] = dict(SOUND)
    world.advance(60, polling=True)
    assert not world.active
    world.xid(95, 1)
    world.reboot().start()
    world.advance(60, polling=True)
    assert not world.active, "the reboot ends it there, too"


def test_a_wrong_expectation_is_ignored() -> None:
    world = World(7)
    world.annotations["gpuward.io/expected-gpus"] = "eight; rm -rf /"
    world.start()
    world.advance(60, polling=True)
    assert not world.active


def test_gpus_passed_to_virtual_machines_do_not_count() -> None:
    world = World(2).start()
    functions = [
        PciFunction(address=f"0000:{0x10 + n:02x}:00.0", vendor=0x10DE, device_class=0x0302,
                    driver="vfio-pci" if n > 1 else "nvidia", config_space_ok=True)
        for n in range(8)
    ]  # fmt: skip
    for _ in range(5):
        world.see(PciSeen(at=world.now, functions=tuple(functions)))
        world.advance(15)
        world.poll()
    assert not world.active
    assert world.published().status.expected_gpus.count == 2


def test_other_hardware_under_the_same_name_learns_again(world: World) -> None:
    world.reboot()
    world.labels["node.kubernetes.io/instance-type"] = "g5"
    for gpu in range(1, 8):
        del world.config_space[gpu]
    del world.inventory[1:], world.values[1:]
    world.start()
    world.advance(60, polling=True)
    assert not world.active
    assert world.published().status.expected_gpus.count == 1


@pytest.mark.parametrize(
    ("label", "value", "asked"),
    [
        ("nvidia.com/gpu.deploy.device-plugin", "paused-for-mig-change", True),
        ("nvidia.com/gpu.deploy.device-plugin", "true", False),
        ("nvidia.com/mig.config.state", "pending", True),
        ("nvidia.com/mig.config.state", "rebooting", True),
        ("nvidia.com/mig.config.state", "success", False),
        ("nvidia.com/gpu-driver-upgrade-state", "upgrade-required", False),
        ("nvidia.com/gpu-driver-upgrade-state", "cordon-required", True),
        ("nvidia.com/gpu-driver-upgrade-state", "uncordon-required", True),
        ("nvidia.com/gpu-driver-upgrade-state", "upgrade-done", False),
    ],
)
def test_the_agent_releases_the_gpus_on_request(
    world: World, label: str, value: str, *, asked: bool
) -> None:
    world.labels[label] = value
    world.node()
    assert world.state.standing_down is asked


def test_a_stand_down_of_two_hours_ends(world: World) -> None:
    world.release_gpus()
    world.advance(7_199)
    assert world.state.standing_down
    assert world.assessment().health is Health.HEALTHY
    world.advance(2)
    assert not world.state.standing_down
    assert world.changes[-1].kind == "StandDownExpired"
    world.node()
    assert not world.state.standing_down
    world.take_back()
    assert world.state.stand_down is None


def test_a_released_data_source_keeps_the_last_health_status(world: World) -> None:
    world.xid(95)
    world.release_gpus()
    assert world.assessment().health is Health.UNHEALTHY


def test_a_page_that_lacks_a_gpu_is_not_reported_as_the_drivers_list() -> None:
    world = World(3, nvml=False).start()
    for _ in range(4):
        world.dcgm({uuid(gpu): {} for gpu in (0, 1)}, pci={uuid(gpu): pci(gpu) for gpu in (0, 1)})
        world.advance(15)
    (line,) = world.only().evidence
    assert "the dcgm-exporter page lists 2, the PCI bus shows 3" in line
