"""NVML calls about the driver, the list of GPUs, and one GPU: identity, temperature, memory, PCIe.

Registered in `library`; `pynvml` calls them through the simulated library.
"""

from collections.abc import Callable
from typing import Any

import pynvml

from hack.sim.driver.library import (
    ARGUMENT_VERSION_MISMATCH,
    CORRUPTED_INFOROM,
    GPU_NOT_FOUND,
    INVALID_ARGUMENT,
    NOT_SUPPORTED,
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
from hack.sim.driver.node import EccCounts, Gpu
from hack.sim.driver.numbers import CLOCK_EVENT_BRANCHES, CLOCK_EVENTS
from rules.text.pci_address import full_address

NO_GPUS = 1
"""NVML_INIT_FLAG_NO_GPUS: a node without a GPU is not an error."""


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
    # A C string, not a return code: pynvml sets the function's restype to report it.
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


TEXTS: dict[str, Callable[[Gpu], str]] = {
    "nvmlDeviceGetName": lambda gpu: gpu.name,
    "nvmlDeviceGetSerial": lambda gpu: gpu.serial,
    "nvmlDeviceGetBoardPartNumber": lambda gpu: gpu.board,
    "nvmlDeviceGetVbiosVersion": lambda gpu: gpu.vbios,
}
"""Calls that return one text of the description; an empty one is not supported."""
NUMBERS: dict[str, Callable[[Gpu], float | None]] = {
    "nvmlDeviceGetModuleId": lambda gpu: gpu.module_id,
    "nvmlDeviceGetMinorNumber": lambda gpu: gpu.minor,
    "nvmlDeviceGetNumaNodeId": lambda gpu: gpu.numa,
    "nvmlDeviceGetArchitecture": lambda gpu: gpu.architecture,
    "nvmlDeviceGetPersistenceMode": lambda gpu: gpu.persistence,
    "nvmlDeviceGetPowerUsage": lambda gpu: round(gpu.power_watts * 1000),
    "nvmlDeviceGetPerformanceState": lambda gpu: gpu.performance_state,
    "nvmlDeviceGetCurrPcieLinkGeneration": lambda gpu: gpu.pcie.generation,
    "nvmlDeviceGetMaxPcieLinkGeneration": lambda gpu: gpu.pcie.max_generation,
    "nvmlDeviceGetCurrPcieLinkWidth": lambda gpu: gpu.pcie.width,
    "nvmlDeviceGetMaxPcieLinkWidth": lambda gpu: gpu.pcie.max_width,
}
"""Calls that return one number of the description; None is not supported."""


def _register_text(symbol: str, read: Callable[[Gpu], str]) -> None:
    @device_call(symbol)
    def answer(_: SimulatedLibrary, gpu: Gpu, buffer: Any, size: Any) -> int:
        text = read(gpu)
        return put_text(buffer, text, size) if text else NOT_SUPPORTED


def _register_number(symbol: str, read: Callable[[Gpu], float | None]) -> None:
    @device_call(symbol)
    def answer(_: SimulatedLibrary, gpu: Gpu, value: Any) -> int:
        number = read(gpu)
        return NOT_SUPPORTED if number is None else put(value, number)


for _symbol, _text in TEXTS.items():
    _register_text(_symbol, _text)
for _symbol, _number in NUMBERS.items():
    _register_number(_symbol, _number)


@device_call("nvmlDeviceGetUUID", with_handle=True)
def uuid(_: SimulatedLibrary, gpu: Gpu, handle: Handle, buffer: Any, size: Any) -> int:
    return put_text(buffer, handle.instance.uuid if handle.instance else gpu.uuid, size)


@device_call("nvmlDeviceGetMemoryAffinity")
def memory_affinity(_: SimulatedLibrary, gpu: Gpu, size: Any, array: Any, _scope: Any) -> int:
    referenced(array)[0] = 1 << gpu.numa
    return SUCCESS


@device_call("nvmlDeviceGetCudaComputeCapability")
def compute_capability(_: SimulatedLibrary, gpu: Gpu, major: Any, minor: Any) -> int:
    numbers = gpu.compute_capability.split(".")
    put(major, int(numbers[0]))
    return put(minor, int(numbers[1]))


@device_call("nvmlDeviceGetVirtualizationMode")
def virtualization_mode(library: SimulatedLibrary, _: Gpu, mode: Any) -> int:
    return put(mode, ("none", "passthrough", "vgpu").index(library.node.virtualization))


@device_call("nvmlDeviceGetTemperature")
def temperature(_: SimulatedLibrary, gpu: Gpu, sensor: Any, value: Any) -> int:
    return put(value, gpu.temperature.gpu) if number_of(sensor) == 0 else INVALID_ARGUMENT


@device_call("nvmlDeviceGetTemperatureV")
def temperature_v(_: SimulatedLibrary, gpu: Gpu, reading: Any) -> int:
    reading = referenced(reading)
    if reading.version != pynvml.nvmlTemperature_v1:
        return ARGUMENT_VERSION_MISMATCH
    if reading.sensorType != pynvml.NVML_TEMPERATURE_GPU:
        return INVALID_ARGUMENT
    reading.temperature = gpu.temperature.gpu
    return SUCCESS


@device_call("nvmlDeviceGetMarginTemperature")
def margin(_: SimulatedLibrary, gpu: Gpu, reading: Any) -> int:
    reading = referenced(reading)
    if reading.version != pynvml.nvmlMarginTemperature_v1:
        return ARGUMENT_VERSION_MISMATCH
    if gpu.temperature.margin is None:
        return NOT_SUPPORTED
    reading.marginTemperature = gpu.temperature.margin
    return SUCCESS


@device_call("nvmlDeviceGetTemperatureThreshold")
def threshold(_: SimulatedLibrary, gpu: Gpu, kind: Any, value: Any) -> int:
    degrees = {
        pynvml.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN: gpu.temperature.shutdown,
        pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN: gpu.temperature.slowdown,
        pynvml.NVML_TEMPERATURE_THRESHOLD_MEM_MAX: gpu.temperature.memory_max,
        pynvml.NVML_TEMPERATURE_THRESHOLD_GPU_MAX: gpu.temperature.gpu_max,
    }.get(number_of(kind))
    return NOT_SUPPORTED if degrees is None else put(value, degrees)


@device_call("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
def clock_events(library: SimulatedLibrary, gpu: Gpu, mask: Any) -> int:
    branch = library.node.driver.branch
    reported = {name for name in gpu.clock_events if branch >= CLOCK_EVENT_BRANCHES.get(name, 0)}
    return put(mask, sum(CLOCK_EVENTS[name] for name in reported))


@device_call("nvmlDeviceGetClockInfo")
def clock(_: SimulatedLibrary, gpu: Gpu, kind: Any, value: Any) -> int:
    clocks = (gpu.clocks.graphics, gpu.clocks.sm, gpu.clocks.memory, gpu.clocks.video)
    return put(value, clocks[number_of(kind)])


@device_call("nvmlDeviceGetUtilizationRates")
def utilization(_: SimulatedLibrary, gpu: Gpu, rates: Any) -> int:
    if gpu.mig and gpu.mig.enabled:
        return NOT_SUPPORTED
    referenced(rates).gpu = gpu.utilization_percent
    return SUCCESS


def total(counts: EccCounts, *, uncorrected: bool) -> int:
    """Return the errors of one kind in all places."""
    if uncorrected:
        return counts.sram_uncorrected + counts.dram_uncorrected
    return counts.sram_corrected + counts.dram_corrected


@device_call("nvmlDeviceGetSramEccErrorStatus")
def sram_status(_: SimulatedLibrary, gpu: Gpu, status: Any) -> int:
    status = referenced(status)
    if status.version != pynvml.nvmlEccSramErrorStatus_v1:
        return ARGUMENT_VERSION_MISMATCH
    if gpu.ecc is None or not gpu.ecc.enabled or gpu.architecture < pynvml.NVML_DEVICE_ARCH_AMPERE:
        return NOT_SUPPORTED
    status.aggregateUncSecDed = gpu.ecc.aggregate.sram_uncorrected
    status.aggregateCor = gpu.ecc.aggregate.sram_corrected
    status.volatileUncSecDed = gpu.ecc.volatile.sram_uncorrected
    status.volatileCor = gpu.ecc.volatile.sram_corrected
    status.bThresholdExceeded = gpu.ecc.sram_threshold_exceeded
    return SUCCESS


def _remap_hidden(gpu: Gpu) -> bool:
    """Row remapping cannot be read while MIG instances are active."""
    return gpu.remap is None or bool(gpu.mig and gpu.mig.enabled and gpu.mig.instances)


@device_call("nvmlDeviceGetRowRemapperHistogram")
def remap_histogram(_: SimulatedLibrary, gpu: Gpu, histogram: Any) -> int:
    if gpu.remap is None or _remap_hidden(gpu):
        return NOT_SUPPORTED
    for field, banks in zip(
        ("max", "high", "partial", "low", "none"), gpu.remap.histogram, strict=True
    ):
        setattr(referenced(histogram), field, banks)
    return SUCCESS


@device_call("nvmlDeviceGetRepairStatus")
def repair_status(_: SimulatedLibrary, gpu: Gpu, status: Any) -> int:
    status = referenced(status)
    if status.version != pynvml.nvmlRepairStatus_v1:
        return ARGUMENT_VERSION_MISMATCH
    if gpu.repair is None:
        return NOT_SUPPORTED
    status.bChannelRepairPending = gpu.repair.channel_pending
    status.bTpcRepairPending = gpu.repair.tpc_pending
    return SUCCESS


@device_call("nvmlDeviceGetUnrepairableMemoryFlag_v1")
def unrepairable_memory(_: SimulatedLibrary, gpu: Gpu, status: Any) -> int:
    status = referenced(status)
    if status.version != pynvml.nvmlUnrepairableMemory_v1:
        return ARGUMENT_VERSION_MISMATCH
    if gpu.repair is None:
        return NOT_SUPPORTED
    status.unrepairableMemory = gpu.repair.unrepairable_memory
    return SUCCESS


@device_call("nvmlDeviceValidateInforom")
def validate_inforom(_: SimulatedLibrary, gpu: Gpu) -> int:
    return SUCCESS if gpu.inforom.valid else CORRUPTED_INFOROM


@device_call("nvmlDeviceGetInforomImageVersion")
def inforom_image(_: SimulatedLibrary, gpu: Gpu, buffer: Any, size: Any) -> int:
    if not gpu.inforom.valid:
        return CORRUPTED_INFOROM
    return put_text(buffer, gpu.inforom.image, size) if gpu.inforom.image else NOT_SUPPORTED
