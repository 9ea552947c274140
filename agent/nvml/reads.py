"""NVML calls that are not fields, and the topology of the GPUs. Used by the child.

A read takes the device and returns {signal: value}. It raises NVMLError, which the caller turns
into a code. All calls are read-only: nothing is set, reset or locked, and no processes are listed.
The topology is the hardware's design: it includes links that are down, so a fault does not change
it.
"""

import time
from collections.abc import Callable
from ctypes import byref
from typing import Any

import pynvml as nvml

from agent.nvml import inventory
from agent.nvml.inventory import Absent, Caller, Failed, Gpu, Value
from rules.catalog.signals import Signal
from rules.judge.observation import TopologySeen
from rules.text import pci_address

Values = dict[Signal, Value]
Read = Callable[[Any, int], Values]
"""From the device's handle and its number of NVLinks to its readings."""


HOPPER = 9
FABRIC_V3_BRANCH = 580
FABRIC_V4_BRANCH = 615
_OTHER_VERSION = (
    nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    nvml.NVML_ERROR_NOT_SUPPORTED,
    nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
)
"""Codes of a library or a GPU that has another version of a call or structure only."""


def _bound(name: str) -> Any:
    """Return an attribute of pynvml. Raises NVMLError as for an older driver if it is missing."""
    found = getattr(nvml, name, None)
    if found is None:
        raise nvml.NVMLError(nvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    return found


def one_value(signal: Signal, symbol: str) -> Read:
    """Return the read for an NVML function that takes the device and returns one value."""
    return lambda handle, _: {signal: _bound(symbol)(handle)}


def _temperature(handle: Any, _: int) -> Values:
    return {Signal.TEMPERATURE: nvml.nvmlDeviceGetTemperatureV(handle, nvml.NVML_TEMPERATURE_GPU)}


def _temperature_old(handle: Any, _: int) -> Values:
    return {Signal.TEMPERATURE: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)}


def _power_old(handle: Any, _: int) -> Values:
    return {Signal.POWER: nvml.nvmlDeviceGetPowerUsage(handle) / 1000}


def _sm_clock(handle: Any, _: int) -> Values:
    return {Signal.SM_CLOCK: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)}


def _sram(handle: Any, _: int) -> Values:
    status = nvml.c_nvmlEccSramErrorStatus_v1_t()
    nvml.nvmlDeviceGetSramEccErrorStatus(handle, byref(status))
    return {
        Signal.SRAM_CORRECTED_VOLATILE: status.volatileCor,
        Signal.SRAM_UNCORRECTED_VOLATILE: status.volatileUncParity + status.volatileUncSecDed,
        Signal.SRAM_CORRECTED_AGGREGATE: status.aggregateCor,
        Signal.SRAM_UNCORRECTED_AGGREGATE: status.aggregateUncParity + status.aggregateUncSecDed,
        Signal.SRAM_THRESHOLD_EXCEEDED: status.bThresholdExceeded,
    }


def _remap_histogram(handle: Any, _: int) -> Values:
    banks = nvml.nvmlDeviceGetRowRemapperHistogram(handle)
    return {Signal.REMAP_HISTOGRAM: (banks.max, banks.high, banks.partial, banks.low, banks.none)}


def _repair(handle: Any, _: int) -> Values:
    channel, tpc = _bound("nvmlDeviceGetRepairStatus")(handle)
    return {Signal.CHANNEL_REPAIR_PENDING: channel, Signal.TPC_REPAIR_PENDING: tpc}


def _utilization(handle: Any, _: int) -> Values:
    return {Signal.UTILIZATION: nvml.nvmlDeviceGetUtilizationRates(handle).gpu}


def _mig_mode(handle: Any, _: int) -> Values:
    return {Signal.MIG_MODE: nvml.nvmlDeviceGetMigMode(handle)[0]}


def _link_states(handle: Any, links: int) -> Values:
    return {
        Signal.NVLINK_STATES: tuple(
            nvml.nvmlDeviceGetNvLinkState(handle, link) for link in range(links)
        )
    }


_code_of = nvml.c_nvmlFieldValue_t.nvmlReturn.__get__
_kind_of = nvml.c_nvmlFieldValue_t.valueType.__get__
_time_of = nvml.c_nvmlFieldValue_t.timestamp.__get__


def is_unanswered(answer: Any) -> bool:
    """Whether the driver reported success and wrote nothing into this c_nvmlFieldValue_t."""
    return not (_code_of(answer) or _time_of(answer) or _kind_of(answer))


