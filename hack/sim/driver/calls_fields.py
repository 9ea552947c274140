"""The batch query nvmlDeviceGetFieldValues, NVLink, distance over PCIe, and MIG.

Fields use pynvml's constants, never numbers. A field that the simulated driver is too old for
returns "invalid argument", one that the GPU does not have "not supported".
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pynvml

from hack.sim.driver.calls_device import fill_pci, total
from hack.sim.driver.library import (
    INVALID_ARGUMENT,
    NOT_FOUND,
    NOT_SUPPORTED,
    SUCCESS,
    Handle,
    SimulatedLibrary,
    device_call,
    number_of,
    put,
    referenced,
)
from hack.sim.driver.node import Ecc, EccCounts, Gpu, Nvlink
from hack.sim.driver.numbers import FIELDS as FIELD_BRANCHES
from hack.sim.driver.numbers import REMOTE_TYPES, TRAFFIC_DISABLED_BRANCH

Number = int | float | None
Field = Callable[[Gpu, int], Number]
"""Returns the value for a GPU and a scope (mostly a link); None if the GPU has none."""

HOPPER = pynvml.NVML_DEVICE_ARCH_HOPPER
BLACKWELL = pynvml.NVML_DEVICE_ARCH_BLACKWELL


def _ecc(read: Callable[[Ecc], Number], *, always: bool = False) -> Field:
    return lambda gpu, _: read(gpu.ecc) if gpu.ecc and (always or gpu.ecc.enabled) else None


def _total(counter: str, *, uncorrected: bool) -> Field:
    return _ecc(lambda ecc: total(getattr(ecc, counter), uncorrected=uncorrected))


def _count(counter: str, place: str) -> Field:
    def read(ecc: Ecc) -> Number:
        counts: EccCounts = getattr(ecc, counter)
        value: int = getattr(counts, place)
        return value

    return _ecc(read)


def _milliwatts(field: str) -> Field:
    """A power in the driver's unit; not supported if the description has none."""

    def read(gpu: Gpu, _: int) -> Number:
        watts = getattr(gpu, field)
        return None if watts is None else round(watts * 1000)

    return read


def _part(part: str, field: str) -> Field:
    """One field of an optional part of the GPU."""

    def read(gpu: Gpu, _: int) -> Number:
        holder = getattr(gpu, part)
        value: Number = None if holder is None else getattr(holder, field)
        return value

    return read


def _remap(field: str) -> Field:
    def read(gpu: Gpu, _: int) -> Number:
        if gpu.mig and gpu.mig.enabled and gpu.mig.instances:
            return None
        return _part("remap", field)(gpu, 0)

    return read


def _link(counter: str, *, first: int, last: int = 99) -> Field:
    """A counter of one link, on architectures from `first` to `last`."""

    def read(gpu: Gpu, link: int) -> Number:
        if not first <= gpu.architecture <= last or link >= gpu.nvlink.count:
            return None
        errors: dict[int, int] = getattr(gpu.nvlink, counter)
        return errors.get(link, 0)

    return read


def _all_links(counter: str) -> Field:
    """The sum of a counter over the links, on GPUs before NVLink 5."""

    def read(gpu: Gpu, _: int) -> Number:
        if not gpu.nvlink.count or gpu.architecture >= BLACKWELL:
            return None
        errors: dict[int, int] = getattr(gpu.nvlink, counter)
        return sum(errors.values())

    return read


def _link_state(gpu: Gpu, link: int) -> Number:
    if gpu.architecture < HOPPER or link >= gpu.nvlink.count:
        return None
    return link_up(gpu.nvlink, link)


def link_up(nvlink: Nvlink, link: int) -> int:
    """1 while the link is up."""
    return 0 if link in nvlink.down else 1


def _c2c_status(gpu: Gpu, link: int) -> Number:
    return gpu.c2c.states[link] if gpu.c2c and link < len(gpu.c2c.states) else None


