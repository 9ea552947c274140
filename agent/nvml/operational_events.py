"""GPU Operational Events: register for them, wait, and decode one. Used by the child.

They are a preview in drivers R615 and R620, the structured successor of Xid lines. An event may
name the Xid that the driver prints for the same occurrence. Sources: NVML reference (event set
v3), GPU Operational Events R620, UEFI specification (flags of an event group). No hardware with
such a driver was available: only the simulated driver has been read.
"""

import time
from typing import Any

import pynvml as nvml

from agent.nvml.inventory import Caller, Failed, Gpu
from agent.nvml.messages import Note
from rules.catalog.signals import EventKind
from rules.judge.observation import GpuEvent
from rules.text.printable import printable

FIRST_BRANCH = 615
REGISTER = "nvmlEventSetRegisterGpuOperationalEvents_v1"
_CONTEXTS = 16
"""The most context records of one event that are read."""
_IGNORED_GROUPS = {1 << 1: "a previous session", 1 << 2: "a test"}
"""Group attributes PREVERR and SIMULATED, and where such an event comes from."""
_SEVERITIES = {10: "informational", 20: "corrected", 30: "recoverable", 40: "fatal"}
_RECOVERABLE = 30
NOT_HERE = (
    nvml.NVML_ERROR_INVALID_ARGUMENT,
    nvml.NVML_ERROR_NOT_SUPPORTED,
    nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
)
"""Codes of the wait that mean: this driver has no such events."""


def exist(branch: int) -> bool:
    """Whether the driver branch and the binding have GPU Operational Events."""
    return branch >= FIRST_BRANCH and hasattr(nvml, REGISTER)


def register(call: Caller, event_set: Any, gpu: Gpu) -> bool:
    """Register one GPU for notices, warnings and errors; return whether the driver accepts."""
    config = nvml.c_nvmlGpuOperationalEventConfig_v1_t(
        uuid=gpu.device.uuid,
        minLogLevel=nvml.NVML_GPU_OPERATIONAL_EVENT_LOG_LEVEL_NOTICE,
        minSeverity=nvml.NVML_OPERATIONAL_EVENT_SEVERITY_ALL,
    )
    function = nvml.nvmlEventSetRegisterGpuOperationalEvents_v1
    return not isinstance(call(REGISTER, function, event_set, config, gpu=gpu.key), Failed)


def wait(event_set: Any, timeout_ms: int) -> Any:
    """Return the next record of the set. Raises NVMLError, with TIMEOUT if there is none."""
    record = nvml.c_nvmlEventSetWait_v3_t(timeoutMs=timeout_ms)
    nvml.nvmlEventSetWait_v3(event_set, record)
    return record


def gpu_of(record: Any) -> str:
    """Return the UUID of the GPU that a record names; empty without one."""
    return _ascii(nvml.c_nvmlEventSetWait_v3_t.uuid.__get__(record))


def is_operational(record: Any) -> bool:
    """Whether a record is a GPU Operational Event, and not an event of the older kind."""
    return bool(record.dataType == nvml.NVML_EVENT_DATA_TYPE_GPU_OPERATIONAL_EVENT)


def decode(call: Caller, event_set: Any, record: Any, gpu: Gpu | None) -> GpuEvent | None:
    """Return the most recent record of the set as an event; None if it is of no use.

    Events of a previous session or of a test are ignored and logged. Without an Xid only
    recoverable and fatal ones are of use.
    """
    detail = _text(record)
    for attribute, origin in _IGNORED_GROUPS.items():
        if record.groupAttributes & attribute:
            call.send(Note(f"Ignored a GPU Operational Event of {origin}: {detail}."))
            return None
    xid = _legacy_xid(call, event_set)
    if not xid and record.severity < _RECOVERABLE:
        return None
    return GpuEvent(
        at=time.time(),
        kind=EventKind.OPERATIONAL,
        data=xid,
        gpu=gpu.device.uuid if gpu else gpu_of(record),
        pci=gpu.device.pci if gpu else "",
        detail=detail,
    )


def _text(record: Any) -> str:
    """Return module, code, category and severity of a record in one line."""
    module = _ascii(nvml.c_nvmlEventSetWait_v3_t.sourceModule.__get__(record))
    severity = _SEVERITIES.get(record.severity, record.severity)
    return f"{module} {record.moduleEventCode:#06x}, category {record.categoryId}, {severity}"


def _ascii(raw: bytes) -> str:
    """Return bytes of the driver in one line; pynvml's attributes raise if they are not UTF-8."""
    return printable(raw.decode("ascii", "replace"))


def _legacy_xid(call: Caller, event_set: Any) -> int:
    """Return the Xid that a context record of the most recent event names; 0 without one."""
    count = nvml.c_nvmlEventSetGetContextCount_v1_t()
    name = "nvmlEventSetGetContextCount_v1"
    if isinstance(call(name, nvml.nvmlEventSetGetContextCount_v1, event_set, count), Failed):
        return 0
    for index in range(min(count.count, _CONTEXTS)):
        info = nvml.c_nvmlEventSetGetContextInfo_v1_t(index=index)
        name = "nvmlEventSetGetContextInfo_v1"
        if isinstance(call(name, nvml.nvmlEventSetGetContextInfo_v1, event_set, info), Failed):
            continue
        kind = info.nvmlGpuOperationalEventContextType
        if kind != nvml.NVML_GPU_OPERATIONAL_EVENT_CONTEXT_TYPE_LEGACY_XID:
            continue
        found = nvml.c_nvmlEventSetGetGpuOperationalEventContextLegacyXid_v1_t(index=index)
        name = "nvmlEventSetGetGpuOperationalEventContextLegacyXid_v1"
        read = nvml.nvmlEventSetGetGpuOperationalEventContextLegacyXid_v1
        if not isinstance(call(name, read, event_set, found), Failed):
            return int(found.xidCode)
    return 0