def _c2c_states(handle: Any, _: int) -> Values:
    (count,) = nvml.nvmlDeviceGetFieldValues(handle, [nvml.NVML_FI_DEV_C2C_LINK_COUNT])
    if count.nvmlReturn:
        return {Signal.C2C_STATES: Absent(count.nvmlReturn)}
    asked = [(nvml.NVML_FI_DEV_C2C_LINK_GET_STATUS, link) for link in range(count.value.uiVal)]
    answers = nvml.nvmlDeviceGetFieldValues(handle, asked) if asked else ()
    return {
        Signal.C2C_STATES: tuple(
            None if a.nvmlReturn or is_unanswered(a) else a.value.uiVal for a in answers
        )
    }


def _uuid(raw: bytes) -> str:
    digits = raw.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _fabric(handle: Any, info: Any) -> Values:
    nvml.nvmlDeviceGetGpuFabricInfoV(handle, byref(info))
    return {
        Signal.FABRIC_STATE: info.state,
        Signal.FABRIC_STATUS: info.status,
        Signal.FABRIC_CLIQUE: info.cliqueId,
        Signal.FABRIC_CLUSTER: _uuid(bytes(info.clusterUuid)),
        Signal.FABRIC_HEALTH_MASK: info.healthMask,
    }


def _fabric_v2(handle: Any, _: int) -> Values:
    return _fabric(handle, nvml.c_nvmlGpuFabricInfo_v2_t())


def _fabric_v3(handle: Any, _: int) -> Values:
    info = _bound("c_nvmlGpuFabricInfo_v3_t")()
    return {**_fabric(handle, info), Signal.FABRIC_HEALTH_SUMMARY: info.healthSummary}


def _fabric_v4(handle: Any, links: int) -> Values:
    """Return the fabric by the newest structure that the library and the GPU have."""
    try:
        info = _bound("c_nvmlGpuFabricInfo_v4_t")()
        _bound("nvmlDeviceGetGpuFabricInfo_v4")(handle, byref(info))
    except nvml.NVMLError as error:
        if error.value not in _OTHER_VERSION:
            raise
        try:
            return _fabric_v3(handle, links)
        except nvml.NVMLError as older:
            if older.value not in _OTHER_VERSION:
                raise
            return _fabric_v2(handle, links)
    pointers = nvml.NVML_GPU_FABRIC_CLIQUE_TYPE_UNICAST_POINTER
    known = info.cliques[: min(info.numCliques, len(info.cliques))]
    cliques = [clique.id for clique in known if clique.type == pointers]
    return {
        Signal.FABRIC_STATE: info.state,
        Signal.FABRIC_STATUS: info.status,
        # The clique of earlier versions. Source: NVML reference, nvmlGpuFabricInfo_v4_t.
        Signal.FABRIC_CLIQUE: cliques[0] if cliques else Absent(nvml.NVML_ERROR_NO_DATA),
        Signal.FABRIC_CLUSTER: _uuid(bytes(info.clusterUuid)),
        Signal.FABRIC_HEALTH_MASK: info.healthMask,
        Signal.FABRIC_HEALTH_SUMMARY: info.healthSummary,
    }


def _thresholds(handle: Any, _: int) -> Values:
    asked = {
        Signal.SLOWDOWN_TEMPERATURE: nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN,
        Signal.SHUTDOWN_TEMPERATURE: nvml.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN,
        Signal.MEMORY_MAX_TEMPERATURE: nvml.NVML_TEMPERATURE_THRESHOLD_MEM_MAX,
    }
    values: Values = {}
    for signal, threshold in asked.items():
        try:
            values[signal] = nvml.nvmlDeviceGetTemperatureThreshold(handle, threshold)
        except nvml.NVMLError_NotSupported as error:
            values[signal] = Absent(error.value)
    return values


def _inforom_valid(handle: Any, _: int) -> Values:
    try:
        nvml.nvmlDeviceValidateInforom(handle)
    except nvml.NVMLError_CorruptedInforom:
        return {Signal.INFOROM_VALID: 0}
    return {Signal.INFOROM_VALID: 1}


def _inforom_image(handle: Any, _: int) -> Values:
    return {Signal.INFOROM_IMAGE: inventory.text(nvml.nvmlDeviceGetInforomImageVersion, handle)}


READS: dict[str, Read] = {
    "temperature": _temperature,
    "temperature_old": _temperature_old,
    "power_old": _power_old,
    "sram": _sram,
    "remap_histogram": _remap_histogram,
    "repair": _repair,
    "utilization": _utilization,
    "sm_clock": _sm_clock,
    "mig_mode": _mig_mode,
    "link_states": _link_states,
    "c2c_states": _c2c_states,
    "fabric_v2": _fabric_v2,
    "fabric_v3": _fabric_v3,
    "fabric_v4": _fabric_v4,
    "thresholds": _thresholds,
    "inforom_valid": _inforom_valid,
    "inforom_image": _inforom_image,
}
"""Reads with more arguments or several values; all others use `one_value`."""