FIELDS: dict[str, Field] = {
    "ECC_CURRENT": _ecc(lambda ecc: ecc.enabled, always=True),
    "ECC_PENDING": _ecc(lambda ecc: ecc.pending, always=True),
    "ECC_SBE_VOL_TOTAL": _total("volatile", uncorrected=False),
    "ECC_DBE_VOL_TOTAL": _total("volatile", uncorrected=True),
    "ECC_SBE_AGG_TOTAL": _total("aggregate", uncorrected=False),
    "ECC_DBE_AGG_TOTAL": _total("aggregate", uncorrected=True),
    "ECC_SBE_VOL_DEV": _count("volatile", "dram_corrected"),
    "ECC_DBE_VOL_DEV": _count("volatile", "dram_uncorrected"),
    "ECC_SBE_AGG_DEV": _count("aggregate", "dram_corrected"),
    "ECC_DBE_AGG_DEV": _count("aggregate", "dram_uncorrected"),
    "RETIRED_SBE": _part("retired_pages", "single_bit"),
    "RETIRED_DBE": _part("retired_pages", "double_bit"),
    "RETIRED_PENDING": _part("retired_pages", "pending"),
    "REMAPPED_COR": _remap("correctable"),
    "REMAPPED_UNC": _remap("uncorrectable"),
    "REMAPPED_PENDING": _remap("pending"),
    "REMAPPED_FAILURE": _remap("failure"),
    "ACTIVE_BANK_REMAPPINGS": _part("banks", "active"),
    "INACTIVE_BANK_REMAPPINGS": _part("banks", "inactive"),
    "PENDING_BANK_REMAPPING": _part("banks", "pending"),
    "BANK_REMAPPER_HISTOGRAM_MAX": _part("banks", "groups_full"),
    "BANK_REMAPPER_HISTOGRAM_NONE": _part("banks", "groups_exhausted"),
    "MEMORY_TEMP": lambda gpu, _: gpu.temperature.memory,
    "TEMPERATURE_SLOWDOWN_TLIMIT": lambda gpu, _: gpu.temperature.slowdown_margin,
    "TEMPERATURE_SHUTDOWN_TLIMIT": lambda gpu, _: gpu.temperature.shutdown_margin,
    "POWER_INSTANT": lambda gpu, _: round(gpu.power_watts * 1000),
    "POWER_AVERAGE": lambda gpu, _: round(gpu.power_watts * 1000),
    "POWER_CURRENT_LIMIT": _milliwatts("power_limit_watts"),
    "POWER_DEFAULT_LIMIT": _milliwatts("power_limit_default_watts"),
    "PCIE_REPLAY_COUNTER": _part("pcie", "replays"),
    "PCIE_COUNT_CORRECTABLE_ERRORS": _part("pcie", "correctable"),
    "PCIE_COUNT_NON_FATAL_ERROR": _part("pcie", "non_fatal"),
    "PCIE_COUNT_FATAL_ERROR": _part("pcie", "fatal"),
    "NVLINK_LINK_COUNT": lambda gpu, _: gpu.nvlink.count or None,
    "NVLINK_GET_STATE": _link_state,
    "NVLINK_ERROR_DL_CRC": _link("crc", first=HOPPER, last=HOPPER),
    "NVLINK_ERROR_DL_REPLAY": _link("replays", first=HOPPER, last=HOPPER),
    "NVLINK_ERROR_DL_RECOVERY": _link("recoveries", first=HOPPER, last=HOPPER),
    "NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": _all_links("crc"),
    "NVLINK_CRC_DATA_ERROR_COUNT_TOTAL": _all_links("crc_data"),
    "NVLINK_REPLAY_ERROR_COUNT_TOTAL": _all_links("replays"),
    "NVLINK_RECOVERY_ERROR_COUNT_TOTAL": _all_links("recoveries"),
    "NVLINK_COUNT_RCV_ERRORS": _link("receive_errors", first=BLACKWELL),
    "NVLINK_COUNT_MALFORMED_PACKET_ERRORS": _link("malformed", first=BLACKWELL),
    "NVLINK_COUNT_BUFFER_OVERRUN_ERRORS": _link("dropped", first=BLACKWELL),
    "NVLINK_COUNT_RCV_REMOTE_ERRORS": _link("remote_errors", first=BLACKWELL),
    "NVLINK_COUNT_LOCAL_LINK_INTEGRITY_ERRORS": _link("integrity_errors", first=BLACKWELL),
    "NVLINK_COUNT_LINK_RECOVERY_EVENTS": _link("recoveries", first=BLACKWELL),
    "NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS": _link("recoveries_failed", first=BLACKWELL),
    "NVLINK_COUNT_SYMBOL_ERRORS": _link("symbol_errors", first=BLACKWELL),
    "NVLINK_COUNT_EFFECTIVE_ERRORS": _link("effective_errors", first=BLACKWELL),
    "NVLINK_COUNT_EFFECTIVE_BER": _link("effective_ber", first=BLACKWELL),
    "NVLINK_COUNT_SYMBOL_BER": _link("symbol_ber", first=BLACKWELL),
    "NVLINK_COUNT_RAW_BER_V2": _link("raw_ber", first=BLACKWELL),
    "NVLINK_PLR_XMIT_RETRY_BLOCKS": _link("retransmitted_blocks", first=BLACKWELL),
    "C2C_LINK_COUNT": lambda gpu, _: len(gpu.c2c.states) if gpu.c2c else None,
    "C2C_LINK_GET_STATUS": _c2c_status,
    "C2C_LINK_ERROR_INTR": _part("c2c", "errors"),
    "GET_GPU_RECOVERY_ACTION": lambda gpu, _: gpu.recovery_action,
    "CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN": lambda gpu, _: _nanoseconds(gpu, "sw_thermal"),
    "CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN": lambda gpu, _: _nanoseconds(gpu, "hw_thermal"),
    "CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN": lambda gpu, _: _nanoseconds(gpu, "power_brake"),
}
SKIPPED_WITHOUT_C2C = frozenset(
    (
        "POWER_CURRENT_LIMIT",
        "POWER_DEFAULT_LIMIT",
        "CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN",
        "CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN",
        "TEMPERATURE_SLOWDOWN_TLIMIT",
    )
)
"""Fields left unanswered, with success and no timestamp, in a batch that also has C2C errors on a
GPU without C2C: observed on an H100 with driver 580.159."""
SIGNED = frozenset(("TEMPERATURE_SLOWDOWN_TLIMIT", "TEMPERATURE_SHUTDOWN_TLIMIT"))


