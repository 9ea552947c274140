"""One GPU under test: real ctypes calls and real PTX over the simulated driver, in this
process.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.validate.cuda import Cuda, CudaError
from agent.validate.device import Device
from hack.sim.cuda import SimulatedCuda
from hack.sim.driver import NODES, set_gpu, set_node
from hack.sim.driver.store import load


class Machine:
    """The first GPU of a node whose description can be edited."""

    def __init__(self, folder: Path) -> None:
        self.description = folder / "node.yaml"
        self.description.write_bytes((NODES / "h100-8-nvswitch.yaml").read_bytes())
        self.gpus = [gpu["uuid"] for gpu in load(self.description)["gpus"]]

    def device(self, **fields: Any) -> Device:
        if fields:
            set_gpu(self.description, 0, **fields)
        return Device(Cuda(SimulatedCuda(self.description)), self.gpus[0])


def copy_to_host(device: Device) -> Callable[[], object]:
    return lambda: device.copies(to_host=True, seconds=0.0)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_issue13_04_a_sound_memory_is_tested_over_nine_tenths(machine: Machine) -> None:
    found = machine.device().patterns()
    assert (found.wrong, found.first, found.bits) == (0, None, 0)
    assert found.tested / found.total > 0.9


@pytest.mark.parametrize("bit", [0, 17, 31, 32, 63])
def test_issue13_04_every_stuck_bit_is_found_with_its_place(machine: Machine, bit: int) -> None:
    found = machine.device(cuda__stuck_bits={100: 1 << bit}).patterns()
    assert found.wrong > 0
    assert (found.first, found.bits) == (800, 1 << bit)


def test_memory_in_pieces_is_tested_in_pieces(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.validate.device.CHUNK_BYTES", 1000)
    found = machine.device(cuda__stuck_bits={300: 4}).patterns()
    assert found.tested / found.total > 0.9
    assert (found.first, found.bits) == (2400, 4)


def test_memory_that_others_hold_is_not_tested_and_everything_is_given_back(
    machine: Machine,
) -> None:
    device = machine.device(cuda__used_bytes=2048)
    before = device.memory()
    found = device.patterns()
    assert found.tested <= 2048
    assert device.memory() == before


def test_issue13_04_copies_give_the_bandwidth_of_the_link(machine: Machine) -> None:
    device = machine.device(cuda__to_device=12.0, cuda__to_host=13.0, cuda__to_peers={3: 99.0})
    assert device.copies(to_host=False, seconds=0.0) == pytest.approx(12.0, rel=1e-3)
    assert device.copies(to_host=True, seconds=0.0) == pytest.approx(13.0, rel=1e-3)
    assert device.peer(machine.gpus[3]) == pytest.approx(99.0, rel=1e-3)
    assert device.peer(machine.gpus[2]) == pytest.approx(345.0, rel=1e-3)


def test_a_peer_that_cannot_be_reached_directly_is_copied_to_all_the_same(
    machine: Machine,
) -> None:
    device = machine.device(cuda__unreachable=[1], cuda__to_peers={1: 20.0})
    assert device.peer(machine.gpus[1]) == pytest.approx(20.0, rel=1e-3)


def test_issue13_04_the_same_work_gives_the_same_sum_and_a_wrong_unit_another(
    machine: Machine,
) -> None:
    sound = machine.device().sums(0.0)
    assert machine.device().sums(0.0) == sound
    faulty = machine.device(cuda__wrong_bits_of_fma=1).sums(0.0)
    assert faulty.first != sound.first


@pytest.mark.parametrize(
    ("symbol", "code"),
    [("cuLaunchKernel", 719), ("cuCtxSynchronize", 214), ("cuMemHostAlloc", 800)],
)
def test_what_the_driver_refuses_is_named(machine: Machine, symbol: str, code: int) -> None:
    device = machine.device()
    set_gpu(machine.description, 0, errors={symbol: code})
    step = device.patterns if symbol == "cuLaunchKernel" else copy_to_host(device)
    with pytest.raises(CudaError) as raised:
        step()
    assert (raised.value.call, raised.value.code) == (symbol, code)


def test_the_first_error_counts_not_that_of_cleaning_up(machine: Machine) -> None:
    device = machine.device()
    set_gpu(machine.description, 0, cuda__lost_at="cuLaunchKernel")
    with pytest.raises(CudaError) as raised:
        device.patterns()
    assert (raised.value.call, raised.value.name) == ("cuLaunchKernel", "CUDA_ERROR_UNKNOWN")


def test_a_gpu_that_cuda_does_not_see(machine: Machine) -> None:
    with pytest.raises(CudaError, match="is not among its GPUs"):
        machine.device(unplugged=True)


def test_a_driver_without_a_function_says_which(machine: Machine) -> None:
    set_node(machine.description, missing=["cuMemcpyPeerAsync"])
    with pytest.raises(CudaError, match="cuMemcpyPeerAsync gave not in this driver's library"):
        machine.device().peer(machine.gpus[1])
