"""Xid 13 and 31: program errors until the GPU repeats them at the same place."""

import pytest

from tests.support.scenario.judgement_world import World, uuid

FAULT_31 = "pid=7, name=python, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS"
CHANNEL_13 = "pid=7, name=python, Ch 00000008"


def fault_13(gpc: int = 1, tpc: int = 2) -> str:
    """The driver prints the place without a process, and the process without a place."""
    return (
        f"pid='<unknown>', name=<unknown>, Graphics SM Warp Exception on (GPC {gpc}, TPC {tpc}, "
        "SM 0): Out Of Range Address"
    )


def burst(
    world: World,
    xid: int,
    *,
    gpus: tuple[int, ...] = (0,),
    places: tuple[tuple[int, int], ...] = ((1, 2),),
    gap: float = 600,
) -> None:
    """Three lines within three seconds on each GPU, then silence."""
    for _ in range(3):
        for gpu in gpus:
            for place in places if xid == 13 else ():
                world.xid(13, gpu, fault_13(*place))
            world.xid(xid, gpu, CHANNEL_13 if xid == 13 else FAULT_31)
        world.advance(1)
    world.advance(gap)


def worst(world: World) -> str:
    order = ["Info", "Degraded", "Fatal"]
    return max((str(i.row.severity) for i in world.incidents), key=order.index)


@pytest.mark.parametrize("xid", [13, 31])
def test_the_same_place_three_times_asks_for_diagnostics(world: World, xid: int) -> None:
    burst(world, xid, gpus=(3,))
    burst(world, xid, gpus=(3,))
    assert worst(world) == "Info"
    burst(world, xid, gpus=(3,))
    assert world.outcome() == "Degraded Report RunDiagnostics"
    place = "Xid 13 at GPC 1, TPC 2" if xid == 13 else "Xid 31"
    assert world.only().gpus == (uuid(3),)
    assert world.only().evidence[-1] == (
        f"{place}: 3 bursts within 24 h, on no other GPU of this node"
    )
    assert world.only().row.closes_on.kind == "Human"


def test_what_was_concluded_is_kept_when_evidence_is_full(world: World) -> None:
    burst(world, 31)
    burst(world, 31)
    for address in range(20):
        world.xid(31, 0, f"{FAULT_31} faulted @ 0x{address:x}")
    world.advance(3)
    (incident,) = [i for i in world.incidents if str(i.row.severity) == "Degraded"]
    assert len(incident.evidence) == 5
    assert "3 bursts" in incident.evidence[-1]


@pytest.mark.parametrize(
    "places",
    [
        pytest.param([((1, 2),), ((3, 4),), ((5, 6),)], id="each elsewhere"),
        pytest.param([((1, 2), (3, 4))] * 3, id="all over the chip"),
        pytest.param([((1, 2),), ((1, 2),), ((1, 2), (1, 3))], id="the last one all over"),
        pytest.param([(), (), ()], id="not named"),
    ],
)
def test_13_must_repeat_its_one_place(
    world: World, places: list[tuple[tuple[int, int], ...]]
) -> None:
    for where in places:
        burst(world, 13, places=where)
    assert worst(world) == "Info"


@pytest.mark.parametrize("xid", [13, 31])
def test_an_xid_on_another_gpu_too_is_a_program_error(world: World, xid: int) -> None:
    burst(world, xid, gpus=(5,))
    for _ in range(4):
        burst(world, xid)
    assert worst(world) == "Info"


def test_another_gpu_at_the_same_time_counts_before_the_assessment(world: World) -> None:
    burst(world, 31)
    burst(world, 31)
    world.xid(31, 0, FAULT_31)
    world.advance(1)
    world.xid(31, 4, FAULT_31)
    world.advance(60)
    assert worst(world) == "Info"


def test_bursts_of_another_day_do_not_count(world: World) -> None:
    for _ in range(3):
        burst(world, 31, gap=13 * 3600)
    assert worst(world) == "Info"


def test_one_long_burst_is_one(world: World) -> None:
    for _ in range(200):
        world.xid(31, 0, FAULT_31)
        world.advance(60)
    assert worst(world) == "Info"


def test_a_repair_report_restarts_the_count(world: World) -> None:
    for _ in range(3):
        burst(world, 31)
    world.report_repaired()
    world.poll()
    world.advance(60)
    assert not any(incident.active for incident in world.incidents)
    burst(world, 31)
    burst(world, 31)
    assert not any(i.active and str(i.row.severity) != "Info" for i in world.incidents)
    burst(world, 31)
    assert world.outcome() == "Degraded Report RunDiagnostics"


def test_places_are_kept_over_a_restart(world: World) -> None:
    burst(world, 13)
    burst(world, 13)
    world.restart_agent().start()
    burst(world, 13)
    assert world.outcome() == "Degraded Report RunDiagnostics"
    assert "at GPC 1, TPC 2" in world.only().evidence[-1]


def test_a_restart_between_the_lines_of_two_gpus_reports_neither(world: World) -> None:
    for _ in range(4):
        world.xid(31, 0, FAULT_31)
        world.restart_agent().start()
        world.xid(31, 1, FAULT_31)
        world.advance(600)
    assert {str(i.row.severity) for i in world.incidents} == {"Info"}
