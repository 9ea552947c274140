"""NVML calls about the library, the driver and which GPUs there are.

Registered with `library`; called by `pynvml` through the simulated library only.
"""

from __future__ import annotations

from typing import Any

from hack.sim.driver.library import (
    GPU_NOT_FOUND,
    INSUFFICIENT_SIZE,
    INVALID_ARGUMENT,
    NOT_FOUND,
    SUCCESS,
    Handle,
    SimulatedLibrary,
    device_call,
    number_of,
    put,
    put_text,
    referenced,
    system_call,
)
from hack.sim.driver.node import Gpu
from rules.text.pci_address import full_address

NO_GPUS = 1
"""NVML_INIT_FLAG_NO_GPUS: a node without a GPU is no error."""


@system_call("nvmlInitWithFlags", "nvmlInit_v2", needs_init=False)
def initialise(library: SimulatedLibrary, flags: Any = 0) -> int:
    node = library.node
    if node.init_error:
        return node.init_error
    if all(gpu.unplugged for gpu in node.gpus) and not number_of(flags) & NO_GPUS:
        return GPU_NOT_FOUND
    library.attach()
    return SUCCESS


@system_call("nvmlShutdown")
def shut_down(library: SimulatedLibrary) -> int:
    library.detach()
    return SUCCESS


@system_call("nvmlErrorString", needs_init=False)
def error_string(_library: SimulatedLibrary, code: Any) -> Any:
    # A C string, not a return code: pynvml sets the function's restype to say so.
    return f"simulated NVML error {number_of(code)}".encode()


@system_call("nvmlSystemGetDriverVersion")
def driver_version(library: SimulatedLibrary, buffer: Any, size: Any) -> int:
    return put_text(buffer, library.node.driver.version, size)


@system_call("nvmlSystemGetNVMLVersion")
def nvml_version(library: SimulatedLibrary, buffer: Any, size: Any) -> int:
    return put_text(buffer, library.node.driver.nvml, size)


@system_call("nvmlSystemGetCudaDriverVersion_v2", "nvmlSystemGetCudaDriverVersion")
def cuda_version(library: SimulatedLibrary, version: Any) -> int:
    major, minor = library.node.driver.cuda.split(".")
    return put(version, int(major) * 1000 + int(minor) * 10)


@system_call("nvmlSystemGetProcessName")
def process_name(library: SimulatedLibrary, pid: Any, buffer: Any, size: Any) -> int:
    for gpu in library.node.gpus:
        for process in gpu.processes:
            if process.pid == number_of(pid):
                return put_text(buffer, process.name, size)
    return NOT_FOUND


@system_call("nvmlDeviceGetCount_v2")
def device_count(library: SimulatedLibrary, count: Any) -> int:
    return put(count, len(library.attached))


BY_INDEX = "nvmlDeviceGetHandleByIndex_v2"


@system_call(BY_INDEX)
def by_index(library: SimulatedLibrary, index: Any, handle: Any) -> int:
    if number_of(index) >= len(library.attached):
        return INVALID_ARGUMENT
    return library.hand_out(handle, Handle(library.attached[number_of(index)]), BY_INDEX)


@system_call("nvmlDeviceGetHandleByUUID")
def by_uuid(library: SimulatedLibrary, uuid: Any, handle: Any) -> int:
    text = uuid.value.decode()
    for gpu in library.node.gpus:
        if gpu.uuid == text and gpu.uuid in library.attached:
            return library.hand_out(handle, Handle(gpu.uuid))
        for instance in gpu.mig.instances if gpu.mig else ():
            if instance.uuid == text:
                return library.hand_out(handle, Handle(gpu.uuid, instance))
    return NOT_FOUND


@system_call("nvmlDeviceGetHandleByPciBusId_v2")
def by_pci(library: SimulatedLibrary, address: Any, handle: Any) -> int:
    wanted = full_address(address.value.decode())
    for gpu in library.node.gpus:
        if gpu.uuid in library.attached and full_address(gpu.pci) == wanted:
            return library.hand_out(handle, Handle(gpu.uuid))
    return NOT_FOUND


@system_call("nvmlDeviceGetHandleBySerial")
def by_serial(library: SimulatedLibrary, serial: Any, handle: Any) -> int:
    for gpu in library.node.gpus:
        if gpu.uuid in library.attached and gpu.serial == serial.value.decode():
            return library.hand_out(handle, Handle(gpu.uuid))
    return NOT_FOUND


@device_call("nvmlDeviceGetIndex")
def index_of(library: SimulatedLibrary, gpu: Gpu, index: Any) -> int:
    return put(index, library.attached.index(gpu.uuid))


@device_call("nvmlDeviceGetPciInfo_v3")
def pci_info(_library: SimulatedLibrary, gpu: Gpu, info: Any) -> int:
    fill_pci(referenced(info), gpu.pci, gpu.pci_view.device, gpu.pci_view.subsystem)
    return SUCCESS


@system_call("nvmlGetExcludedDeviceCount")
def excluded_count(library: SimulatedLibrary, count: Any) -> int:
    return put(count, len(library.node.excluded))


@system_call("nvmlGetExcludedDeviceInfoByIndex")
def excluded_info(library: SimulatedLibrary, index: Any, info: Any) -> int:
    excluded = library.node.excluded
    if number_of(index) >= len(excluded):
        return INVALID_ARGUMENT
    fill_pci(referenced(info).pci, excluded[number_of(index)], "2330", "10de16c1")
    referenced(info).uuid = f"GPU-{number_of(index):08x}-0000-0000-0000-000000000000"
    return SUCCESS


@device_call("nvmlDeviceGetComputeRunningProcesses_v3")
def processes(_library: SimulatedLibrary, gpu: Gpu, count: Any, array: Any) -> int:
    if not gpu.processes:
        return put(count, 0)
    room = referenced(count).value
    referenced(count).value = len(gpu.processes)
    if array is None or room < len(gpu.processes):
        return INSUFFICIENT_SIZE
    for slot, process in zip(array, gpu.processes, strict=False):
        slot.pid = process.pid
        slot.usedGpuMemory = process.memory_mib << 20
    return SUCCESS


def fill_pci(info: Any, address: str, device: str, subsystem: str) -> None:
    """Fill an nvmlPciInfo_t for the function at `address`."""
    domain, bus, rest = full_address(address).split(":")
    slot, function = rest.split(".")
    info.domain = int(domain, 16)
    info.bus = int(bus, 16)
    info.device = int(slot, 16)
    info.pciDeviceId = int(device + "10de", 16)
    info.pciSubSystemId = int(subsystem[4:] + subsystem[:4], 16)
    info.busIdLegacy = f"{domain}:{bus}:{slot}.{function}".upper()
    info.busId = f"0000{domain}:{bus}:{slot}.{function}".upper()
