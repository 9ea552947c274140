"""NVML's event sets, and GPU Operational Events in their third version.

An event in the file is delivered once to each set that waits for its type and GPU and existed
before the event was written. As in the real library, one lost GPU makes every wait on its set
fail. An operational event has two context records, the second of which names the Xid. The
structures are NVIDIA's, what the driver does with them is from its documentation. Registered in
`library`; `pynvml` calls them through the simulated library.
"""

import time
from typing import Any

import pynvml

from hack.sim.driver.library import (
    GPU_IS_LOST,
    INVALID_ARGUMENT,
    NOT_SUPPORTED,
    SUCCESS,
    TIMEOUT,
    UNINITIALIZED,
    Handle,
    SimulatedLibrary,
    as_bytes,
    device_call,
    fill_pointer,
    number_of,
    pointer_value,
    put,
    referenced,
    system_call,
)
from hack.sim.driver.node import Gpu, Node, PushedEvent
from hack.sim.driver.numbers import EVENT_TYPES, EVENTS, OPERATIONAL

_LOOK_S = 0.2
"""How often a waiting set reads the file."""


class EventSet:
    """The registered event types of each GPU, and the id of the last delivered event.

    `operational` has the least log level and severity of each GPU; `last` is the event that the
    last wait returned.
    """

    def __init__(self, seen: int) -> None:
        self.seen = seen
        self.wanted: dict[str, int] = {}
        self.operational: dict[str, tuple[int, int]] = {}
        self.last: PushedEvent | None = None

    def next_event(self, library: SimulatedLibrary, *, structured: bool) -> PushedEvent | None:
        """Return the next registered event; operational ones only to a `structured` wait."""
        node = library.node
        for event in sorted(node.events, key=lambda event: event.id):
            if event.id <= self.seen:
                continue
            uuid = node.gpus[event.gpu].uuid
            if event.type == OPERATIONAL:
                least = self.operational.get(uuid)
                wanted = (
                    structured
                    and least is not None
                    and event.log_level >= least[0]
                    and event.severity >= least[1]
                )
            else:
                wanted = bool(self.wanted.get(uuid, 0) & EVENT_TYPES[event.type])
            if wanted:
                self.seen = event.id
                self.last = event
                return event
        return None


def supported(library: SimulatedLibrary, gpu: Gpu) -> int:
    """Return the event bits that the GPU supports with this driver."""
    if gpu.events_supported is not None:
        return sum(EVENT_TYPES[name] for name in gpu.events_supported)
    branch = library.node.driver.branch
    hopper = gpu.architecture >= pynvml.NVML_DEVICE_ARCH_HOPPER
    names = [name for name in EVENT_TYPES if branch >= EVENTS.get(name, 0)]
    skipped = set() if hopper else {"non_fatal_poison", "fatal_poison"}
    skipped.add("power_source")
    if gpu.mig is None:
        skipped.add("mig_config_change")
    return sum(EVENT_TYPES[name] for name in names if name not in skipped)


@system_call("nvmlEventSetCreate")
def create(library: SimulatedLibrary, handle: Any) -> int:
    number = library.new_number()
    seen = max((event.id for event in library.node.events), default=0)
    library.sets[number] = EventSet(seen)
    fill_pointer(handle, number)
    return SUCCESS


@system_call("nvmlEventSetFree")
def free(library: SimulatedLibrary, handle: Any) -> int:
    return SUCCESS if library.sets.pop(pointer_value(handle), None) else INVALID_ARGUMENT


@device_call("nvmlDeviceGetSupportedEventTypes")
def supported_types(library: SimulatedLibrary, gpu: Gpu, mask: Any) -> int:
    return put(mask, supported(library, gpu))


@device_call("nvmlDeviceRegisterEvents")
def register(library: SimulatedLibrary, gpu: Gpu, types: Any, handle: Any) -> int:
    events = library.sets.get(pointer_value(handle))
    if events is None:
        return INVALID_ARGUMENT
    if number_of(types) & ~supported(library, gpu):
        return NOT_SUPPORTED
    events.wanted[gpu.uuid] = events.wanted.get(gpu.uuid, 0) | number_of(types)
    return SUCCESS


@system_call("nvmlEventSetRegisterGpuOperationalEvents_v1")
def register_operational(library: SimulatedLibrary, handle: Any, config: Any) -> int:
    events = library.sets.get(pointer_value(handle))
    config = referenced(config)
    gpu = library.gpu(config.uuid)
    if events is None or gpu is None:
        return INVALID_ARGUMENT
    if gpu.architecture < pynvml.NVML_DEVICE_ARCH_TURING:
        return NOT_SUPPORTED
    events.operational[gpu.uuid] = (config.minLogLevel, config.minSeverity)
    return SUCCESS


