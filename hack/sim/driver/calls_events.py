"""NVML's event sets.

An event in the file is delivered once to each set that waits for its type and GPU and existed
before the event was written. As in the real library, one lost GPU makes every wait on its set
fail. Registered in `library`; `pynvml` calls them through the simulated library.
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
    device_call,
    fill_pointer,
    number_of,
    pointer_value,
    put,
    referenced,
    system_call,
)
from hack.sim.driver.node import Gpu, Node, PushedEvent
from hack.sim.driver.numbers import EVENT_TYPES, EVENTS

_LOOK_S = 0.2
"""How often a waiting set reads the file."""


class EventSet:
    """The registered event types of each GPU, and the id of the last delivered event."""

    def __init__(self, seen: int) -> None:
        self.seen = seen
        self.wanted: dict[str, int] = {}

    def next_event(self, library: SimulatedLibrary) -> PushedEvent | None:
        """Return the next registered event."""
        node = library.node
        for event in sorted(node.events, key=lambda event: event.id):
            if event.id <= self.seen:
                continue
            mask = self.wanted.get(node.gpus[event.gpu].uuid, 0)
            if mask & EVENT_TYPES[event.type]:
                self.seen = event.id
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


@system_call("nvmlEventSetWait_v2")
def wait(library: SimulatedLibrary, handle: Any, data: Any, timeout_ms: Any) -> int:
    events = library.sets.get(pointer_value(handle))
    if events is None:
        return INVALID_ARGUMENT
    deadline = time.monotonic() + number_of(timeout_ms) / 1000
    read_node = None
    while True:
        node = library.node
        if node is not read_node:
            # Reading an unchanged file costs one stat.
            read_node = node
            if library.stale(node):
                return UNINITIALIZED
            if any(_gone(library, node, uuid) for uuid in events.wanted):
                return GPU_IS_LOST
            event = events.next_event(library)
            if event is not None:
                _deliver(library, event, referenced(data))
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
