"""The fabric manager: it ran and stopped, is missing, or nothing can be told of it."""

from __future__ import annotations

import pytest

from rules.catalog.reasons import REASONS
from rules.catalog.thresholds import DEFAULT_RULES
from rules.judge.incident import Incident
from rules.judge.observation import (
    Service,
    SourceName,
    SourceState,
    TopologySeen,
)
from tests.support.scenario.judgement_world import POLL_S, World

FM = Service.FABRIC_MANAGER


def looks(
    world: World,
    running: set[Service] | None,
    count: int = 5,
) -> None:
    """So many looks, a minute apart, with NVML polled between them."""
    for _ in range(count):
        world.host(running=running)
        world.advance(60, polling=True)


def reads(world: World, **values: object) -> World:
    """Every GPU reads this from now on."""
    for gpu in range(len(world.inventory)):
        world.readings(gpu, **values)  # type: ignore[arg-type]
    return world


def hosts(world: World) -> list[Incident]:
    """What the host's services are found guilty of; GPUs outside the fabric accuse themselves."""
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
    assert world.says() == "Degraded Report RestartFabricManager"
    assert world.only().evidence == (
        "nvidia-fabricmanager ran earlier in this boot and does not run now",
    )
    assert world.only().scope == "Node"
    looks(world, {FM}, 4)
    assert world.active
    looks(world, {FM}, 1)
    assert not world.active


def test_one_that_was_never_seen_is_nothing_while_the_fabric_works() -> None:
    """It may run in a service machine, or on switches that are not of this machine."""
    world = reads(World().start(), fabric_state=3, fabric_status=0)
    looks(world, set(), 30)
    assert not world.incidents


@pytest.mark.parametrize("switched", [True, False])
def test_only_nodes_with_switches_need_one(switched: bool) -> None:
    world = reads(World(switched=switched).start(), fabric_state=2)
    looks(world, {FM})
    looks(world, set())
    assert bool(hosts(world)) is switched


def test_the_switches_of_a_rack_have_theirs_elsewhere() -> None:
    world = reads(rack(), fabric_state=2)
    looks(world, {FM})
    looks(world, set(), 30)
    assert not hosts(world)
    grace = reads(World().start(), fabric_state=2, c2c_states=(1,) * 10)
    looks(grace, set(), 30)
    assert not hosts(grace), "a tray that is not registered yet names no domain"


# when nothing can be told


def test_out_of_sight_is_not_stopped() -> None:
    world = reads(World().start(), fabric_state=2)
    looks(world, None, 30)
    assert not hosts(world)
    looks(world, {FM})
    looks(world, None, 30)
    assert not hosts(world)


@pytest.mark.parametrize("restarted", [True, False])
def test_what_was_found_ends_when_nobody_can_see_it_any_more(*, restarted: bool) -> None:
    world = reads(World().start(), fabric_state=3, fabric_status=0)
    looks(world, {FM})
    looks(world, set())
    assert world.verdict().health == "Degraded"
    if restarted:
        world.restart_agent()
        world.start()
        reads(world, fabric_state=3, fabric_status=0)
    looks(world, None, 3 if restarted else 4)  # a start is a look, too
    assert world.active, "one look may fail"
    looks(world, None, 1)
    assert not world.active
    assert world.incidents[0].closed_by == "NotSeen"
    looks(world, None, 30)
    assert len(world.incidents) == 1
    looks(world, set())
    assert world.only().row.reason == "FabricManagerStopped", "in sight again, it is told again"


def test_a_driver_that_is_taken_away_takes_its_services_with_it() -> None:
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


def test_a_fresh_boot_gives_services_time_to_come() -> None:
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
    world.restart_agent()
    world.start()
    reads(world, fabric_state=3, fabric_status=0)
    looks(world, set(), 30)
    assert world.only().id == known
    looks(world, {FM})
    assert not world.active


def test_a_reboot_ends_it_and_what_ran_before_is_forgotten() -> None:
    world = reads(World().start(), fabric_state=3, fabric_status=0)
    looks(world, {FM})
    looks(world, set())
    world.reboot()
    world.start()
    reads(world, fabric_state=3, fabric_status=0)
    looks(world, set(), 30)
    assert not world.active
    assert world.incidents[0].closed_by == "Reboot"


# all of them


def test_no_service_ever_costs_a_node() -> None:
    """Whatever the host shows, nothing of it is above Degraded, Report."""
    for reason in ("FabricManagerStopped", "HungNvidiaTask"):
        row, limit = REASONS[reason], DEFAULT_RULES[reason]
        assert row.level == "Report"
        assert row.severity in ("Degraded", "Info")
        assert (row.closes_on.count, row.closes_on.window) == (limit.count, limit.window)
    assert POLL_S < 60


def test_a_node_without_gpus_has_nothing_to_miss() -> None:
    world = World(gpus=0)
    world.inventory = []
    world.start()
    looks(world, set(), 30)
    assert not world.incidents
