"""Checks of network ports: down, missing, flapping, with errors, without device files."""

import pytest

from rules.judge.incident import Incident
from rules.judge.observation import NetworkPort, PortCounter
from tests.support.scenario.judgement_world import World

UP = (NetworkPort(name="mlx5_0/1", active=True), NetworkPort(name="mlx5_1/1", active=False))
DOWN = (NetworkPort(name="mlx5_0/1", active=False), UP[1])
OTHER = NetworkPort(name="mlx5_9/1", active=True)


def polls(
    world: World, ports: tuple[NetworkPort, ...], minutes: int, *, ports_move: bool = False
) -> None:
    for _ in range(minutes):
        world.host(ports=ports, ports_move=ports_move)
        world.advance(60)


def port(
    name: str = "mlx5_0/1", counters: dict[str, int] | None = None, *, active: bool = True
) -> NetworkPort:
    values = {PortCounter[name.upper()]: value for name, value in (counters or {}).items()}
    return NetworkPort(name=name, active=active, counters=values)


def shows(world: World, minutes: int = 1, **counters: int) -> None:
    """Poll one active port with these counters."""
    polls(world, (port(counters=counters),), minutes)


def grows(world: World, minutes: int, a_minute: int, *counters: str, begin: int = 7) -> int:
    """Poll a port with counters that grow, and return their last value."""
    for minute in range(minutes):
        value = begin + a_minute * minute
        shows(world, **dict.fromkeys(counters, value))
    return begin + a_minute * (minutes - 1)


def reasons(world: World) -> list[str]:
    return [incident.row.reason for incident in world.active]


# down


def test_a_port_that_worked_and_stays_down_is_degraded_until_it_is_back() -> None:
    world = World().start()
    polls(world, UP, 2)
    polls(world, DOWN, 6)
    assert world.outcome() == "Degraded Report Investigate"
    assert world.only().row.reason == "NetworkPortDown"
    polls(world, UP, 2)
    assert world.active, "it may only flap"
    polls(world, UP, 1)
    assert not world.active


def test_a_flap_and_an_unused_port_are_ignored() -> None:
    world = World().start()
    polls(world, UP, 2)
    polls(world, DOWN, 3)
    polls(world, UP, 10)
    assert not world.incidents


def test_a_port_found_down_by_an_agent_that_starts_is_not_judged() -> None:
    world = World().start()
    polls(world, DOWN, 20)
    assert not world.incidents


def test_a_restarted_agent_keeps_the_finding_while_the_port_is_down() -> None:
    world = World().start()
    polls(world, UP, 1)
    polls(world, DOWN, 6)
    world.restart_agent()
    polls(world, DOWN, 2)
    assert world.only().row.reason == "NetworkPortDown"
    polls(world, UP, 3)
    assert not world.active


def test_an_adapter_that_does_not_answer_is_not_down() -> None:
    world = World().start()
    polls(world, UP, 2)
    polls(world, (NetworkPort(name="mlx5_0/1", active=None),), 30)
    assert not world.incidents


# missing


def missing(world: World) -> Incident:
    polls(world, (*UP, OTHER), 2)
    polls(world, (OTHER,), 10)
    assert not world.incidents, "a driver upgrade takes minutes"
    polls(world, (OTHER,), 2)
    return world.only()


def test_a_port_that_worked_in_this_boot_and_disappears_is_missing_until_it_is_back() -> None:
    world = World().start()
    incident = missing(world)
    assert world.outcome() == "Degraded Report RestartNode"
    assert incident.row.reason == "NetworkPortMissing"
    assert incident.ports == ("mlx5_0/1",), "mlx5_1 was never active"
    assert incident.evidence == ("mlx5_0/1: missing for 600 s, was active in this boot",)
    polls(world, (*UP, OTHER), 2)
    assert world.active
    polls(world, (*UP, OTHER), 1)
    assert not world.active


def test_all_adapters_may_disappear() -> None:
    world = World().start()
    polls(world, (OTHER,), 1)
    polls(world, (), 12)
    assert world.only().ports == ("mlx5_9/1",)


def test_a_restarted_agent_knows_which_ports_this_boot_had() -> None:
    world = World().start()
    polls(world, (*UP, OTHER), 2)
    world.restart_agent()
    polls(world, (OTHER,), 12)
    assert world.only().row.reason == "NetworkPortMissing"
    world.restart_agent()
    polls(world, (OTHER,), 12)
    assert len(world.incidents) == 1
    polls(world, (*UP, OTHER), 3)
    assert not world.active


