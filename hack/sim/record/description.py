"""Convert the readings of a node to a description for the simulated driver, and anonymise it.

Pure functions, called by the recorder. A value that the GPU does not have becomes null or is
omitted, so that the simulator answers "not supported" too.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from agent.nvml.inventory import Value
from hack.sim.driver.numbers import CLOCK_EVENTS, EVENT_TYPES
from hack.sim.record.reading import GpuRead, NodeRead
from rules.catalog.signals import Signal, bit_error_ratio
from rules.judge.observation import HostSeen, PciFunction

TEMPERATURES = {
    "gpu": Signal.TEMPERATURE,
    "memory": Signal.MEMORY_TEMPERATURE,
    "margin": Signal.THERMAL_MARGIN,
    "slowdown": Signal.SLOWDOWN_TEMPERATURE,
    "shutdown": Signal.SHUTDOWN_TEMPERATURE,
    "memory_max": Signal.MEMORY_MAX_TEMPERATURE,
    "slowdown_margin": Signal.SLOWDOWN_MARGIN,
}
SLOWDOWN_TIMES = {
    "hw_thermal": Signal.HW_THERMAL_SLOWDOWN_TIME,
    "sw_thermal": Signal.SW_THERMAL_SLOWDOWN_TIME,
    "power_brake": Signal.POWER_BRAKE_TIME,
}
PARTS: dict[str, dict[str, Signal]] = {
    "remap": {
        "correctable": Signal.REMAPPED_ROWS_CORRECTABLE,
        "uncorrectable": Signal.REMAPPED_ROWS_UNCORRECTABLE,
        "pending": Signal.REMAP_PENDING,
        "failure": Signal.REMAP_FAILURE,
        "histogram": Signal.REMAP_HISTOGRAM,
    },
    "banks": {
        "active": Signal.BANK_REMAPS_ACTIVE,
        "pending": Signal.BANK_REMAP_PENDING,
        "groups_exhausted": Signal.BANK_GROUPS_EXHAUSTED,
    },
    "retired_pages": {
        "single_bit": Signal.RETIRED_PAGES_SINGLE_BIT,
        "double_bit": Signal.RETIRED_PAGES_DOUBLE_BIT,
        "pending": Signal.RETIREMENT_PENDING,
    },
    "repair": {
        "channel_pending": Signal.CHANNEL_REPAIR_PENDING,
        "tpc_pending": Signal.TPC_REPAIR_PENDING,
        "unrepairable_memory": Signal.UNREPAIRABLE_MEMORY,
    },
    "pcie": {
        "generation": Signal.PCIE_GENERATION,
        "max_generation": Signal.PCIE_GENERATION_MAX,
        "width": Signal.PCIE_WIDTH,
        "max_width": Signal.PCIE_WIDTH_MAX,
        "replays": Signal.PCIE_REPLAYS,
        "correctable": Signal.PCIE_CORRECTABLE_ERRORS,
        "non_fatal": Signal.PCIE_NON_FATAL_ERRORS,
        "fatal": Signal.PCIE_FATAL_ERRORS,
    },
    "c2c": {"states": Signal.C2C_STATES, "errors": Signal.C2C_ERRORS},
}
"""Optional parts of the description and the signals that they come from."""
FLAGS = frozenset(("pending", "failure", "channel_pending", "tpc_pending", "unrepairable_memory"))
LINK_COUNTERS = {
    "crc": Signal.NVLINK_CRC_ERRORS,
    "crc_data": Signal.NVLINK_CRC_DATA_ERRORS,
    "replays": Signal.NVLINK_REPLAYS,
    "recoveries": Signal.NVLINK_RECOVERIES,
    "receive_errors": Signal.NVLINK_RECEIVE_ERRORS,
    "malformed": Signal.NVLINK_MALFORMED_PACKETS,
    "dropped": Signal.NVLINK_DROPPED_PACKETS,
    "remote_errors": Signal.NVLINK_REMOTE_ERRORS,
    "integrity_errors": Signal.NVLINK_INTEGRITY_ERRORS,
    "recoveries_failed": Signal.NVLINK_RECOVERIES_FAILED,
    "symbol_errors": Signal.NVLINK_SYMBOL_ERRORS,
    "effective_errors": Signal.NVLINK_EFFECTIVE_ERRORS,
    "retransmitted_blocks": Signal.NVLINK_RETRANSMITTED_BLOCKS,
}
LINK_RATIOS = {
    "effective_ber": Signal.NVLINK_EFFECTIVE_BER,
    "symbol_ber": Signal.NVLINK_SYMBOL_BER,
    "raw_ber": Signal.NVLINK_RAW_BER,
}
NO_CLUSTER = "00000000-0000-0000-0000-000000000000"
SHARED_LEVELS = {0: 4, 10: 4, 20: 3, 30: 2, 40: 1, 50: 0}
"""How many of the four steps of a slot two GPUs share, by NVML's topology level."""


