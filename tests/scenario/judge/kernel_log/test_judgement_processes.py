"""Tasks that hang in the driver: found in the kernel log, over once GPUs answer."""

from __future__ import annotations

from tests.support.scenario.judgement_world import World

HUNG_LINE = "INFO: task nvidia-smi:6067 blocked for more than 120 seconds."
LOCKUP_LINE = "watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [UVM GPU1 BH:4242]"


def polls(world: World, count: int) -> None:
    for _ in range(count):
        world.host()
        world.advance(60, polling=True)


def test_the_log_says_that_a_task_hangs_and_answering_gpus_that_it_ended() -> None:
    world = World().start()
    world.kernel(HUNG_LINE)
    world.advance(3)

    def blind_looks(count: int, *, polling: bool) -> None:
        for _ in range(count):
            world.host()
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
        world.host()
        world.advance(60)
    assert world.only().row.reason == "HungNvidiaTask"
    world.reboot()
    world.host()
    assert not world.active


def test_what_the_log_alone_names_stands_while_it_does_and_ends_after_it() -> None:
    world = World().start()
    polls(world, 10)
    for _ in range(20):
        for _ in range(3):
            world.kernel(LOCKUP_LINE)
            world.advance(20, polling=True)
        world.host()
    assert len(world.incidents) == 1, "one fault, one incident"
    assert world.says() == "Degraded Report RestartNode"
    polls(world, 6)
    assert world.active, "five quiet looks begin when the log has been silent for long enough"
    polls(world, 3)
    assert not world.active


def test_a_restart_of_the_agent_keeps_it_until_enough_polls_are_good() -> None:
    world = World().start()
    world.kernel(HUNG_LINE)
    polls(world, 3)
    known = world.only().id
    world.restart_agent()
    world.start()
    assert world.only().id == known
    polls(world, 3)
    assert world.active
    polls(world, 5)
    assert not world.active
