"""Lost and missing GPUs, stand-downs, absent drivers."""

import msgspec
import pytest

from rules.api.health import PublisherPod
from rules.api.metadata import ObjectMeta, TimedMeta
from rules.api.nodes import AgentPod, HealthView, NodeView
from rules.catalog.signals import Signal
from rules.judge.health_status import Health
from rules.judge.observation import (
    CallFailed,
    EventKind,
    PciFunction,
    PciSeen,
    Readings,
    SourceName,
    SourceState,
)
from rules.session.observation import staleness
from tests.support.scenario.judgement_world import SOUND, World


def test_a_lost_gpu_takes_two_polls_of_three_and_the_pci_bus(world: World) -> None:
    world.pull(3)
    world.advance(15, polling=True)
    assert not world.active
    world.advance(15, polling=True)
    assert world.outcome() == "Fatal Drain RestartNode"
    assert world.only().gpus == (world.inventory[3].uuid,)
    assert world.assessment().reason == "GPULost"
    assert world.published().status.gpus_healthy == "7/8"


def test_lost_for_nvml_but_alive_on_the_bus_is_not_fatal(world: World) -> None:
    world.pull(3)
    world.config_space[3] = True
    world.advance(120, polling=True)
    assert world.outcome().startswith("Degraded Report")
    world.values[3] = dict(world.values[0])
    world.advance(120, polling=True)
    assert not world.active


def test_a_poll_without_presence_proves_no_presence(world: World) -> None:
    world.pull(3)
    world.advance(15, polling=True)
    for values in ({}, {Signal.REMAP_FAILURE: None}):
        world.see(Readings(at=world.now, gpu=world.inventory[3].uuid, values=values))
    world.advance(15, polling=True)
    assert world.assessment().reason == "GPULost"


def test_the_bus_alone_proves_nothing_while_the_gpu_answers(world: World) -> None:
    world.config_space[3] = False
    world.advance(600, polling=True)
    assert not world.active


def test_the_bus_confirms_a_loss_that_nvml_reported_first(world: World) -> None:
    world.pull(3)
    world.config_space[3] = True
    world.advance(60, polling=True)
    assert world.assessment().reason == "GPUCountMismatch"
    world.config_space[3] = False
    world.advance(15, polling=True)
    assert world.only().row.reason == "GPULost"


def test_one_failed_poll_is_transient(world: World) -> None:
    good = dict(world.values[3])
    world.pull(3)
    world.advance(15, polling=True)
    world.values[3], world.config_space[3] = good, True
    world.advance(300, polling=True)
    assert not world.incidents


def test_a_lost_gpu_with_a_known_79_stays_one_incident(world: World) -> None:
    world.xid(79, gpu=3)
    world.pull(3)
    world.advance(120, polling=True)
    assert world.only().xids == (79,)
    assert world.outcome() == "Fatal Drain RestartNode"


def test_no_gpu_is_lost_during_a_stand_down(world: World) -> None:
    world.labels["nvidia.com/gpu.deploy.driver"] = "paused-for-driver-upgrade"
    world.node()
    for gpu in range(8):
        world.pull(gpu)
    world.event(EventKind.GPU_UNAVAILABLE, 0, gpu=2)
    world.advance(600, polling=True)
    assert not world.active


@pytest.mark.parametrize("back", [True, False], ids=["it is back", "it is gone"])
def test_a_gpu_that_leaves_the_bus_in_a_stand_down_is_assessed_after_it(
    world: World, *, back: bool
) -> None:
    world.release_gpus()
    world.xid(79, 2)
    world.pull(2)
    world.poll_pci()
    world.advance(600)
    assert world.only().row.severity == "Info"
    if back:
        world.config_space[2], world.values[2] = True, dict(SOUND)
    del world.annotations["gpuward.io/release-gpu"]
    world.start()
    world.advance(60, polling=True)
    assert world.assessment().health is (Health.HEALTHY if back else Health.UNHEALTHY)


@pytest.mark.parametrize("order", [(45, 79), (79, 45)], ids=["45 first", "79 first"])
@pytest.mark.parametrize("cause", ["", ", caused by previous Xid 79"], ids=["apart", "named"])
def test_a_79_in_a_stand_down_waits_whatever_other_xids_come_with_it(
    world: World, order: tuple[int, int], cause: str
) -> None:
    world.release_gpus()
    for number in order:
        world.xid(number, 2, f"pid=77, name=python, Ch 00000001{cause if number == 45 else ''}")
        world.advance(1)
    world.advance(10)
    assert {i.row.severity for i in world.active} == {"Info"}
    assert {number for i in world.active for number in i.xids} >= {79}
    world.pull(2)
    del world.annotations["gpuward.io/release-gpu"]
    world.start()
    world.advance(60, polling=True)
    assert world.assessment().health is Health.UNHEALTHY


