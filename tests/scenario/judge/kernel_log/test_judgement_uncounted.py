"""The kernel log read through syslog(2): its lines carry no sequence, and come again on a
restart.
"""

import pytest

from rules.judge.observation import KernelGap, KernelRead, SourceName, SourceState
from tests.support.scenario.judgement_world import World, pci

LOAD = "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.82.07  Release Build  (x@y)"


@pytest.fixture
def world() -> World:
    world = World()
    world.counted = False
    return world.start()


def again(world: World, *lines: tuple[float, str]) -> None:
    """The agent restarts and reads the entire ring once more, its old lines first."""
    world.restart_agent()
    for at, text in lines:
        world.kernel(text, lookback=True, at=at)
    world.see(KernelRead(at=world.now, boot_id=world.boot, sequence=-1))
    world.start()


def xid(number: int, gpu: int, text: str = "pid=77, name=python, some text") -> str:
    return f"NVRM: Xid (PCI:{pci(gpu)}): {number}, {text}"


def test_every_line_is_judged(world: World) -> None:
    world.see(KernelRead(at=world.now, boot_id=world.boot, sequence=-1))
    for number, gpu in ((31, 1), (79, 2), (95, 3)):
        world.xid(number, gpu)
    assert [i.xids for i in world.active] == [(31,), (79,), (95,)]
    world.see(KernelGap(at=world.now, lost=1, boot_id=world.boot))
    world.xid(119, 4)
    assert len(world.active) == 4


def test_a_line_is_judged_whatever_a_counting_reader_judged_before(world: World) -> None:
    world.counted = True
    world.xid(43, 0)
    world.counted = False
    again(world)
    world.xid(79, 1)
    assert [i.xids for i in world.active if i.row.severity == "Fatal"] == [(79,)]
    assert world.published().status.cursor.kmsg_seq == 101, "a counting reader goes on behind it"


def test_the_same_fault_again_is_another_incident(world: World) -> None:
    world.xid(31, 1)
    world.advance(600)
    world.xid(31, 1)
    assert [i.active for i in world.incidents] == [False, True]


def test_what_is_known_is_not_judged_again_by_a_restarted_agent(world: World) -> None:
    begin = world.now
    world.xid(31, 1)
    world.xid(95, 2)
    world.advance(600, polling=True)
    before = {(i.id, i.active, i.count) for i in world.incidents}
    for _ in range(3):
        again(world, (begin - 1, xid(31, 1)), (begin - 1, xid(95, 2)))
        world.advance(60, polling=True)
    assert {(i.id, i.active, i.count) for i in world.incidents} == before
    assert world.outcome() == "Fatal Drain ResetGPU"


def test_a_line_from_while_the_agent_was_away_is_history(world: World) -> None:
    world.advance(3600)
    again(world, (world.now - 5, xid(95, 2)))
    assert not world.active
    assert [i.closed_by for i in world.incidents] == ["BeforeStart"]


def test_loading_the_driver_before_the_fault_does_not_repair_it(world: World) -> None:
    begin = world.now
    world.advance(3600)
    world.xid(119, 2)
    for _ in range(2):
        again(world, (begin, LOAD), (begin + 3600, xid(119, 2)))
        world.advance(60, polling=True)
    assert world.outcome() == "Fatal Drain ResetGPU"
    again(world, (begin, LOAD), (begin + 3600, xid(119, 2)), (world.now - 5, LOAD))
    world.advance(60, polling=True)
    assert not world.active


def test_an_answer_given_to_an_earlier_fault_is_none_to_a_later_one(world: World) -> None:
    lowered = "GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)"
    taken_back = "GPU recovery action changed from 0x4 (x) to 0x0 (None)"
    begin = world.now
    world.advance(3600)
    world.xid(95, 2)
    again(world, (begin, xid(154, 2, lowered)), (begin + 9, xid(154, 2, taken_back)))
    world.advance(60, polling=True)
    assert world.outcome() == "Fatal Drain ResetGPU"


@pytest.mark.parametrize("text", ["pid=77, name=python, some text", "pid=78, name=b, the same"])
def test_a_fault_that_comes_again_while_the_agent_is_away_is_judged(
    world: World, text: str
) -> None:
    begin = world.now
    world.xid(95, 2)
    world.advance(20, polling=True)
    world.kernel(LOAD)
    world.advance(20, polling=True)
    assert [i.closed_by for i in world.incidents] == ["Reset"]
    world.advance(20)
    world.will_read(2, recovery_action=1)
    again(world, (begin, xid(95, 2)), (begin + 20, LOAD), (world.now, xid(95, 2, text)))
    world.advance(60, polling=True)
    assert [i.row.severity for i in world.active if 95 in i.xids] == ["Fatal"]


def test_a_repaired_fault_is_not_judged_again_by_an_agent_that_sees_no_gpu(world: World) -> None:
    begin = world.now
    world.xid(95, 2)
    world.advance(20, polling=True)
    world.kernel(LOAD)
    world.advance(20, polling=True)
    world.restart_agent()
    world.source(SourceName.NVML, SourceState.DOWN, "DriverAbsent")
    world.kernel(xid(95, 2), lookback=True, at=begin + 2)
    assert not world.active
    assert len(world.incidents) == 1
