"""Xid 13 and 31: a program's fault until the GPU repeats it for different programs."""

from __future__ import annotations

import pytest
from judgement_world import World

FAULT_31 = "pid=7, name=python, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS"


def fault_13(gpc: int, tpc: int) -> str:
    return f"pid=7, name=python, Graphics SM Warp Exception on (GPC {gpc}, TPC {tpc}, SM 0): Out Of Range Address"


@pytest.fixture
def world() -> World:
    return World().start()


def bursts(
    world: World, xid: int, workloads: str, *, gpu: int = 0, text: str = FAULT_31, gap: float = 600
) -> None:
    """One burst of three lines for each letter, `-` for an unknown workload."""
    for workload in workloads:
        for _ in range(3):
            world.xid(xid, gpu, text, workload="" if workload == "-" else workload)
            world.advance(1)
        world.advance(gap)


def severities(world: World) -> set[str]:
    return {str(i.row.severity) for i in world.incidents}


@pytest.mark.parametrize(
    ("workloads", "expected"),
    [
        ("aaa", "Info"),
        ("aaaaaaaaaa", "Info"),
        ("ab", "Info"),
        ("aab", "Degraded"),
        ("abc", "Degraded"),
        ("---", "Info"),
        ("--a", "Degraded"),
    ],
)
def test_31_needs_three_bursts_of_two_workloads(
    world: World, workloads: str, expected: str
) -> None:
    bursts(world, 31, workloads)
    assert max(severities(world), key=["Info", "Degraded", "Fatal"].index) == expected
    if expected == "Degraded":
        assert world.says() == "Degraded Report RunDiagnostics"


def test_another_gpu_with_the_same_workload_is_the_program(world: World) -> None:
    bursts(world, 31, "a", gpu=5)
    bursts(world, 31, "aab")
    assert severities(world) == {"Info"}


def test_bursts_of_another_day_do_not_count(world: World) -> None:
    bursts(world, 31, "aab", gap=13 * 3600)
    assert severities(world) == {"Info"}


def test_one_long_burst_is_one(world: World) -> None:
    for number in range(200):
        world.xid(31, 0, FAULT_31, workload="ab"[number % 2])
        world.advance(60)
    assert severities(world) == {"Info"}


@pytest.mark.parametrize(
    ("places", "expected"), [([(1, 2)] * 3, "Degraded"), ([(1, 2), (3, 4), (5, 6)], "Info")]
)
def test_13_must_repeat_its_place(
    world: World, places: list[tuple[int, int]], expected: str
) -> None:
    for workload, place in zip("abc", places, strict=True):
        bursts(world, 13, workload, text=fault_13(*place))
    assert max(severities(world), key=["Info", "Degraded", "Fatal"].index) == expected


def test_a_crash_looping_pod_never_costs_a_node(world: World) -> None:
    bursts(world, 31, "a" * 50, gap=200)
    assert severities(world) == {"Info"}
    assert len(world.incidents) <= 64


def test_earlier_bursts_survive_a_restart_as_one_workload(world: World) -> None:
    bursts(world, 31, "abc"[:2])
    world.restart_agent()
    world.start()
    bursts(world, 31, "c")
    assert "Degraded" in severities(world)