def test_a_reboot_alone_does_not_end_a_missing_port() -> None:
    world = World().start()
    missing(world)
    world.reboot().start()
    polls(world, (OTHER,), 12)
    assert reasons(world) == ["NetworkPortMissing"]
    polls(world, (*UP, OTHER), 3)
    assert not world.active


def test_an_adapter_that_was_replaced_has_another_name() -> None:
    world = World().start()
    missing(world)
    world.report_repaired()
    world.reboot().start()
    polls(world, (OTHER, NetworkPort(name="mlx5_4/1", active=True)), 3)
    assert not world.active


def test_another_boot_may_have_fewer_ports() -> None:
    world = World().start()
    polls(world, (*UP, OTHER), 2)
    world.reboot().start()
    polls(world, (OTHER,), 30)
    assert not world.incidents


def test_a_port_in_the_network_namespace_of_a_pod_is_not_missing() -> None:
    world = World().start()
    polls(world, (*UP, OTHER), 2, ports_move=True)
    polls(world, (OTHER,), 60, ports_move=True)
    assert not world.incidents


# device files


def test_an_active_port_without_a_device_file_is_reported() -> None:
    complete = NetworkPort(name="mlx5_0/1", active=True, missing_files=())
    lacks = NetworkPort(name="mlx5_0/1", active=True, missing_files=("umad",))
    world = World().start()
    polls(world, (complete,), 3)
    polls(world, (lacks,), 2)
    assert not world.incidents
    polls(world, (lacks,), 1)
    assert world.outcome() == "Degraded Report Investigate"
    assert world.only().evidence == ("mlx5_0/1: is active, but lacks /dev/infiniband/umad*",)
    polls(world, (UP[0],), 10)
    assert world.active, "no data"
    polls(world, (complete,), 3)
    assert not world.active


def test_a_port_that_is_down_needs_no_device_file() -> None:
    world = World().start()
    polls(world, (NetworkPort(name="mlx5_0/1", active=False, missing_files=("uverbs",)),), 20)
    assert not world.incidents


# flaps


def test_the_third_flap_within_an_hour_is_reported_for_an_hour() -> None:
    world = World().start()
    for _ in range(3):
        polls(world, UP, 10)
        assert not world.incidents
        polls(world, DOWN, 1)
    assert world.outcome() == "Degraded Report CheckMechanicals"
    assert world.only().evidence == ("mlx5_0/1: link downs: 3 in an hour",)
    polls(world, UP, 58)
    assert reasons(world) == ["NetworkLinkFlaps"]
    polls(world, UP, 3)
    assert not world.active


@pytest.mark.parametrize("counter", ["link_downed", "carrier_down"])
def test_flaps_between_two_polls_are_counted(counter: str) -> None:
    world = World().start()
    shows(world, 2, **{counter: 7})
    shows(world, 2, **{counter: 9})
    assert not world.incidents
    shows(world, **{counter: 10})
    assert world.only().row.reason == "NetworkLinkFlaps"


def test_rare_flaps_are_ignored() -> None:
    world = World().start()
    grows(world, 30 * 12, 0, "link_downed")
    for flaps in range(8, 20):
        shows(world, 35, link_downed=flaps)
    assert not world.incidents


def test_a_counter_at_its_ceiling_and_values_before_the_start_are_no_flaps() -> None:
    """Recorded in public: a healthy H100 node with link_downed at 255."""
    world = World().start()
    shows(world, 3, link_downed=200)
    world.restart_agent()
    shows(world, 100, link_downed=255)
    assert not world.incidents


# counters


@pytest.mark.parametrize(
    ("counter", "quiet", "bad", "reason", "outcome"),
    [
        ("symbol_errors", 1, 8, "NetworkSymbolErrors", "Degraded Report CheckMechanicals"),
        ("link_recoveries", 1, 5, "NetworkLinkRecovery", "Degraded Report CheckMechanicals"),
        ("receive_errors", 540, 660, "NetworkReceiveErrors", "Degraded Report CheckMechanicals"),
        ("slow_restarts", 540, 660, "RoceSlowRestart", "Degraded Report Investigate"),
        ("efa_drops", 5_400, 6_600, "EfaPacketDrops", "Degraded Report Investigate"),
        ("efa_read_errors", 0, 1, "EfaRequestErrors", "Degraded Report Investigate"),
        ("efa_write_errors", 0, 1, "EfaRequestErrors", "Degraded Report Investigate"),
        ("efa_timeouts", 54, 66, "EfaConnectionErrors", "Degraded Report Investigate"),
        ("efa_impaired", 54, 66, "EfaConnectionErrors", "Degraded Report Investigate"),
        ("efa_unresponsive", 54, 66, "EfaConnectionErrors", "Degraded Report Investigate"),
        ("efa_commands_lost", 0, 1, "EfaCommandsLost", "Degraded Report RestartNode"),
    ],
)
def test_errors_of_a_port_are_reported_above_the_limit_and_end_with_the_errors(
    counter: str, quiet: int, bad: int, reason: str, outcome: str
) -> None:
    world = World().start()
    value = grows(world, 70, quiet, counter, begin=1 if quiet else 0)
    assert not world.incidents, "below the limit"
    value = grows(world, 20, bad, counter, begin=value + bad)
    assert world.outcome() == outcome
    assert world.only().row.reason == reason
    assert world.only().ports == ("mlx5_0/1",)
    grows(world, 65, 0, counter, begin=value)
    assert not world.active


