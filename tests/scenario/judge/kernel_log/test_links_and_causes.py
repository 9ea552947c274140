"""Fabric states, links that are down or fail again, common causes of many GPUs."""

import pytest

from rules.catalog.reason import Level, Severity
from rules.catalog.signals import Signal
from rules.catalog.thresholds import DEFAULT_RULES, parse_rules
from rules.judge.health_status import Health
from rules.judge.judge import judge
from rules.judge.observation import Readings
from rules.judge.state import NodeState
from tests.support.scenario.judgement_world import SOUND, World, uuid

UP, ONE_DOWN = (1,) * 18, (1,) * 17 + (0,)
MINUTE = 60


def all_read(world: World, **values: object) -> None:
    for gpu in range(len(world.inventory)):
        world.will_read(gpu, **values)  # type: ignore[arg-type]


@pytest.mark.parametrize("state", [1, 2, 4, 7, 99])
def test_a_fabric_not_joined_after_the_boot_grace_is_cordoned(
    state: int,
) -> None:
    world = World(boot_grace_over=False).start()
    world.will_read(0, fabric_state=state, fabric_status=0)
    world.advance(14 * MINUTE, polling=True)
    assert not world.incidents
    world.advance(3 * MINUTE, polling=True)
    assert world.outcome() == "Degraded Cordon RestartFabricManager"
    world.will_read(0, fabric_state=3)
    world.advance(3 * MINUTE, polling=True)
    assert not world.active


def test_a_page_without_fabric_data_reports_no_fabric_fault() -> None:
    world = World(1, nvml=False).start()
    for _ in range(9):
        world.dcgm({uuid(0): {Signal.FABRIC_STATE: 6, Signal.TEMPERATURE: 40}})
        world.advance(15)
    assert not world.active


def test_a_link_down_for_three_of_five_polls_is_cordoned(world: World) -> None:
    all_read(world, nvlink_states=UP)
    for states in (ONE_DOWN, UP, ONE_DOWN, UP):
        world.readings(2, nvlink_states=states)
        world.advance(MINUTE)
    assert not world.active
    world.readings(2, nvlink_states=ONE_DOWN)
    assert world.outcome() == "Degraded Cordon ResetGPU"
    assert world.assessment().health is Health.DEGRADED
    world.will_read(2, nvlink_states=UP)
    world.advance(5 * MINUTE, polling=True)
    assert not world.active


def test_polls_across_a_driver_restart_do_not_add_up(world: World) -> None:
    all_read(world, nvlink_states=UP)
    for _ in range(2):
        world.readings(2, nvlink_states=ONE_DOWN)
        world.advance(MINUTE)
    world.kernel(
        "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.82.07  Mon Dec 30 17:44:08 UTC 2024"
    )
    for _ in range(2):
        world.readings(2, nvlink_states=ONE_DOWN)
        world.advance(MINUTE)
    assert not world.active


def test_a_reboot_that_brings_the_links_back_ends_it(world: World) -> None:
    all_read(world, nvlink_states=UP)
    world.will_read(2, nvlink_states=ONE_DOWN)
    world.advance(2 * MINUTE, polling=True)
    assert world.reasons == {"NVLinkDown"}
    world.reboot()
    all_read(world, nvlink_states=UP)
    world.start()
    world.advance(5 * MINUTE, polling=True)
    assert not world.active


def nvlink_error(world: World, link: int, gpu: int = 0, register: int = 1 << 27) -> None:
    others = ", ".join(["0x0"] * 6)
    world.xid(
        74,
        gpu,
        f"pid=9, name=x, NVLink: fatal error detected on link {link}({register:#x}, {others})",
    )


@pytest.mark.parametrize("restarted", [True, False])
def test_a_second_74_on_one_link_within_a_day_is_cordoned(
    world: World, *, restarted: bool
) -> None:
    nvlink_error(world, 3)
    nvlink_error(world, 3)
    world.advance(3600)
    nvlink_error(world, 4)
    world.advance(3)
    assert world.only().row.level is Level.REPORT
    if restarted:
        world.restart_agent().start()
    world.advance(3600)
    nvlink_error(world, 3)
    world.advance(3)
    assert world.only().row.level is Level.CORDON
    assert world.only().row.severity is Severity.DEGRADED
    world.restart_agent()
    assert world.only().row.level is Level.CORDON


