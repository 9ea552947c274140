"""Checks of the host: the fabric manager, tasks that hang in the driver."""

import pytest

from rules.judge.incident import Incident
from rules.judge.observation import Service, SourceName, SourceState, TopologySeen
from tests.support.scenario.judgement_world import World

FM = Service.FABRIC_MANAGER


def looks(
    world: World,
    running: set[Service] | None,
    count: int = 5,
) -> None:
    """Poll the host `count` times, a minute apart, with NVML polled between."""
    for _ in range(count):
        world.host(running=running)
        world.advance(60, polling=True)


def reads(world: World, **values: object) -> World:
    """Set these readings on every GPU."""
    for gpu in range(len(world.inventory)):
        world.readings(gpu, **values)  # type: ignore[arg-type]
    return world


def hosts(world: World) -> list[Incident]:
    """Return the active reasons about the host's services, without those of the GPUs."""
    return [i for i in world.active if i.row.reason != "FabricStateFailed"]


def rack() -> World:
    """A compute tray of a rack: the switches are elsewhere, the GPUs share an NVLink domain."""
    world = World(gpus=4, architecture=10).start()
    gpus = tuple(gpu.uuid for gpu in world.inventory)
    world.see(
        TopologySeen(
            at=world.now,
            gpus=gpus,
            links=tuple(tuple("X" if a == b else "NV18" for b in gpus) for a in gpus),
            remotes=(("switch",) * 18,) * 4,
            clusters=("3f7a1c52-0000-4000-8000-000000000001",) * 4,
            cliques=(7,) * 4,
        )
    )
    # The richer description of the same GPUs stands, and these two are equally rich.
    assert world.state.topology is not None
    assert world.state.topology.clusters
    return world


# the fabric manager


def test_a_fabric_manager_that_ran_and_stopped_is_degraded_until_it_runs_again() -> None:
    world = reads(World().start(), fabric_state=3, fabric_status=0)
    looks(world, {FM})
    looks(world, set(), 4)
    assert not world.incidents, "a restart on purpose is over by then"
    looks(world, set(), 1)
    assert world.outcome() == "Degraded Report RestartFabricManager"
    assert world.only().evidence == (
        "nvidia-fabricmanager ran earlier in this boot and is not running now",
    )
    assert world.only().scope == "Node"
    looks(world, {FM}, 4)
    assert world.active
    looks(world, {FM}, 1)
    assert not world.active


def test_a_fabric_manager_that_never_ran_is_ignored_while_the_fabric_works() -> None:
    """It may run in a service VM, or on switches of another machine."""
    world = reads(World().start(), fabric_state=3, fabric_status=0)
    looks(world, set(), 30)
    assert not world.incidents


@pytest.mark.parametrize("switched", [True, False])
def test_only_nodes_with_switches_need_a_fabric_manager(switched: bool) -> None:
    world = reads(World(switched=switched).start(), fabric_state=2)
    looks(world, {FM})
    looks(world, set())
    assert bool(hosts(world)) is switched


def test_the_switches_of_a_rack_need_no_local_fabric_manager() -> None:
    world = reads(rack(), fabric_state=2)
    looks(world, {FM})
    looks(world, set(), 30)
    assert not hosts(world)
    grace = reads(World().start(), fabric_state=2, c2c_states=(1,) * 10)
    looks(grace, set(), 30)
    assert not hosts(grace), "a tray that is not registered yet names no domain"


# when nothing can be reported


def test_a_service_without_data_is_not_stopped() -> None:
    world = reads(World().start(), fabric_state=2)
    looks(world, None, 30)
    assert not hosts(world)
    looks(world, {FM})
    looks(world, None, 30)
    assert not hosts(world)


@pytest.mark.parametrize("restarted", [True, False])
def test_a_finding_about_services_ends_without_data(*, restarted: bool) -> None:
    world = reads(World().start(), fabric_state=3, fabric_status=0)
    looks(world, {FM})
    looks(world, set())
    assert world.assessment().health == "Degraded"
    if restarted:
        world.restart_agent().start()
        reads(world, fabric_state=3, fabric_status=0)
    looks(world, None, 3 if restarted else 4)  # a start is a check, too
    assert world.active, "one check may fail"
    looks(world, None, 1)
    assert not world.active
    assert world.incidents[0].closed_by == "NotSeen"
    looks(world, None, 30)
    assert len(world.incidents) == 1
    looks(world, set())
    assert world.only().row.reason == "FabricManagerStopped", (
        "in sight again, it is reported again"
    )


