"""A table of all NVML return codes that have a meaning: from pynvml to the health status.

The real pynvml runs over the simulated library. Codes of calls about a GPU are tested with the
polling code in this process, codes of the driver with a real child and its link.
"""

import queue
import time
from typing import Any

import pytest

from agent.nvml.inventory import Absent
from agent.nvml.link import NvmlLink
from agent.nvml.messages import NvmlStatus
from agent.nvml.poller import Tier
from hack.sim.driver import set_gpu, set_node
from hack.sim.driver.library import CALLS
from rules.catalog.signals import Signal
from rules.judge.observation import Inventory, Readings, TopologySeen
from tests.support.agent.nvml_collector import Collector, Judged, polled
from tests.support.run.warm_start import WarmProcess

TIMEOUT_S = 30.0
FIELDS = "nvmlDeviceGetFieldValues"
HANDLE = "nvmlDeviceGetHandleByIndex_v2"
COUNT = "nvmlDeviceGetCount_v2"


MARGIN = "nvmlDeviceGetMarginTemperature"
PER_GPU: list[tuple[int, dict[str, Any], Any, set[str]]] = [
    # code, what fails with it on GPU 3, what the reading becomes, what is found
    (2, {"errors": {MARGIN: 2}}, Absent(2), set()),
    (3, {"errors": {MARGIN: 3}}, Absent(3), set()),
    (4, {"errors": {MARGIN: 4}}, Absent(4), set()),
    (6, {"errors": {MARGIN: 6}}, Absent(6), set()),
    (10, {"errors": {MARGIN: 10}}, Absent(10), set()),
    (11, {"errors": {MARGIN: 11}}, Absent(11), {"GPUIRQIssue Degraded Report Investigate"}),
    (13, {"errors": {MARGIN: 13}}, Absent(13), set()),
    (14, {"errors": {MARGIN: 14}}, Absent(14), {"InfoRomCorrupt Degraded Report UpdateFirmware"}),
    (14, {"inforom": {"valid": False}}, 51, {"InfoRomCorrupt Degraded Report UpdateFirmware"}),
    (15, {"lost": True}, None, {"GPULost Fatal Drain RestartNode"}),
    (15, {"unplugged": True}, None, {"GPULost Fatal Drain RestartNode"}),
    (15, {"errors": {FIELDS: 15}}, None, {"GPUCountMismatch Degraded Report Investigate"}),
    (16, {"reset_required": True}, None, {"GPUResetRequired Fatal Drain ResetGPU"}),
    (17, {"errors": {MARGIN: 17}}, Absent(17), set()),
    (25, {"errors": {MARGIN: 25}}, Absent(25), set()),
    (27, {"errors": {MARGIN: 27}}, Absent(27), set()),
    (28, {"errors": {MARGIN: 28}}, Absent(28), set()),
    (999, {"errors": {MARGIN: 999}}, Absent(999), set()),
]


@pytest.mark.parametrize(
    ("code", "edit", "reading", "found"),
    PER_GPU,
    ids=[f"{code}-{next(iter(edit))}" for code, edit, _, _ in PER_GPU],
)
def test_a_code_about_one_gpu(collector, code, edit, reading, found):
    judged = Judged(collector.path)
    set_gpu(collector.path, 3, **edit)
    values = polled(collector, judged)
    assert values.get(Signal.THERMAL_MARGIN) == reading
    assert judged.findings() == found
    worst = {"Fatal": "Unhealthy", "Degraded": "Degraded"}
    severity = next(iter(found)).split()[1] if found else ""
    assert judged.health()[0] == worst.get(severity, "Healthy")


@pytest.mark.parametrize("code", [6, 10, 27, 28])
def test_a_temporary_failure_is_retried_at_the_next_poll(collector, code):
    set_gpu(collector.path, 3, errors={MARGIN: code})
    collector.poll(3, Tier.FAST)
    set_gpu(collector.path, 3, errors={})
    assert collector.poll(3, Tier.FAST, now=15.0)[Signal.THERMAL_MARGIN] == 51


@pytest.mark.parametrize("code", [2, 3, 4, 13, 25])
def test_an_unsupported_field_is_read_again_after_an_hour(collector, code):
    set_gpu(collector.path, 3, errors={MARGIN: code})
    collector.poll(3, Tier.FAST)
    set_gpu(collector.path, 3, errors={})
    assert collector.poll(3, Tier.FAST, now=15.0)[Signal.THERMAL_MARGIN] == Absent(code)
    assert collector.poll(3, Tier.FAST, now=3601.0)[Signal.THERMAL_MARGIN] == 51


def test_a_driver_that_counts_no_gpu_counts_zero(collector):
    set_node(collector.path, errors={COUNT: 28})
    again = Collector(collector.path)
    assert again.gpus == []