@system_call("nvmlEventSetWait_v2")
def wait(library: SimulatedLibrary, handle: Any, data: Any, timeout_ms: Any) -> int:
    return _wait(library, handle, number_of(timeout_ms), referenced(data), structured=False)


@system_call("nvmlEventSetWait_v3")
def wait_structured(library: SimulatedLibrary, handle: Any, record: Any) -> int:
    record = referenced(record)
    return _wait(library, handle, record.timeoutMs, record, structured=True)


def _wait(
    library: SimulatedLibrary, handle: Any, timeout_ms: int, data: Any, *, structured: bool
) -> int:
    events = library.sets.get(pointer_value(handle))
    if events is None:
        return INVALID_ARGUMENT
    deadline = time.monotonic() + timeout_ms / 1000
    read_node = None
    while True:
        node = library.node
        if node is not read_node:
            # Reading an unchanged file costs one stat.
            read_node = node
            if library.stale(node):
                return UNINITIALIZED
            if any(_gone(library, node, uuid) for uuid in events.wanted | events.operational):
                return GPU_IS_LOST
            event = events.next_event(library, structured=structured)
            if event is not None:
                (_deliver_record if structured else _deliver)(library, event, data)
                return SUCCESS
        left = deadline - time.monotonic()
        if left <= 0:
            return TIMEOUT
        time.sleep(min(left, _LOOK_S))


def _gone(library: SimulatedLibrary, node: Node, uuid: str) -> bool:
    gpu = library.gpu(uuid, node)
    return gpu is None or gpu.lost


def _deliver(library: SimulatedLibrary, event: PushedEvent, data: Any) -> None:
    gpu = library.node.gpus[event.gpu]
    data.device = type(data.device)()
    pointer = pynvml.c_nvmlDevice_t()
    fill_pointer(pointer, library.number(Handle(gpu.uuid)))
    data.device = pointer
    data.eventType = EVENT_TYPES[event.type]
    data.eventData = event.data
    data.gpuInstanceId = event.gi
    data.computeInstanceId = event.ci


def _deliver_record(library: SimulatedLibrary, event: PushedEvent, record: Any) -> None:
    """Fill in a record of the third version: of an event bit, or of an operational event."""
    record.uuid = library.node.gpus[event.gpu].uuid.encode()
    record.gpuInstanceId, record.computeInstanceId = event.gi, event.ci
    if event.type != OPERATIONAL:
        record.dataType = pynvml.NVML_EVENT_DATA_TYPE_NVML_EVENT
        record.eventType, record.eventData = EVENT_TYPES[event.type], event.data
        record.sourceModule = b""
        record.severity = record.groupAttributes = 0
        return
    record.dataType = pynvml.NVML_EVENT_DATA_TYPE_GPU_OPERATIONAL_EVENT
    record.eventType, record.eventData = pynvml.nvmlEventTypeNone, 0
    record.sourceModule = as_bytes(event.module)
    record.moduleEventCode, record.categoryId = event.code, event.category
    record.severity, record.logLevel = event.severity, event.log_level
    record.groupAttributes = event.group_attributes
    record.instanceId, record.groupSize = event.id, 1


_CONTEXTS = (
    pynvml.NVML_GPU_OPERATIONAL_EVENT_CONTEXT_TYPE_UNKNOWN,
    pynvml.NVML_GPU_OPERATIONAL_EVENT_CONTEXT_TYPE_LEGACY_XID,
)


def _contexts(library: SimulatedLibrary, handle: Any) -> tuple[int, ...]:
    """Return the types of the context records of the last event of a set."""
    events = library.sets.get(pointer_value(handle))
    last = events.last if events else None
    if last is None or last.type != OPERATIONAL:
        return ()
    return _CONTEXTS if last.data else _CONTEXTS[:1]


@system_call("nvmlEventSetGetContextCount_v1")
def context_count(library: SimulatedLibrary, handle: Any, count: Any) -> int:
    contexts = _contexts(library, handle)
    last = library.sets[pointer_value(handle)].last if contexts else None
    reported = last.contexts if last else None
    referenced(count).count = len(contexts) if reported is None else reported
    return SUCCESS


@system_call("nvmlEventSetGetContextInfo_v1")
def context_info(library: SimulatedLibrary, handle: Any, info: Any) -> int:
    contexts, info = _contexts(library, handle), referenced(info)
    if info.index >= len(contexts):
        return INVALID_ARGUMENT
    info.nvmlGpuOperationalEventContextType = contexts[info.index]
    return SUCCESS


@system_call("nvmlEventSetGetGpuOperationalEventContextLegacyXid_v1")
def legacy_xid(library: SimulatedLibrary, handle: Any, context: Any) -> int:
    contexts, context = _contexts(library, handle), referenced(context)
    if context.index >= len(contexts) or contexts[context.index] != _CONTEXTS[1]:
        return INVALID_ARGUMENT
    context.xidCode = library.sets[pointer_value(handle)].last.data
    return SUCCESS