def test_a_released_driver_stops_its_services() -> None:
    world = reads(World().start(), fabric_state=3, fabric_status=0)
    looks(world, {FM})
    world.labels["nvidia.com/gpu-driver-upgrade-state"] = "pod-restart-required"
    world.node()
    looks(world, set(), 30)
    assert not world.incidents
    looks(world, set(), 100)
    assert world.only().row.reason == "FabricManagerStopped", "nobody ended that upgrade"
    looks(world, {FM})
    del world.labels["nvidia.com/gpu-driver-upgrade-state"]
    world.node()
    world.source(SourceName.NVML, SourceState.DOWN, "DriverAbsent")
    looks(world, set(), 10)
    assert not world.active


def test_services_have_a_grace_period_after_boot() -> None:
    world = reads(World(boot_grace_over=False).start(), fabric_state=3, fabric_status=0)
    looks(world, {FM}, 1)
    looks(world, set(), 13)
    assert not world.incidents
    looks(world, set(), 6)
    assert [i.row.reason for i in hosts(world)] == ["FabricManagerStopped"]


def test_an_agent_that_restarts_keeps_what_it_knew() -> None:
    world = reads(World().start(), fabric_state=3, fabric_status=0)
    looks(world, {FM})
    looks(world, set())
    known = world.only().id
    world.restart_agent().start()
    reads(world, fabric_state=3, fabric_status=0)
    looks(world, set(), 30)
    assert world.only().id == known
    looks(world, {FM})
    assert not world.active


def test_a_reboot_ends_it_and_what_ran_before_is_forgotten() -> None:
    world = reads(World().start(), fabric_state=3, fabric_status=0)
    looks(world, {FM})
    looks(world, set())
    world.reboot().start()
    reads(world, fabric_state=3, fabric_status=0)
    looks(world, set(), 30)
    assert not world.active
    assert world.incidents[0].closed_by == "Reboot"


# all of them


HUNG_LINE = "INFO: task nvidia-smi:6067 blocked for more than 120 seconds."
LOCKUP_LINE = "watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [UVM GPU1 BH:4242]"


def polls(world: World, count: int) -> None:
    for _ in range(count):
        world.host()
        world.advance(60, polling=True)


def test_a_hung_task_ends_when_the_gpus_answer() -> None:
    world = World().start()
    world.kernel(HUNG_LINE)
    world.advance(3)

    def no_data_polls(count: int, *, polling: bool) -> None:
        for _ in range(count):
            world.host()
            world.advance(60, polling=polling)

    no_data_polls(10, polling=False)
    assert world.outcome() == "Degraded Report RestartNode", "nobody has seen that it ended"
    for _ in range(5):  # the kernel names it again every two minutes
        world.kernel(HUNG_LINE)
        world.advance(20, polling=True)
        no_data_polls(2, polling=True)
    assert world.active
    assert len(world.incidents) == 1, "never ended in between"
    no_data_polls(9, polling=True)
    assert not world.active


def test_without_gpu_data_a_hung_task_lasts_until_the_reboot() -> None:
    world = World(nvml=False).start()
    world.kernel(HUNG_LINE)
    for _ in range(60):
        world.host()
        world.advance(60)
    assert world.only().row.reason == "HungNvidiaTask"
    world.reboot()
    world.host()
    assert not world.active


def test_a_hung_task_stays_open_while_the_log_repeats_it() -> None:
    world = World().start()
    polls(world, 10)
    for _ in range(20):
        for _ in range(3):
            world.kernel(LOCKUP_LINE)
            world.advance(20, polling=True)
        world.host()
    assert len(world.incidents) == 1, "one fault, one incident"
    assert world.outcome() == "Degraded Report RestartNode"
    polls(world, 6)
    assert world.active, "five quiet looks begin when the log has been silent for long enough"
    polls(world, 3)
    assert not world.active


def test_a_restart_of_the_agent_keeps_it_until_enough_polls_are_good() -> None:
    world = World().start()
    world.kernel(HUNG_LINE)
    polls(world, 3)
    known = world.only().id
    world.restart_agent().start()
    assert world.only().id == known
    polls(world, 3)
    assert world.active
    polls(world, 5)
    assert not world.active
