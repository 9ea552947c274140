"""Event sets of the simulated driver, through real pynvml code."""

import pynvml
import pytest

from hack.sim.driver import NODES, install, push_event, set_gpu, set_node

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


def test_one_lost_gpu_fails_the_wait_for_all_until_the_set_is_built_without_it(handles, path):
    made = event_set(handles)
    set_gpu(path, 3, lost=True)
    push_event(path, "xid", 5, 31)
    assert [wait(made), wait(made)] == [pynvml.NVML_ERROR_GPU_IS_LOST] * 2
    pynvml.nvmlEventSetFree(made)
    rest = event_set(handles[:3] + handles[4:])
    push_event(path, "xid", 5, 43)
    assert wait(rest) == (5, XID, 43)


def test_types_a_gpu_does_not_support_fail_the_registration(handles):
    supported = pynvml.nvmlDeviceGetSupportedEventTypes(handles[0])
    event_set(handles, supported)
    with pytest.raises(pynvml.NVMLError_NotSupported):
        event_set(handles, pynvml.nvmlEventTypeAll)


def test_an_operational_event_needs_its_own_registration_and_the_third_wait(handles, path):
    """The structures are pynvml's; how the driver fills them is from NVIDIA's documentation."""
    set_node(path, driver={"version": "615.1", "cuda": "13.3", "nvml": "1"})
    made, deaf = event_set(handles), event_set(handles)
    config = pynvml.c_nvmlGpuOperationalEventConfig_v1_t(
        uuid=pynvml.nvmlDeviceGetUUID(handles[3]), minSeverity=30
    )
    pynvml.nvmlEventSetRegisterGpuOperationalEvents_v1(made, config)
    push_event(path, "operational", 3, 62, severity=20)
    push_event(path, "operational", 3, 79, module="GPU-BUS", code=3)
    push_event(path, "operational", 4, 79)
    record = pynvml.c_nvmlEventSetWait_v3_t()
    pynvml.nvmlEventSetWait_v3(made, record)
    assert record.dataType == pynvml.NVML_EVENT_DATA_TYPE_GPU_OPERATIONAL_EVENT
    assert (record.sourceModule, record.moduleEventCode, record.severity) == ("GPU-BUS", 3, 40)
    assert record.uuid == pynvml.nvmlDeviceGetUUID(handles[3])
    count = pynvml.c_nvmlEventSetGetContextCount_v1_t()
    pynvml.nvmlEventSetGetContextCount_v1(made, count)
    context = pynvml.c_nvmlEventSetGetGpuOperationalEventContextLegacyXid_v1_t(index=1)
    pynvml.nvmlEventSetGetGpuOperationalEventContextLegacyXid_v1(made, context)
    assert (count.count, context.xidCode) == (2, 79)
    assert wait(deaf) == pynvml.NVML_ERROR_TIMEOUT
    with pytest.raises(pynvml.NVMLError_Timeout):
        pynvml.nvmlEventSetWait_v3(made, record)