def test_74_on_a_third_link_of_one_gpu_within_a_day_is_cordoned(world: World) -> None:
    for link in (0, 5, 5, 9):
        nvlink_error(world, link)
    for gpu, link in ((1, 7), (2, 8), (0, 2)):
        world.advance(3600)
        nvlink_error(world, link, gpu)
    world.advance(3)
    assert {incident.row.level for incident in world.active} == {Level.REPORT}
    world.advance(3600)
    nvlink_error(world, 11)
    world.advance(3)
    (raised,) = [incident for incident in world.active if incident.row.level is Level.CORDON]
    assert raised.gpus == (uuid(0),)


def test_lines_of_one_link_error_that_come_slowly_are_one_error(world: World) -> None:
    for _ in range(4):
        nvlink_error(world, 3)
        world.advance(8)
    assert world.only().row.level is Level.REPORT


def test_many_links_and_places_displace_nothing_else_that_is_counted(world: World) -> None:
    world.xid(94)
    for link in range(18):
        world.advance(300)
        nvlink_error(world, link)
    for place in range(18):
        world.advance(300)
        world.xid(13, 0, f"Graphics SM Warp Exception on (GPC {place % 6}, TPC {place}, SM 0): x")
        world.advance(3)
    counted = [what for _, what in world.state.ledger]
    assert "Xid 94" in counted
    assert len(counted) <= 12


def test_a_second_74_after_a_day_or_ignorable_does_not_count(world: World) -> None:
    nvlink_error(world, 3)
    world.advance(90_000)
    nvlink_error(world, 3)
    for _ in range(5):
        world.advance(3600)
        nvlink_error(world, 7, register=1)
    world.advance(3)
    assert {incident.row.level for incident in world.active} == {Level.REPORT}


def test_a_rules_file_overrides_repeated_link_errors(world: World) -> None:
    world.rules = parse_rules(
        b"apiVersion: gpuward.io/v1alpha1\nkind: Rules\n"
        b"reasons: {Xid74NVLinkError: {level: Report}}\n"
    )
    nvlink_error(world, 3)
    world.advance(3600)
    nvlink_error(world, 3)
    world.advance(3)
    assert world.only().row.level is Level.REPORT


def test_74_on_all_gpus_ends_when_the_links_return(world: World) -> None:
    all_read(world, nvlink_states=UP)
    world.poll()
    for gpu in range(8):
        nvlink_error(world, 3, gpu)
    all_read(world, nvlink_states=(0,) * 18)
    world.advance(10)
    incident = world.only()
    assert incident.scope == "Node"
    assert len(incident.gpus) == 8
    assert "common cause on 8 GPUs" in world.assessment().message
    all_read(world, nvlink_states=UP)
    world.advance(30, polling=True)
    assert world.active, "one good look is none"
    world.restart_agent().start()
    world.advance(60, polling=True)
    assert not world.active
    assert {i.closed_by for i in world.incidents} == {"State", "CommonCause"}


@pytest.mark.parametrize(("gpus", "hit"), [(8, 4), (4, 2), (2, 2), (8, 8)])
@pytest.mark.parametrize("xid", [*range(145, 151)])
def test_an_error_of_the_fabric_on_half_of_the_gpus_is_one_incident_of_the_node(
    gpus: int, hit: int, xid: int
) -> None:
    world = World(gpus, architecture=10).start()
    for gpu in range(hit):
        world.xid(xid, gpu)
        world.advance(5)
    incident = world.only()
    assert incident.scope == "Node"
    assert incident.gpus == tuple(uuid(gpu) for gpu in range(hit))
    assert (incident.row.severity, incident.row.level) == (Severity.DEGRADED, Level.CORDON)
    world.restart_agent()
    assert world.only().row.level is Level.CORDON


@pytest.mark.parametrize("hit", [2, 4])
def test_what_the_table_ignores_is_ignored_on_many_gpus(hit: int) -> None:
    world = World(4, architecture=10).start()
    ignored = "RLW_RXPIPE Nonfatal XC0 i0 Link 14 (0x0409a0c2 0x00000008 0x0 0x0 0x0 0x0)"
    for gpu in range(hit):
        world.xid(145, gpu, ignored)
        world.advance(5)
    assert {(i.row.severity, i.row.level) for i in world.active} == {(Severity.INFO, Level.REPORT)}
    world.xid(145, 0)
    world.advance(3)
    assert {i.row.level for i in world.active} == {Level.REPORT}


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize(("cause", "text"), [
    (145, "RLW_RXPIPE Nonfatal XC0 i0 Link 14 (0x0409a0c2 0x00000008 0x0 0x0 0x0 0x0)"),
    (37, "x"), (63, "x"), (13, "x"),
])  # fmt: skip
def test_the_cause_leads_and_not_its_consequence(
    cause: int, text: str, order: tuple[int, int]
) -> None:
    world = World(4, architecture=10).start()
    lines = ((cause, text), (45, f"pid=9, name=x, Ch 1, caused by previous Xid {cause}"))
    for turn in order:
        world.xid(lines[turn][0], 0, lines[turn][1])
        world.advance(1)
    world.advance(3)
    assert world.only().row.reason.startswith(f"Xid{cause}")


