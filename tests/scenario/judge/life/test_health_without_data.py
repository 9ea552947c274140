"""Health is Unknown without data, and messages name the checks with and without data."""

import pytest

from rules.catalog.signals import Signal
from rules.judge.health_status import Health
from rules.judge.observation import SourceName, SourceState
from tests.support.scenario.judgement_world import World, uuid

LOAD = (
    "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.82.07  Release Build  (x@y)  Wed"
)


@pytest.fixture
def log_only() -> World:
    """A node with kernel log, PCI bus and host as data sources, without NVML."""
    return World(nvml=False).start()


def test_with_the_kernel_log_alone_a_quiet_node_is_unknown(
    log_only: World,
) -> None:
    judged = log_only.assessment()
    assert (judged.health, judged.reason) == (Health.UNKNOWN, "OnlyKernelLog")
    assert judged.message.startswith("The agent reads only the kernel log, which shows no fault")
    published = log_only.published()
    assert published.conditions[0].status == "Unknown"
    assert published.status.gpus_healthy == ""


@pytest.mark.parametrize("number", [79, 95, 48, 119])
def test_an_unconfirmed_fatal_line_from_before_the_start_is_reported(
    number: int,
) -> None:
    world = World(nvml=False)
    world.node()
    world.xid(number, 3, lookback=True)
    world.start()
    world.advance(3600, polling=True)
    judged = world.assessment()
    assert judged.health is Health.UNKNOWN
    assert f"The kernel log shows Xid {number} (" in judged.message
    assert "No data source can confirm that it persists." in judged.message
    assert world.only().row.level == "Report", "a fault that may be over drains no node"


def test_a_restarted_agent_repeats_the_message(log_only: World) -> None:
    log_only.xid(95, 3, lookback=True)
    before = log_only.assessment().message
    for _ in range(3):
        log_only.restart_agent().start()
        log_only.advance(60)
    assert log_only.assessment().message == before


def test_a_reset_or_reboot_after_such_a_line_ends_it(log_only: World) -> None:
    log_only.xid(95, 3, lookback=True)
    log_only.advance(60)
    log_only.kernel(LOAD)
    log_only.poll_pci()
    log_only.advance(60, polling=True)
    assert not log_only.active
    log_only.xid(95, 3, lookback=True)
    log_only.reboot().start()
    assert not log_only.active
    assert log_only.assessment().reason == "OnlyKernelLog"


def test_a_current_line_is_assessed_without_other_data(log_only: World) -> None:
    log_only.xid(160, 2)
    log_only.advance(10)
    assert log_only.assessment().health is Health.DEGRADED
    log_only.xid(95, 3)
    log_only.advance(10)
    assert log_only.assessment().health is Health.UNHEALTHY


def test_a_host_without_any_gpu_is_not_healthy() -> None:
    for nvml in (True, False):
        world = World(0, nvml=nvml, switched=False).start()
        judged = world.assessment()
        assert (judged.health, judged.reason) == (Health.UNKNOWN, "NoGPU")


def test_a_healthy_message_names_its_checks(world: World) -> None:
    world.source(SourceName.KERNEL_LOG, SourceState.DOWN, "ReadFailed")
    for gpu in range(8):
        world.readings(gpu, recovery_action=None)  # type: ignore[arg-type]
    assert world.assessment().message == (
        "Checks with data pass on 8 GPUs (presence, memory, heat);"
        " no data: kernel log, recovery action."
    )


def test_a_message_names_the_checks_that_a_page_lacks() -> None:
    world = World(1, nvml=False).start()
    world.dcgm({uuid(0): {Signal.REMAP_FAILURE: 0, Signal.TEMPERATURE: 40}})
    judged = world.assessment()
    assert judged.health is Health.HEALTHY
    assert judged.message == (
        "Checks with data pass on 1 GPU (kernel log, memory, heat); no data: recovery action."
    )


def test_a_restarted_agent_keeps_the_health_status_until_its_poll() -> None:
    world = World().start()
    world.restart_agent()
    judged = world.assessment()
    assert judged.health is Health.HEALTHY
    assert judged.message == (
        "All checks passed on 8 GPUs before the agent restarted. The next poll is pending."
    )
    world.start()
    assert judged.health is Health.HEALTHY
    assert "recovery action" in world.assessment().message
