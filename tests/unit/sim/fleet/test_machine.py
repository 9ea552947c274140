"""A machine of the played fleet publishes what an agent would have published."""

from __future__ import annotations

import pytest

from hack.fleet.kinds import TERMINAL, Kind
from hack.fleet.machine import Machine
from hack.fleet.signs import SIGNS

START = 1_790_000_000.0
GPU = 3

EXPECTED = {
    Kind.LOST: ("Unhealthy", "Xid79GPUFallenOffBus"),
    Kind.LOST_SILENTLY: ("Unhealthy", "GPULost"),
    Kind.UNCONTAINED: ("Unhealthy", "Xid95UncontainedMemoryError"),
    Kind.REMAP_FAILED: ("Unhealthy", "RowRemapFailure"),
    Kind.FIRMWARE: ("Unhealthy", "Xid119GSPTimeout"),
    Kind.NVLINK: ("Unhealthy", "Xid74NVLinkError"),
    Kind.CONTAINED: ("Degraded", "RowRemapPendingAfterError"),
    Kind.NARROW_LINK: ("Degraded", "PCIeWidthDegraded"),
    Kind.HOT: ("Degraded", "ThermalSlowdown"),
    Kind.PORT_DOWN: ("Degraded", "NetworkPortDown"),
    Kind.HOST_DOWN: ("Healthy", "AllChecksPassing"),
    Kind.HIDDEN: ("Healthy", "AllChecksPassing"),
    Kind.TESTED: ("Healthy", "AllChecksPassing"),
    Kind.FALSE_ALARM: ("Unhealthy", "Xid95UncontainedMemoryError"),
    Kind.BAD_DRIVER: ("Unhealthy", "Xid119GSPTimeout"),
}


def watched(kind: Kind) -> Machine:
    """A machine whose agent has looked long enough at a fault of this kind."""
    machine = Machine(number=0, name="n0", uid="uid-n0", made_at=START)
    machine.show(SIGNS[kind], GPU, START + 1000.0)
    _polls(machine, START + 1001.0)
    return machine


def _polls(machine: Machine, now: float) -> None:
    for step in range(24):
        machine.poll(now + 15.0 * step)
    machine.publish(now + 360.0)


def says(machine: Machine) -> tuple[str, str]:
    assert machine.published is not None
    return machine.published.status.health, machine.published.status.reason


@pytest.mark.parametrize("kind", list(Kind))
def test_each_kind_of_fault_is_judged_by_the_real_rules(kind: Kind) -> None:
    machine = watched(kind)

    assert says(machine) == EXPECTED[kind]
    if kind in TERMINAL:
        assert machine.published is not None
        assert "Drain" in {i.level for i in machine.published.status.incidents if i.active}


@pytest.mark.parametrize("kind", list(Kind))
def test_a_repair_makes_it_healthy_again(kind: Kind) -> None:
    machine = watched(kind)

    machine.repaired(START + 5000.0)
    _polls(machine, START + 5001.0)

    assert says(machine) == ("Healthy", "AllChecksPassing")