@pytest.mark.parametrize(("gpus", "hit", "apart_s"), [(8, 3, 1), (8, 4, 61), (2, 1, 1), (1, 1, 1)])
def test_fewer_or_later_ones_have_no_common_cause(gpus: int, hit: int, apart_s: int) -> None:
    world = World(gpus, architecture=10).start()
    for gpu in range(hit):
        world.xid(145, gpu)
        world.advance(apart_s)
    world.advance(5)
    assert {incident.scope for incident in world.active} == {"GPU"}
    assert len(world.active) == hit
    assert {incident.row.level for incident in world.active} == {Level.REPORT}


def test_lost_gpus_with_a_common_cause_are_one_fault_of_the_node(world: World) -> None:
    for gpu in range(5):
        world.xid(79, gpu)
    assert world.only().scope == "Node"
    assert world.outcome() == "Fatal Drain RestartNode"
    assert (world.assessment().gpus_healthy, world.assessment().gpus_expected) == (3, 8)
    world.xid(79, 6)
    assert world.assessment().gpus_healthy == 2
    assert len(world.only().gpus) == 6, "who follows within the minute joins"


def test_each_gpu_leaves_a_common_cause_when_it_is_sound_again(world: World) -> None:
    all_read(world, clock_event_reasons=0x40)
    world.advance(MINUTE, polling=True)
    assert world.only().row.reason == "ThermalSlowdown"
    assert world.only().scope == "Node"
    for gpu in range(4):
        world.will_read(gpu, clock_event_reasons=0)
    world.advance(MINUTE, polling=True)
    assert world.only().gpus == tuple(uuid(gpu) for gpu in range(4, 8))
    assert world.assessment().gpus[uuid(0)].health is Health.HEALTHY
    all_read(world, clock_event_reasons=0)
    world.advance(MINUTE, polling=True)
    assert not world.active


def test_a_reset_of_one_gpu_heals_one_gpu(world: World) -> None:
    for gpu in range(4):
        world.xid(95, gpu)
    assert world.only().scope == "Node"
    world.advance(MINUTE, polling=True)
    world.asked(1, gpu=2)
    world.advance(MINUTE, polling=True)
    world.asked(0, gpu=2)
    world.advance(MINUTE, polling=True)
    assert world.only().gpus == (uuid(0), uuid(1), uuid(3))
    assert world.outcome() == "Fatal Drain ResetGPU"


def test_a_fabric_that_failed_everywhere_is_one_incident(world: World) -> None:
    all_read(world, fabric_state=2)
    world.advance(2 * MINUTE, polling=True)
    assert world.only().scope == "Node"
    assert world.outcome() == "Degraded Cordon RestartFabricManager"


def test_a_limited_fabric_stays_a_finding_of_its_domain() -> None:
    world = World(4, architecture=10).start()
    all_read(world, fabric_health_summary=3)
    world.advance(2 * MINUTE, polling=True)
    assert {(i.row.level, i.scope) for i in world.active} == {("Report", "Domain")}


def test_a_job_that_fails_on_all_gpus_is_a_program_error(world: World) -> None:
    for gpu in range(8):
        world.xid(31, gpu)
    assert {i.scope for i in world.active} == {"GPU"}
    assert {str(i.row.severity) for i in world.active} == {"Info"}


def test_a_channel_to_be_repaired_needs_a_reboot(world: World) -> None:
    world.xid(160, 0, "Marking LTS 5 in FPB 1 along with its pair for repair. Perform node reboot "
                      "to activate repair.")  # fmt: skip
    world.advance(3)
    assert world.outcome() == "Degraded Cordon RestartNode"
    world.reboot().start()
    world.advance(MINUTE, polling=True)
    assert not world.active


def test_common_causes_stay_bounded() -> None:
    world = World(64).start()
    for round_ in range(3):
        for gpu in range(64):
            world.xid(46 + round_, gpu)
    assert len(world.state.incidents) <= 64
    assert all(len(i.gpus) <= 64 and len(i.members) <= 16 for i in world.state.incidents)


def test_a_quiet_node_costs_the_merge_nothing(world: World) -> None:
    state: NodeState = world.state
    poll = Readings(at=world.now, gpu=uuid(0), values=dict(SOUND), pci="")
    after, _ = judge(state, poll, world.now, DEFAULT_RULES)
    assert after.incidents is state.incidents