def test_a_79_from_before_the_stand_down_stays_one_incident(world: World) -> None:
    world.xid(79, 2)
    world.annotate("release-gpu", "swapping a card")
    world.advance(60)
    world.xid(79, 2)
    assert world.only().count == 2
    assert world.outcome() == "Fatal Drain RestartNode"


def test_the_driver_may_report_a_lost_gpu_in_a_stand_down(world: World) -> None:
    world.annotate("release-gpu", "swapping a card")
    world.xid(79, 2)
    world.action_line(2, gpu=2)
    assert world.outcome() == "Fatal Drain RestartNode"


@pytest.mark.parametrize("back", [True, False], ids=["nvml comes back", "nvml stays away"])
def test_after_a_stand_down_nvml_has_a_grace_period(world: World, *, back: bool) -> None:
    world.release_gpus()
    world.xid(79, 2)
    world.advance(600)
    world.take_back()
    world.advance(20)
    assert world.assessment().health is Health.HEALTHY
    if back:
        world.start()
    world.advance(30, polling=back)
    assert world.assessment().health is (Health.HEALTHY if back else Health.DEGRADED)
    assert bool(world.active) is not back


def test_eight_silent_gpus_are_not_eight_lost_gpus(world: World) -> None:
    for gpu in range(8):
        world.pull(gpu)
    world.source(SourceName.NVML, SourceState.DOWN, "DriverAbsent")
    world.advance(600, polling=True)
    assert not world.active
    judged = world.assessment()
    assert (judged.health, judged.reason) == (Health.UNKNOWN, "DriverAbsent")
    assert judged.gpus_healthy is None


def test_all_gpus_lost_at_once_without_an_answer_open_no_incident(world: World) -> None:
    for gpu in range(8):
        world.pull(gpu)
    world.advance(300, polling=True)
    assert not [i for i in world.active if i.row.severity == "Fatal"]
    assert world.assessment().reason == "NoGPUAnswers"


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (9, "DriverAbsent"),
        (12, "DriverAbsent"),
        (18, "DriverMismatch"),
        (999, "DriverAbsent"),
        (4, "NoAccess"),
        (17, "NoAccess"),
    ],
)
def test_a_failed_initialisation_is_unknown(world: World, code: int, reason: str) -> None:
    world.failed_call(code, call="nvmlInit_v2")
    assert (world.assessment().health, world.assessment().reason) == (Health.UNKNOWN, reason)
    assert not world.active


@pytest.mark.parametrize("code", [3, 13, 6, 10, 27])
def test_codes_about_one_field_or_one_try_are_ignored(world: World, code: int) -> None:
    for _ in range(10):
        world.failed_call(code, gpu=1)
        world.advance(15)
    assert not world.incidents
    assert world.assessment().health is Health.HEALTHY


def test_code_16_asks_for_a_reset_after_one_re_read(world: World) -> None:
    world.failed_call(16, gpu=1)
    assert not world.active
    world.advance(15)
    world.failed_call(16, gpu=1)
    assert world.outcome() == "Fatal Drain ResetGPU"


def test_a_gpu_that_no_longer_requires_a_reset_had_one(world: World) -> None:
    world.xid(95, 2)
    world.will_read(1, presence="reset_required")
    world.advance(60, polling=True)
    assert {i.pci for i in world.active} == {("0000:11:00",), ("0000:12:00",)}
    world.will_read(1, presence="present")
    world.advance(60, polling=True)
    assert {i.pci for i in world.active} == {("0000:12:00",)}


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (11, "GPUIRQIssue Degraded Report Investigate"),
        (14, "InfoRomCorrupt Degraded Report UpdateFirmware"),
    ],
)
def test_a_gpu_that_answers_with_an_error_is_degraded(
    world: World, code: int, expected: str
) -> None:
    for _ in range(3):
        world.failed_call(code, gpu=1)
        world.advance(15, polling=True)
    assert f"{world.only().row.reason} {world.outcome()}" == expected
    assert world.only().count == 1


def test_a_young_node_waits_for_its_driver() -> None:
    world = World(boot_grace_over=False)
    world.node()
    world.host()
    world.source(SourceName.NVML, SourceState.DOWN, "DriverAbsent")
    assert world.assessment().reason == "WaitingForDriver"
    world.advance(901)
    assert world.assessment().reason == "DriverAbsent"