def _nanoseconds(gpu: Gpu, reason: str) -> int:
    return gpu.clock_event_nanoseconds.get(reason, 0)


_BY_NUMBER = {getattr(pynvml, f"NVML_FI_DEV_{name}"): name for name in FIELDS}
_STRUCT = pynvml.c_nvmlFieldValue_t
_FIELD, _SCOPE, _RETURN = _STRUCT.fieldId, _STRUCT.scopeId, _STRUCT.nvmlReturn
_KIND, _UNION, _TIME = _STRUCT.valueType, _STRUCT.value, _STRUCT.timestamp
"""Fields of an answer through ctypes: pynvml's attributes take four times as long."""
_BRANCHES = [(getattr(pynvml, name), branch) for name, branch in FIELD_BRANCHES]


@lru_cache(maxsize=1024)
def field_branch(number: int) -> int:
    """Return the first driver branch that has this field."""
    return max((branch for first, branch in _BRANCHES if number >= first), default=0)


@device_call("nvmlDeviceGetFieldValues")
def field_values(library: SimulatedLibrary, gpu: Gpu, count: Any, values: Any) -> int:
    # Read once: the description must not change within a call.
    branch = library.node.driver.branch
    asked = referenced(values)[: number_of(count)]
    names = [_BY_NUMBER.get(_FIELD.__get__(value)) for value in asked]
    skips = "C2C_LINK_ERROR_INTR" in names and gpu.c2c is None
    for value, name in zip(asked, names, strict=True):
        if skips and name in SKIPPED_WITHOUT_C2C:
            continue
        _RETURN.__set__(value, _read(branch, gpu, value))
        _TIME.__set__(value, 1)
    return SUCCESS


def _read(branch: int, gpu: Gpu, value: Any) -> int:
    number = _FIELD.__get__(value)
    if number >= pynvml.NVML_FI_MAX or branch < field_branch(number):
        return INVALID_ARGUMENT
    name = _BY_NUMBER.get(number)
    if name is None:
        return NOT_SUPPORTED
    override = gpu.errors.get(f"NVML_FI_DEV_{name}")
    if override is not None:
        return override
    found = FIELDS[name](gpu, _SCOPE.__get__(value))
    if name == "NVLINK_GET_STATE" and found and branch >= TRAFFIC_DISABLED_BRANCH:
        disabled = _SCOPE.__get__(value) in gpu.nvlink.traffic_disabled
        found = pynvml.NVML_NVLINK_STATE_ACTIVE_TRAFFIC_DISABLED if disabled else found
    if found is None:
        return NOT_SUPPORTED
    union = _UNION.__get__(value)
    if name in SIGNED:
        kind = pynvml.NVML_VALUE_TYPE_SIGNED_INT
        union.siVal = found
    elif found >= 1 << 32:
        kind = pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG
        union.ullVal = found
    else:
        kind = pynvml.NVML_VALUE_TYPE_UNSIGNED_INT
        union.uiVal = found
    _KIND.__set__(value, kind)
    return SUCCESS


def _has_link(gpu: Gpu, link: Any) -> int:
    if number_of(link) >= pynvml.NVML_NVLINK_MAX_LINKS:
        return INVALID_ARGUMENT
    return SUCCESS if number_of(link) < gpu.nvlink.count else NOT_SUPPORTED


