"""A simulated machine says what an agent would have said, though it looks only where something
is.
"""

from __future__ import annotations

import pytest

from rules.api.health import HealthStatus
from rules.judge.observation import SourceState
from rules.simulate.node.machine import Machine
from rules.simulate.node.signs import PROGRAM_LINES, SIGNS
from rules.simulate.truth.kinds import EFFECTS, Kind

START = 1_790_000_000.0
GPU = 3
POLL_S = 15.0

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


class Watched:
    """A machine and the agent's verdict on it at any moment."""

    def __init__(self) -> None:
        self.machine = Machine(number=0, name="n0", uid="uid-n0", made_at=START)
        self.now = START + 1000.0
        self.machine.poll_all(self.now)

    def fault(self, kind: Kind) -> None:
        self.machine.show(SIGNS[kind], GPU)
        for after, text in SIGNS[kind].lines:
            self.machine.line(text, GPU, self.now + after)
        self.now += 1.0

    def looks(self, times: int, *, at_all: bool = False) -> None:
        for _ in range(times):
            self.now += POLL_S
            (self.machine.poll_all if at_all else self.machine.poll)(self.now)

    @property
    def status(self) -> HealthStatus:
        new = self.machine.publication(self.now)
        if new is None and self.machine.published is not None:
            return self.machine.published.status
        assert new is not None
        return new.status

    def says(self) -> tuple[str, str]:
        return self.status.health, self.status.reason

    def grave(self) -> list[tuple[str, str, str]]:
        return sorted(
            (i.reason, i.severity, i.level)
            for i in self.status.incidents
            if i.active and i.severity != "Info"
        )


@pytest.mark.parametrize("kind", list(Kind))
def test_each_kind_of_fault_is_judged_by_the_real_rules(kind: Kind) -> None:
    node = Watched()

    node.fault(kind)
    node.looks(20)

    assert node.says() == EXPECTED[kind]
    if EFFECTS[kind].terminal:
        assert "Drain" in {level for _, _, level in node.grave()}


@pytest.mark.parametrize("kind", [k for k in Kind if SIGNS[k].values or SIGNS[k].gone])
def test_looking_at_the_sick_gpu_and_a_sound_one_says_the_same_as_looking_at_all(
    kind: Kind,
) -> None:
    few, all_of_them = Watched(), Watched()
    few.machine.suspects.clear()

    for node, at_all in ((few, False), (all_of_them, True)):
        node.fault(kind)
        node.looks(10, at_all=at_all)

    assert few.says() == all_of_them.says()
    assert few.grave() == all_of_them.grave()


@pytest.mark.parametrize("kind", [k for k in Kind if SIGNS[k].lines or SIGNS[k].values])
def test_a_repair_makes_it_healthy_again(kind: Kind) -> None:
    node = Watched()
    node.fault(kind)
    node.looks(10)

    node.now += 3600.0
    node.machine.repaired(node.now)
    node.machine.people_say_repaired(node.now)
    node.looks(10)

    assert node.says() == ("Healthy", "AllChecksPassing")


@pytest.mark.parametrize("kind", [Kind.LOST, Kind.UNCONTAINED, Kind.CONTAINED, Kind.NARROW_LINK])
def test_the_xid_45_of_programs_changes_no_verdict(kind: Kind) -> None:
    """They are not played: with hundreds of them before, during and after a fault the node says
    the same as without.
    """
    calm, noisy = Watched(), Watched()

    def noise(seconds: float) -> None:
        for step in range(12):
            at = noisy.now + seconds * step / 12
            noisy.machine.line(PROGRAM_LINES[45], step % 8, at)
            noisy.machine.line(PROGRAM_LINES[43], step % 8, at)

    said = []
    for node in (calm, noisy):
        loud = node is noisy
        mine = []
        if loud:
            noise(0.5)
        node.fault(kind)
        if loud:
            noise(10.0)
        node.looks(10)
        mine.append((node.says(), node.grave()))
        node.now += 3600.0
        node.machine.repaired(node.now)
        if loud:
            noise(60.0)
        node.looks(16)
        mine.append((node.says(), node.grave()))
        said.append(mine)

    assert said[0] == said[1]


def test_not_seeing_is_not_failing() -> None:
    node = Watched()

    node.machine.nvml_is(SourceState.DOWN, node.now, "CallHung")
    assert node.says()[0] == "Unknown"

    node.now += 600.0
    node.machine.nvml_is(SourceState.UP, node.now)
    node.looks(3)
    assert node.says() == ("Healthy", "AllChecksPassing")
