"""Processes stuck in the driver: the same one again and again, another each time, zombies, a
pod.
"""

from __future__ import annotations

import pytest

from rules.judge.observation import HostProcess
from tests.support.scenario.judgement_world import World

HUNG_LINE = "INFO: task nvidia-smi:6067 blocked for more than 120 seconds."
LOCKUP_LINE = "watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [UVM GPU1 BH:4242]"


def task(pid: int = 7, state: str = "D", name: str = "nvidia-smi") -> HostProcess:
    return HostProcess(pid=pid, name=name, state=state)


def looks(world: World, *tasks: HostProcess, count: int = 5) -> None:
    for _ in range(count):
        world.host(*tasks)
        world.advance(60, polling=True)


def followed(world: World) -> int:
    return sum(reason == "HungNvidiaTask" for reason, _ in world.state.checks)


def test_the_same_task_in_five_looks_is_degraded_until_none_is_left() -> None:
    world = World().start()
    looks(world, task(), count=4)
    assert not world.incidents
    looks(world, task(), task(8), count=1)
    assert world.says() == "Degraded Report RestartNode"
    assert world.only().evidence == ("nvidia-smi (pid 7) in uninterruptible sleep",)
    looks(world, task(), task(8), count=4)
    assert world.only().evidence[1:] == ("nvidia-smi (pid 8) in uninterruptible sleep",)
    looks(world, task(8), count=6)
    assert world.active, "one of them is still there"
    looks(world, count=4)
    assert world.active
    looks(world, count=1)
    assert not world.active


def test_another_task_at_each_look_is_a_tool_that_waits_now_and_then() -> None:
    world = World().start()
    for pid in range(100, 130):
        looks(world, task(pid), count=1)
    assert not world.incidents
    assert followed(world) == 5, "those within the window"


def test_a_zombie_is_a_record() -> None:
    world = World().start()
    looks(world, task(state="Z"), count=4)
    assert not world.incidents
    looks(world, task(state="Z"), count=20)
    assert world.says() == "Info Report None"
    assert world.only().row.reason == "ZombieNvidiaTask"
    assert world.only().count == 1
    assert world.only().last_seen == world.only().first_seen, "a record is not renewed"
    assert world.verdict().health == "Healthy"
    looks(world)
    assert not world.active


def test_what_an_agent_found_stands_after_its_restart_until_enough_good_looks() -> None:
    world = World().start()
    looks(world, task())
    known = world.only().id
    world.restart_agent()
    world.start()
    looks(world, task(), count=3)
    assert world.only().id == known
    looks(world, count=4)
    assert world.active
    looks(world, count=1)
    assert not world.active


def test_no_process_outlives_a_boot() -> None:
    world = World().start()
    looks(world, task())
    world.reboot()
    world.host()
    assert not world.active
    assert world.incidents[0].closed_by == "Reboot"


def test_in_a_pod_the_log_says_that_a_task_hangs_and_answering_gpus_that_it_ended() -> None:
    world = World().start()
    world.kernel(HUNG_LINE)
    world.advance(3)

    def blind_looks(count: int, *, polling: bool) -> None:
        for _ in range(count):
            world.host(in_sight=False)
            world.advance(60, polling=polling)

    blind_looks(10, polling=False)
    assert world.says() == "Degraded Report RestartNode", "nobody has seen that it ended"
    for _ in range(5):  # the kernel names it again every two minutes
        world.kernel(HUNG_LINE)
        world.advance(20, polling=True)
        blind_looks(2, polling=True)
    assert world.active
    assert len(world.incidents) == 1, "never ended in between"
    blind_looks(9, polling=True)
    assert not world.active


def test_where_nothing_else_sees_the_gpus_it_lasts_until_the_reboot() -> None:
    world = World(nvml=False).start()
    world.kernel(HUNG_LINE)
    for _ in range(60):
        world.host(in_sight=False)
        world.advance(60)
    assert world.only().row.reason == "HungNvidiaTask"
    world.reboot()
    world.host(in_sight=False)
    assert not world.active


def test_what_the_log_alone_names_stands_while_it_does_and_ends_after_it() -> None:
    """A lockup runs, so that no look at the processes finds it waiting."""
    world = World().start()
    looks(world, count=10)
    for _ in range(20):
        for _ in range(3):
            world.kernel(LOCKUP_LINE)
            world.advance(20, polling=True)
        world.host()
    assert len(world.incidents) == 1, "one fault, one incident"
    assert world.says() == "Degraded Report RestartNode"
    looks(world, count=6)
    assert world.active, "five quiet looks begin when the log has been silent for long enough"
    looks(world, count=3)
    assert not world.active


def test_a_task_that_is_gone_ends_it_whatever_else_waits_now_and_then() -> None:
    world = World().start()
    looks(world, task())
    assert world.active
    for pid in range(100, 104):
        looks(world, task(pid), count=1)
    assert world.active
    looks(world, task(104), count=1)
    assert not world.active


@pytest.mark.parametrize("restarted", [True, False])
def test_so_does_one_that_an_earlier_agent_or_only_the_log_knew(*, restarted: bool) -> None:
    world = World().start()
    if restarted:
        looks(world, task())
        world.restart_agent()
        world.start()
    else:
        world.kernel(HUNG_LINE)
    for pid in range(100, 105):
        looks(world, task(pid), count=1)
    assert world.active
    for pid in range(105, 109):
        looks(world, task(pid), count=1)
    assert not world.active


def test_a_crowd_of_hung_tasks_is_bounded() -> None:
    world = World().start()
    looks(world, *(task(pid) for pid in range(500)), count=8)
    assert followed(world) <= 64
    assert len(world.only().evidence) <= 5