def test_one_burst_is_no_rate() -> None:
    world = World().start()
    for value in (0, 5_000_000, 5_000_000, 5_000_000, 5_000_000):
        counters = dict.fromkeys(("efa_drops", "efa_read_errors", "efa_impaired"), value)
        shows(world, **counters)
    assert not world.incidents


def test_a_counter_that_goes_back_starts_again() -> None:
    """A reset by an operator or a driver, or a counter of 32 bits that wrapped."""
    world = World().start()
    slow_restarts = (4_294_967_000, 4_294_967_290, 3, 9, 0, 0)
    symbol_errors = (60_000, 60_009, 0, 9, 3, 3)
    for slow, symbols in zip(slow_restarts, symbol_errors, strict=True):
        shows(world, 2, slow_restarts=slow, symbol_errors=symbols)
    assert not world.incidents


def test_errors_while_a_link_trains_do_not_count() -> None:
    world = World().start()
    shows(world, 2, symbol_errors=0, receive_errors=0, link_downed=0)
    polls(
        world, (port(counters={"symbol_errors": 9_000, "receive_errors": 9_000}, active=False),), 1
    )
    shows(world, 2, symbol_errors=20_000, receive_errors=20_000, link_downed=1)
    shows(world, 2, symbol_errors=30_000, receive_errors=30_000, link_downed=2)
    assert not world.incidents


def test_a_saturated_counter_keeps_a_finding_open_and_opens_none() -> None:
    world = World().start()
    value = grows(world, 20, 12, "link_recoveries", begin=3)
    assert reasons(world) == ["NetworkLinkRecovery"]
    shows(world, 1, link_recoveries=value)
    shows(world, 90, link_recoveries=255)
    assert reasons(world) == ["NetworkLinkRecovery"], "no data"
    grows(world, 5, 0, "link_recoveries", begin=0)
    assert not world.active


def test_the_second_port_joins_the_incident_and_both_must_recover() -> None:
    world = World().start()

    def minute(first: int, second: int) -> None:
        polls(
            world,
            (port(counters={"slow_restarts": first}), port("mlx5_1/1", {"slow_restarts": second})),
            1,
        )

    for step in range(6):
        minute(step * 6_000, 0)
    for step in range(6, 12):
        minute(step * 6_000, step * 6_000)
    assert world.only().ports == ("mlx5_0/1", "mlx5_1/1")
    assert world.only().count == 2
    for step in range(12, 18):
        minute(66_000, step * 6_000)
    assert world.active
    for _ in range(5):
        minute(66_000, 102_000)
    assert not world.active


def test_bad_polls_of_different_ports_do_not_add_up() -> None:
    world = World().start()
    values = {"mlx5_0/1": 0, "mlx5_1/1": 0, "mlx5_2/1": 0, "mlx5_3/1": 0}
    for step in range(20):
        worst = f"mlx5_{step % 4}/1"
        values[worst] += 60_000
        polls(world, tuple(port(n, {"slow_restarts": v}) for n, v in values.items()), 1)
    assert not world.incidents


def test_an_hourly_finding_outlives_the_agent_by_an_hour() -> None:
    world = World().start()
    value = grows(world, 20, 20, "symbol_errors")
    assert reasons(world) == ["NetworkSymbolErrors"]
    world.restart_agent()
    grows(world, 59, 0, "symbol_errors", begin=value)
    assert reasons(world) == ["NetworkSymbolErrors"]
    grows(world, 3, 0, "symbol_errors", begin=value)
    assert not world.active


def test_many_ports_are_bounded() -> None:
    world = World().start()
    names = [f"rdmap{number:03}/1" for number in range(100)]
    for step in range(8):
        polls(world, tuple(port(name, {"efa_drops": step * 60_000}) for name in names), 1)
    assert len(world.only().ports) <= 64
    polls(world, tuple(port(f"other{number:03}/1") for number in range(100)), 20)
    assert len(world.state.ports) <= 64