@device_call("nvmlDeviceGetNvLinkState")
def link_state(_: SimulatedLibrary, gpu: Gpu, link: Any, active: Any) -> int:
    return _has_link(gpu, link) or put(active, link_up(gpu.nvlink, number_of(link)))


@device_call("nvmlDeviceGetNvLinkVersion")
def link_version(_: SimulatedLibrary, gpu: Gpu, link: Any, version: Any) -> int:
    return _has_link(gpu, link) or put(version, gpu.nvlink.version)


def peer_of(gpu: Gpu, link: int) -> int | None:
    """Return the position of the GPU at the other end of a link; None if it is not a GPU."""
    return next((peer for peer, links in gpu.nvlink.peers.items() if link in links), None)


@device_call("nvmlDeviceGetNvLinkRemoteDeviceType")
def remote_type(_: SimulatedLibrary, gpu: Gpu, link: Any, kind: Any) -> int:
    if gpu.nvlink.remote == "switch":
        return _has_link(gpu, link) or put(kind, REMOTE_TYPES["switch"])
    found = peer_of(gpu, number_of(link)) is not None
    return _has_link(gpu, link) or put(kind, REMOTE_TYPES["gpu" if found else "unknown"])


@device_call("nvmlDeviceGetNvLinkRemotePciInfo_v2")
def remote_pci(library: SimulatedLibrary, gpu: Gpu, link: Any, info: Any) -> int:
    absent = _has_link(gpu, link)
    if absent:
        return absent
    if gpu.nvlink.remote == "switch":
        if not gpu.nvlink.switches:
            return NOT_SUPPORTED
        switch = gpu.nvlink.switches[number_of(link) % len(gpu.nvlink.switches)]
        fill_pci(referenced(info), switch, "22a3", "10de1796")
        return SUCCESS
    peer = peer_of(gpu, number_of(link))
    if peer is None:
        return NOT_SUPPORTED
    other = library.node.gpus[peer]
    fill_pci(referenced(info), other.pci, other.pci_view.device, other.pci_view.subsystem)
    return SUCCESS


@device_call("nvmlDeviceGetTopologyCommonAncestor")
def common_ancestor(library: SimulatedLibrary, gpu: Gpu, other: Any, level: Any) -> int:
    handle = library.handle(other)
    peer = library.gpu(handle.uuid) if handle else None
    if peer is None:
        return INVALID_ARGUMENT
    shared = 0
    for mine, theirs in zip(gpu.slot.split("/"), peer.slot.split("/"), strict=True):
        if mine != theirs:
            break
        shared += 1
    levels = (
        pynvml.NVML_TOPOLOGY_SYSTEM,
        pynvml.NVML_TOPOLOGY_NODE,
        pynvml.NVML_TOPOLOGY_HOSTBRIDGE,
        pynvml.NVML_TOPOLOGY_MULTIPLE,
        pynvml.NVML_TOPOLOGY_SINGLE,
    )
    return put(level, levels[shared])


@device_call("nvmlDeviceGetMigMode")
def mig_mode(_: SimulatedLibrary, gpu: Gpu, current: Any, pending: Any) -> int:
    if gpu.mig is None:
        return NOT_SUPPORTED
    put(current, gpu.mig.enabled)
    return put(pending, gpu.mig.pending)


@device_call("nvmlDeviceGetMaxMigDeviceCount")
def mig_device_count(_: SimulatedLibrary, gpu: Gpu, count: Any) -> int:
    return put(count, 7 if gpu.mig else 0)


@device_call("nvmlDeviceGetMigDeviceHandleByIndex")
def mig_device(library: SimulatedLibrary, gpu: Gpu, index: Any, handle: Any) -> int:
    instances = gpu.mig.instances if gpu.mig and gpu.mig.enabled else []
    if number_of(index) >= len(instances):
        return NOT_FOUND
    return library.hand_out(handle, Handle(gpu.uuid, instances[number_of(index)]))


@device_call("nvmlDeviceGetGpuInstanceId", with_handle=True)
def gpu_instance(_: SimulatedLibrary, _gpu: Gpu, handle: Handle, value: Any) -> int:
    return put(value, handle.instance.gi) if handle.instance else INVALID_ARGUMENT


@device_call("nvmlDeviceGetComputeInstanceId", with_handle=True)
def compute_instance(_: SimulatedLibrary, _gpu: Gpu, handle: Handle, value: Any) -> int:
    return put(value, handle.instance.ci) if handle.instance else INVALID_ARGUMENT