@pytest.fixture
def link(path):
    """A link that is not started yet, and its queue."""
    event_queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
    link = NvmlLink(f"sim:{path}", event_queue.put, poll_s=1.0, start_process=WarmProcess)
    yield link, event_queue
    link.close(10.0)


def hear(event_queue, judged, wanted):
    """Observe messages until the wanted one, and return it."""
    end = time.monotonic() + TIMEOUT_S
    while time.monotonic() < end:
        message = event_queue.get(timeout=TIMEOUT_S)
        judged.take(message)
        if wanted(message):
            return message
    raise AssertionError("what was waited for did not come")


def is_down(message):
    return isinstance(message, NvmlStatus) and message.state.value == "Down"


AT_INIT = [
    (4, "NoAccess"),
    (9, "DriverAbsent"),
    (12, "DriverAbsent"),
    (17, "NoAccess"),
    (18, "DriverMismatch"),
    (999, "DriverAbsent"),
]


@pytest.mark.parametrize(("code", "reason"), AT_INIT)
def test_a_code_at_initialisation_means_no_data_and_no_fault(link, path, code, reason):
    link, event_queue = link
    judged = Judged(path)
    set_node(path, init_error=code)
    link.start()
    status = hear(event_queue, judged, is_down)
    assert status.reason.value == reason
    assert not status.restart_agent, "it began so: another container would begin the same way"
    assert judged.health() == ("Unknown", reason)
    assert judged.findings() == set()


@pytest.mark.parametrize(
    ("code", "reason"), [(4, "NoAccess"), (17, "NoAccess"), (999, "DriverAbsent")]
)
def test_the_same_code_for_every_gpu_is_a_driver_failure(link, path, code, reason):
    link, event_queue = link
    judged = Judged(path)
    set_node(path, errors={HANDLE: code})
    link.start()
    hear(event_queue, judged, is_down)
    assert judged.health() == ("Unknown", reason)
    assert judged.findings() == set()


@pytest.mark.parametrize("known", [True, False], ids=["known before", "never seen"])
def test_an_unknown_error_for_one_gpu_leaves_the_others_their_health(link, path, known):
    link, event_queue = link
    judged = Judged(path)
    fails = {HANDLE: 999, **dict.fromkeys(EVERYTHING - {"nvmlInitWithFlags"}, 999)}
    if known:
        link.start()
        hear(event_queue, judged, lambda message: isinstance(message, TopologySeen))
        set_gpu(path, 3, errors=fails)
        link.request_refresh()
    else:
        set_gpu(path, 3, errors=fails)
        link.start()
    for _ in range(3):
        fact = hear(event_queue, judged, is_missing)
        judged.now += 15
        judged.poll()
    assert bool(fact.gpu) is known
    assert judged.findings() == {"GPUCountMismatch Degraded Report Investigate"}
    assert judged.health()[0] == "Degraded"


def is_missing(message):
    return isinstance(message, Readings) and message.values.get(Signal.PRESENCE) == "missing"


def test_code_28_at_initialisation_is_a_count_of_zero(link, path):
    link, event_queue = link
    set_node(path, init_error=28, gpus=[])
    judged = Judged(path)
    link.start()
    hello = hear(event_queue, judged, lambda message: isinstance(message, Inventory))
    assert hello.gpus == ()
    hear(event_queue, judged, lambda message: isinstance(message, NvmlStatus))
    assert judged.health() == ("Unknown", "NoGPU")
    set_node(path, init_error=0)
    link.request_refresh()
    found = hear(
        event_queue, judged, lambda message: isinstance(message, Inventory) and message.driver
    )
    assert found.driver == "580.95.05"


EVERYTHING = {
    name for name in CALLS if name.startswith("nvmlDevice") and name not in (HANDLE, COUNT)
} | {"nvmlInitWithFlags"}


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        ({"driver_restart": 1, "init_error": 18}, "DriverMismatch"),
        ({"errors": {FIELDS: 18}, "init_error": 18}, "DriverMismatch"),
        ({"errors": dict.fromkeys(EVERYTHING, 999)}, "DriverAbsent"),
    ],
    ids=["18 after a driver upgrade", "18 from a call", "999 from everything"],
)
def test_after_initialisation_18_and_999_ask_for_a_new_container(link, path, edit, reason):
    link, event_queue = link
    judged = Judged(path)
    link.start()
    hear(event_queue, judged, lambda message: isinstance(message, Inventory))
    set_node(path, **edit)
    link.request_refresh()
    status = hear(event_queue, judged, is_down)
    assert (status.reason.value, status.restart_agent) == (reason, True)
    assert judged.health() == ("Unknown", reason)
    assert judged.findings() == set()