def describe(node: NodeRead, functions: Sequence[PciFunction], host: HostSeen) -> dict[str, Any]:
    """Return the description; `functions` and `host` are read without NVML."""
    seen = {function.address: function for function in functions}
    document: dict[str, Any] = {
        "driver": {"version": node.driver, "cuda": node.cuda, "nvml": node.nvml},
        "virtualization": node.virtualization,
        "host": _host(host),
        "gpus": [
            _gpu(node, row, seen.get(read.gpu.device.pci)) for row, read in enumerate(node.gpus)
        ],
    }
    if node.excluded:
        document["excluded"] = list(node.excluded)
    return document


def _host(host: HostSeen) -> dict[str, Any]:
    """Return services and ports; `running` is null if processes are not visible."""
    found: dict[str, Any] = {
        "running": None,
        "infiniband_ports": len(host.ports),
    }
    if host.services:
        found["running"] = [str(service) for service, runs in host.services.items() if runs]
    return found


def _gpu(node: NodeRead, row: int, function: PciFunction | None) -> dict[str, Any]:
    read = node.gpus[row]
    device, values = read.gpu.device, read.values
    found: dict[str, Any] = {
        "uuid": device.uuid,
        "pci": device.pci,
        "serial": device.serial,
        "name": device.product,
        "board": device.board,
        "vbios": device.vbios,
        "architecture": device.architecture or 0,
        "compute_capability": read.compute_capability,
        "module_id": device.module_id,
        "minor": device.minor or 0,
        "numa": device.numa or 0,
        "slot": _slot(node, row),
        "temperature": {
            **{key: _number(values, signal) for key, signal in TEMPERATURES.items()},
            "gpu_max": read.gpu_max,
        },
        "power_watts": float(_number(values, Signal.POWER) or 0),
        "power_limit_watts": _number(values, Signal.POWER_LIMIT),
        "power_limit_default_watts": _number(values, Signal.POWER_LIMIT_DEFAULT),
        "clocks": read.clocks,
        "clock_events": _names(
            int(_number(values, Signal.CLOCK_EVENT_REASONS) or 0), CLOCK_EVENTS
        ),
        "clock_event_nanoseconds": {
            key: int(_number(values, signal) or 0) for key, signal in SLOWDOWN_TIMES.items()
        },
        "performance_state": int(_number(values, Signal.PERFORMANCE_STATE) or 0),
        "utilization_percent": int(_number(values, Signal.UTILIZATION) or 0),
        "ecc": _ecc(values),
        "nvlink": _nvlink(node, row),
        "fabric": _fabric(values),
        "inforom": {
            "valid": _number(values, Signal.INFOROM_VALID) != 0,
            "image": _text(values.get(Signal.INFOROM_IMAGE)),
        },
        "persistence": bool(_number(values, Signal.PERSISTENCE_MODE)),
        "recovery_action": int(_number(values, Signal.RECOVERY_ACTION) or 0),
        "mig": _mig(read),
        "events_supported": _names(device.events, EVENT_TYPES),
        "pci_view": _pci_view(read, function),
        **{part: _part(values, signals) for part, signals in PARTS.items()},
    }
    found["temperature"]["gpu"] = found["temperature"]["gpu"] or 0
    found["pcie"] = found["pcie"] or {}
    if values.get(Signal.PRESENCE) == "reset_required":
        found["reset_required"] = True
    return found


def _number(values: Mapping[Signal, Value], signal: Signal) -> float | int | None:
    value = values.get(signal)
    return value if isinstance(value, int | float) else None


def _text(value: Value | None) -> str:
    return value if isinstance(value, str) else ""


def _names(mask: int, names: Mapping[str, int]) -> list[str]:
    return [name for name, bit in names.items() if mask & bit]


def _part(values: Mapping[Signal, Value], signals: Mapping[str, Signal]) -> dict[str, Any] | None:
    """Return the values of an optional part; None without values."""
    found: dict[str, Any] = {}
    for key, signal in signals.items():
        value = values.get(signal)
        if isinstance(value, tuple):
            found[key] = [item or 0 for item in value]
        elif isinstance(value, int | float):
            found[key] = bool(value) if key in FLAGS else int(value)
    return found or None


def _ecc(values: Mapping[Signal, Value]) -> dict[str, Any] | None:
    enabled = _number(values, Signal.ECC_MODE)
    if enabled is None:
        return None
    return {
        "enabled": bool(enabled),
        "pending": bool(_number(values, Signal.ECC_MODE_PENDING)),
        "volatile": _counts(values, "volatile"),
        "aggregate": _counts(values, "aggregate"),
        "sram_threshold_exceeded": bool(_number(values, Signal.SRAM_THRESHOLD_EXCEEDED)),
    }