def gpuless(**annotations: str) -> World:
    """A machine with a PCI bus, without a GPU and without the NVML library."""
    world = World(0)
    world.annotations.update(annotations)
    world.node()
    world.host()
    world.source(SourceName.KERNEL_LOG, SourceState.UP)
    world.source(SourceName.DCGM, SourceState.ABSENT, "Off")
    world.source(SourceName.NVML, SourceState.DOWN, "DriverAbsent")
    return world


def nvml_of(world: World) -> tuple[str, str]:
    view = world.state.sources[SourceName.NVML]
    return view.state, view.reason


def test_without_driver_and_gpu_the_kernel_log_decides() -> None:
    world = gpuless()
    assert world.assessment().reason == "DriverAbsent", "the bus was not checked yet"
    world.poll_pci()
    assert nvml_of(world) == ("Absent", "DriverAbsent")
    assert world.assessment().reason == "NoGPU"
    world.xid(79)
    assert world.assessment().health is Health.UNHEALTHY


def test_the_published_health_status_of_the_kernel_log_alone_is_fresh() -> None:
    world = gpuless()
    world.poll_pci()
    world.xid(79)
    published = msgspec.structs.replace(
        world.published().status, publisher=PublisherPod(pod="ns/agent", pod_uid="u")
    )
    health = HealthView(metadata=TimedMeta(name="n1"), status=published)
    node = NodeView(metadata=ObjectMeta(name="n1", uid=published.node_uid))
    assert (
        staleness(
            health,
            node,
            {"u": AgentPod(uid="u", node="n1", ready=True, ready_changed_at=0.0)},
            world.now,
        )
        == ""
    )


def at(bus: int, device_class: int = 0x0302) -> PciFunction:
    return PciFunction(address=f"0000:{bus}:00.0", vendor=0x10DE, device_class=device_class)


@pytest.mark.parametrize("scanned", [False, True], ids=["at once", "after a scan of an empty bus"])
@pytest.mark.parametrize(
    ("annotations", "functions"),
    [
        pytest.param({}, (at(10),), id="a GPU on the bus"),
        pytest.param({}, (at(11, 0x0680),), id="a switch on the bus"),
        pytest.param({"gpuward.io/expected-gpus": "8"}, (), id="GPUs that should be here"),
    ],
)
def test_an_absent_driver_with_gpus_leaves_them_unknown(
    annotations: dict[str, str], functions: tuple[PciFunction, ...], scanned: bool
) -> None:
    world = gpuless(**annotations)
    if scanned:
        world.poll_pci()
    world.see(PciSeen(at=world.now, functions=functions))
    assert nvml_of(world) == ("Down", "DriverAbsent")
    assert world.assessment().health is Health.UNKNOWN


def test_gpus_without_a_driver_are_reported_as_driver_absent(world: World) -> None:
    world.see(PciSeen(at=world.now, functions=(at(10),)))
    world.source(SourceName.NVML, SourceState.DOWN, "NVMLFailed")
    assert world.assessment().reason == "DriverAbsent"


def test_a_hung_call_is_unknown_and_the_kernel_log_goes_on(world: World) -> None:
    world.source(SourceName.NVML, SourceState.DOWN, "CallHung")
    assert (world.assessment().health, world.assessment().reason) == (Health.UNKNOWN, "CallHung")
    assert not world.active
    world.xid(79)
    assert world.assessment().health is Health.UNHEALTHY


def test_an_error_without_a_name_is_not_one_of_the_driver(world: World) -> None:
    for code in (9, 18, 999):
        world.see(CallFailed(at=world.now, call="nvmlDeviceGetHandleByIndex_v2", code=code))
    assert world.assessment().health is Health.HEALTHY


@pytest.mark.parametrize("agrees", ["", "the bus", "the kernel"])
def test_a_gpu_that_cannot_be_opened_is_missing_and_lost_only_where_another_agrees(
    world: World, agrees: str
) -> None:
    world.values[3] = {Signal.PRESENCE: "missing"}
    if agrees == "the bus":
        world.config_space[3] = False
    world.advance(1200, polling=True)
    if agrees == "the kernel":
        world.kernel("NVRM: GPU at PCI:0000:13:00: GPU has fallen off the bus.")
        world.advance(60, polling=True)
    reason = "GPULost" if agrees else "GPUCountMismatch"
    assert world.assessment().reason == reason
    assert world.only().gpus == (world.inventory[3].uuid,)
    assert world.outcome() == (
        "Fatal Drain RestartNode" if agrees else "Degraded Report Investigate"
    )
    world.values[3], world.config_space[3] = dict(SOUND), True
    world.advance(60, polling=True)
    assert bool(world.active) is bool(agrees)
