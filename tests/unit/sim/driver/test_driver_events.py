"""Event sets of the simulated driver, through real pynvml code."""

from __future__ import annotations

import pynvml
import pytest

from hack.sim.driver import NODES, install, push_event, set_gpu

XID = pynvml.nvmlEventTypeXidCriticalError


@pytest.fixture
def path(tmp_path):
    copy = tmp_path / "node.yaml"
    copy.write_bytes((NODES / "h100-8-nvswitch.yaml").read_bytes())
    return copy


@pytest.fixture
def handles(path):
    with install(path):
        pynvml.nvmlInit()
        yield [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(8)]


def event_set(handles, types=XID):
    made = pynvml.nvmlEventSetCreate()
    for handle in handles:
        pynvml.nvmlDeviceRegisterEvents(handle, types, made)
    return made


def wait(made, timeout_ms=0):
    """The event as (GPU index, type, data), or the return code."""
    try:
        event = pynvml.nvmlEventSetWait_v2(made, timeout_ms)
    except pynvml.NVMLError as error:
        return error.value
    return pynvml.nvmlDeviceGetMinorNumber(event.device), event.eventType, event.eventData


def test_an_event_is_delivered_once_to_each_set_that_wants_it(handles, path):
    first, second, deaf = event_set(handles), event_set(handles), event_set(handles[:3])
    push_event(path, "xid", 3, 79)
    assert wait(first) == (3, XID, 79)
    assert wait(first) == pynvml.NVML_ERROR_TIMEOUT
    assert wait(second) == (3, XID, 79)
    assert wait(deaf) == pynvml.NVML_ERROR_TIMEOUT


def test_events_come_in_order_and_only_of_the_wanted_type(handles, path):
    made = event_set(handles)
    for kind, gpu, data in (("xid", 1, 63), ("recovery_action", 1, 1), ("xid", 1, 94)):
        push_event(path, kind, gpu, data)
    assert [wait(made), wait(made)] == [(1, XID, 63), (1, XID, 94)]


def test_what_happened_before_the_set_existed_is_not_delivered(handles, path):
    push_event(path, "xid", 3, 79)
    assert wait(event_set(handles)) == pynvml.NVML_ERROR_TIMEOUT


def test_one_lost_gpu_fails_the_wait_for_all_until_the_set_is_built_without_it(handles, path):
    made = event_set(handles)
    set_gpu(path, 3, lost=True)
    push_event(path, "xid", 5, 31)
    assert [wait(made), wait(made)] == [pynvml.NVML_ERROR_GPU_IS_LOST] * 2
    pynvml.nvmlEventSetFree(made)
    rest = event_set(handles[:3] + handles[4:])
    push_event(path, "xid", 5, 43)
    assert wait(rest) == (5, XID, 43)


def test_a_lost_gpu_cannot_be_registered(handles, path):
    set_gpu(path, 3, lost=True)
    with pytest.raises(pynvml.NVMLError_GpuIsLost):
        event_set(handles)


def test_types_a_gpu_does_not_support_fail_the_registration(handles):
    supported = pynvml.nvmlDeviceGetSupportedEventTypes(handles[0])
    event_set(handles, supported)
    with pytest.raises(pynvml.NVMLError_NotSupported):
        event_set(handles, pynvml.nvmlEventTypeAll)


def test_an_old_driver_offers_fewer_types():
    with install(NODES / "t4-1.yaml"):
        pynvml.nvmlInit()
        types = pynvml.nvmlDeviceGetSupportedEventTypes(pynvml.nvmlDeviceGetHandleByIndex(0))
    assert types & XID
    assert not types & (
        pynvml.nvmlEventTypeGpuRecoveryAction | pynvml.nvmlEventTypeFatalPoisonError
    )


def test_a_freed_set_is_no_set(handles):
    made = event_set(handles)
    pynvml.nvmlEventSetFree(made)
    assert wait(made) == pynvml.NVML_ERROR_INVALID_ARGUMENT


def test_system_events(handles, path):
    made = pynvml.nvmlSystemEventSetCreate(pynvml.nvmlSystemEventSetCreateRequest_v1)
    types = pynvml.nvmlSystemEventTypeGpuDriverBind | pynvml.nvmlSystemEventTypeGpuDriverUnbind
    pynvml.nvmlSystemRegisterEvents(pynvml.nvmlSystemRegisterEventRequest_v1, types, made)
    buffer = (pynvml.c_nvmlSystemEventData_v1_t * 4)()

    def take():
        version = pynvml.nvmlSystemEventSetWaitRequest_v1
        return pynvml.nvmlSystemEventSetWait(version, made, 0, buffer, 4)

    assert take() == []
    push_event(path, "driver_unbind", data=0x6100)
    push_event(path, "driver_bind", data=0x6100)
    assert [event["eventType"] for event in take()] == [1, 2]
    assert take() == []
    pynvml.nvmlSystemEventSetFree(pynvml.nvmlSystemEventSetFreeRequest_v1, made)