def _counts(values: Mapping[Signal, Value], scope: str) -> dict[str, int]:
    """Return errors by place; without SRAM counters they are the errors outside the DRAM."""
    counts = {}
    for kind in ("corrected", "uncorrected"):
        total = _number(values, Signal(f"ecc_{kind}_{scope}")) or 0
        dram = _number(values, Signal(f"dram_{kind}_{scope}")) or 0
        sram = _number(values, Signal(f"sram_{kind}_{scope}"))
        counts[f"dram_{kind}"] = int(dram)
        counts[f"sram_{kind}"] = int(max(0, total - dram) if sram is None else sram)
    return counts


def _nvlink(node: NodeRead, row: int) -> dict[str, Any]:
    """Return the links; the first link has the counters of the entire GPU."""
    read = node.gpus[row]
    found: dict[str, Any] = {"count": read.gpu.device.links}
    if not read.gpu.device.links:
        return found
    if read.link_version is not None:
        found["version"] = read.link_version
    if "switch" in node.topology.remotes[row]:
        found["remote"] = "switch"
        found["switches"] = list(dict.fromkeys(filter(None, read.remotes)))
    else:
        found["remote"] = "peers"
        found["peers"] = _peers(node, read)
    states = read.values.get(Signal.NVLINK_STATES)
    if isinstance(states, tuple):
        found["down"] = [link for link, state in enumerate(states) if state == 0]
        if 3 in states:
            found["traffic_disabled"] = [link for link, each in enumerate(states) if each == 3]
    for key, signal in LINK_COUNTERS.items():
        count = _number(read.values, signal)
        if count:
            found[key] = {0: int(count)}
    for key, signal in LINK_RATIOS.items():
        ratio = _number(read.values, signal)
        packed = next((n for n in range(1 << 12) if bit_error_ratio(n) == ratio), 0)
        if packed:
            found[key] = {0: packed}
    return found


def _peers(node: NodeRead, read: GpuRead) -> dict[int, list[int]]:
    places = {other.gpu.device.pci: row for row, other in enumerate(node.gpus)}
    peers: dict[int, list[int]] = {}
    for link, address in enumerate(read.remotes):
        if address in places:
            peers.setdefault(places[address], []).append(link)
    return peers


def _fabric(values: Mapping[Signal, Value]) -> dict[str, Any] | None:
    state = _number(values, Signal.FABRIC_STATE)
    if not state:
        return None
    summary = _number(values, Signal.FABRIC_HEALTH_SUMMARY)
    return {
        "state": int(state),
        "status": int(_number(values, Signal.FABRIC_STATUS) or 0),
        "clique": int(_number(values, Signal.FABRIC_CLIQUE) or 0),
        "cluster": _text(values.get(Signal.FABRIC_CLUSTER)) or NO_CLUSTER,
        "health_mask": int(_number(values, Signal.FABRIC_HEALTH_MASK) or 0),
        "health_summary": int(summary or 0),
    }


def _mig(read: GpuRead) -> dict[str, Any] | None:
    on = read.gpu.device.mig_mode
    if on is None:
        return None
    return {"enabled": on, "pending": read.mig_pending, "instances": read.instances}


def _pci_view(read: GpuRead, function: PciFunction | None) -> dict[str, Any]:
    view: dict[str, Any] = {"device": read.device, "subsystem": read.subsystem}
    if function is not None:
        view["device_class"] = f"0x{function.device_class << 8:06x}"
        view["driver"] = function.driver or None
        view["upstream"] = list(function.upstream)
        if function.config_space_ok is False:
            view["view"] = "all_ones"
    return view


def _slot(node: NodeRead, row: int) -> str:
    """Return four steps from socket to switch, each named after its first GPU."""
    shared = [SHARED_LEVELS.get(-1 if d is None else d, 0) for d in node.distances[row]]
    return "/".join(
        str(min((other for other, steps in enumerate(shared) if steps > depth), default=row))
        for depth in range(4)
    )


def anonymised(document: dict[str, Any]) -> dict[str, Any]:
    """Return the description with invented identities."""
    gpus = []
    for number, gpu in enumerate(document["gpus"]):
        changed = {**gpu, "uuid": f"GPU-{number:08x}-0000-4000-8000-{number:012x}"}
        if gpu["serial"]:
            changed["serial"] = f"{number:013d}"
        fabric, mig = gpu.get("fabric"), gpu.get("mig")
        if fabric and fabric["cluster"] != NO_CLUSTER:
            changed["fabric"] = {**fabric, "cluster": f"{1:08x}-0000-4000-8000-{1:012x}"}
        if mig:
            instances = [
                {**instance, "uuid": f"MIG-{number:08x}-{place:04x}-4000-8000-{0:012x}"}
                for place, instance in enumerate(mig["instances"])
            ]
            changed["mig"] = {**mig, "instances": instances}
        gpus.append(changed)
    return {**document, "gpus": gpus}