DISTANCES = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
"""nvmlGpuTopologyLevel_t, by its values."""
REMOTES = {0: "gpu", 1: "npu", 2: "switch"}
NO_CLUSTER = "00000000-0000-0000-0000-000000000000"


def topology(call: Caller, gpus: list[Gpu], branch: int) -> TopologySeen:
    """Return how the GPUs are connected, with links that are up or down."""
    by_pci = {gpu.device.pci: gpu.device.index for gpu in gpus if gpu.device.pci}
    remote: list[tuple[str, ...]] = []
    peers: list[dict[int, int]] = []
    for gpu in gpus:
        kinds, joined = _remotes_of(call, gpu, by_pci)
        remote.append(kinds)
        peers.append(joined)
    size = range(len(gpus))
    links = tuple(
        tuple("X" if i == j else _join(call, gpus, i, j, remote, peers) for j in size)
        for i in size
    )
    fabric = [_fabric_of(call, gpu, branch) for gpu in gpus]
    return TopologySeen(
        at=time.time(),
        gpus=tuple(gpu.device.uuid or gpu.device.pci for gpu in gpus),
        links=links,
        remotes=tuple(remote),
        clusters=tuple(cluster for cluster, _ in fabric),
        cliques=tuple(clique for _, clique in fabric),
        numa=tuple(gpu.device.numa for gpu in gpus),
    )


def _remotes_of(
    call: Caller, gpu: Gpu, by_pci: dict[str, int]
) -> tuple[tuple[str, ...], dict[int, int]]:
    kinds: list[str] = []
    joined: dict[int, int] = {}
    for link in range(gpu.device.links if gpu.handle is not None else 0):
        kind = call.number(
            "nvmlDeviceGetNvLinkRemoteDeviceType",
            nvml.nvmlDeviceGetNvLinkRemoteDeviceType,
            gpu.handle,
            link,
            gpu=gpu.key,
        )
        kinds.append("" if kind is None else REMOTES.get(kind, "unknown"))
        if kinds[-1] == "gpu":
            peer = by_pci.get(_remote_pci(call, gpu, link))
            if peer is not None:
                joined[peer] = joined.get(peer, 0) + 1
    if "switch" in kinds:
        # A link that is down has no remote type. If one link goes to a switch, all do.
        kinds = ["switch"] * len(kinds)
    return tuple(kinds), joined


def _remote_pci(call: Caller, gpu: Gpu, link: int) -> str:
    return pci_address.full_address(
        call.text(
            "nvmlDeviceGetNvLinkRemotePciInfo_v2",
            lambda: nvml.nvmlDeviceGetNvLinkRemotePciInfo(gpu.handle, link).busId,
            gpu=gpu.key,
        )
    )


def _join(
    call: Caller,
    gpus: list[Gpu],
    i: int,
    j: int,
    remote: list[tuple[str, ...]],
    peers: list[dict[int, int]],
) -> str:
    through_switch = min(remote[i].count("switch"), remote[j].count("switch"))
    count = through_switch or peers[i].get(j, 0) or peers[j].get(i, 0)
    if count:
        return f"NV{count}"
    if gpus[i].handle is None or gpus[j].handle is None:
        return ""
    level = call.number(
        "nvmlDeviceGetTopologyCommonAncestor",
        nvml.nvmlDeviceGetTopologyCommonAncestor,
        gpus[i].handle,
        gpus[j].handle,
        gpu=gpus[i].key,
    )
    return "" if level is None else DISTANCES.get(level, "")


def _fabric_of(call: Caller, gpu: Gpu, branch: int) -> tuple[str, int | None]:
    """Return the NVLink cluster and clique; empty without a fabric, no cluster on one node."""
    if gpu.handle is None or (gpu.device.architecture or 0) < HOPPER:
        return "", None
    symbol, version = "nvmlDeviceGetGpuFabricInfoV", "fabric_v2"
    if branch >= FABRIC_V4_BRANCH:
        symbol, version = "nvmlDeviceGetGpuFabricInfo_v4", "fabric_v4"
    elif branch >= FABRIC_V3_BRANCH:
        version = "fabric_v3"
    values = call(symbol, READS[version], gpu.handle, 0, gpu=gpu.key)
    if isinstance(values, Failed) or values[Signal.FABRIC_STATE] == 0:
        return "", None
    cluster, clique = values[Signal.FABRIC_CLUSTER], values[Signal.FABRIC_CLIQUE]
    return (
        cluster if isinstance(cluster, str) and cluster != NO_CLUSTER else "",
        clique if isinstance(clique, int) else None,
    )
