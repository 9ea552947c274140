"""How many GPUs a node should have, and when the driver is let go."""

from __future__ import annotations

import pytest

from rules.judge.observation import PciFunction, PciSeen, SourceName, SourceState
from rules.publish.verdict import Health
from tests.support.scenario.judgement_world import World, pci, uuid


@pytest.fixture
def world() -> World:
    return World().start()


def test_the_learned_count_alone_is_degraded(world: World) -> None:
    assert world.published().status.expected_gpus.count == 8
    world.reboot()
    del world.inventory[7], world.values[7], world.config_space[7]
    world.start()
    world.advance(60, polling=True)
    assert world.says() == "Degraded Report Investigate"
    assert world.verdict().reason == "GPUCountMismatch"
    assert world.published().labels["gpuward.io/gpus"] == "8"


def test_a_count_that_a_person_gave_makes_a_missing_gpu_fatal() -> None:
    world = World(7)
    world.annotations["gpuward.io/expected-gpus"] = "8"
    world.start()
    world.advance(60, polling=True)
    assert world.says() == "Fatal Drain RestartNode"
    assert world.only().scope == "Node"


def test_a_wrong_expectation_is_ignored() -> None:
    world = World(7)
    world.annotations["gpuward.io/expected-gpus"] = "eight; rm -rf /"
    world.start()
    world.advance(60, polling=True)
    assert not world.active


def test_gpus_given_to_virtual_machines_do_not_count() -> None:
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


def test_other_hardware_under_the_same_name_learns_afresh(world: World) -> None:
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
def test_the_agent_lets_go_on_request(
    world: World, label: str, value: str, *, asked: bool
) -> None:
    world.labels[label] = value
    world.node()
    assert world.state.standing_down is asked


def test_a_stand_down_of_two_hours_ends(world: World) -> None:
    world.annotations["gpuward.io/release-gpu"] = "MIG by hand"
    world.node()
    world.source(SourceName.NVML, SourceState.RELEASED, "ReleaseRequested")
    world.advance(7_199)
    assert world.state.standing_down
    assert world.verdict().health is Health.HEALTHY
    world.advance(2)
    assert not world.state.standing_down
    assert world.changes[-1].kind == "StandDownExpired"
    world.node()
    assert not world.state.standing_down
    del world.annotations["gpuward.io/release-gpu"]
    world.node()
    assert world.state.stand_down is None


def test_a_released_sense_keeps_the_last_verdict(world: World) -> None:
    world.xid(95)
    world.annotations["gpuward.io/release-gpu"] = "x"
    world.node()
    world.source(SourceName.NVML, SourceState.RELEASED)
    assert world.verdict().health is Health.UNHEALTHY


def test_a_page_that_lacks_a_gpu_is_not_told_as_what_the_driver_enumerates() -> None:
    world = World(3, nvml=False).start()
    for _ in range(4):
        world.dcgm({uuid(gpu): {} for gpu in (0, 1)}, pci={uuid(gpu): pci(gpu) for gpu in (0, 1)})
        world.advance(15)
    (line,) = world.only().evidence
    assert "the dcgm-exporter page lists 2, the PCI bus shows 3" in line
