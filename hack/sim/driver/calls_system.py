"""NVML calls about the library, the driver and which GPUs there are.

Registered with `library`; called by `pynvml` through the simulated library only.
"""

from __future__ import annotations

from typing import Any

from hack.sim.driver.library import (
    GPU_NOT_FOUND,
    INVALID_ARGUMENT,
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


@system_call("nvmlSystemGetCudaDriverVersion_v2")
def cuda_version(library: SimulatedLibrary, version: Any) -> int:
    major, minor = library.node.driver.cuda.split(".")
    return put(version, int(major) * 1000 + int(minor) * 10)


@system_call("nvmlDeviceGetCount_v2")
def device_count(library: SimulatedLibrary, count: Any) -> int:
    return put(count, len(library.attached))


BY_INDEX = "nvmlDeviceGetHandleByIndex_v2"


@system_call(BY_INDEX)
def by_index(library: SimulatedLibrary, index: Any, handle: Any) -> int:
    if number_of(index) >= len(library.attached):
        return INVALID_ARGUMENT
    return library.hand_out(handle, Handle(library.attached[number_of(index)]), BY_INDEX)


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
