"""The words of a node's description and the numbers of nvml.h that they stand for."""

from __future__ import annotations

CLOCK_EVENTS = {
    "gpu_idle": 0x1,
    "application_clocks": 0x2,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal": 0x20,
    "hw_thermal": 0x40,
    "power_brake": 0x80,
    "display_clock": 0x100,
    "board_limit": 0x200,
    "reliability": 0x400,
}
EVENT_TYPES = {
    "single_bit_ecc": 0x1,
    "double_bit_ecc": 0x2,
    "pstate": 0x4,
    "xid": 0x8,
    "clock": 0x10,
    "power_source": 0x80,
    "mig_config_change": 0x100,
    "single_bit_storm": 0x200,
    "dram_retirement": 0x400,
    "dram_retirement_failure": 0x800,
    "non_fatal_poison": 0x1000,
    "fatal_poison": 0x2000,
    "gpu_unavailable": 0x4000,
    "recovery_action": 0x8000,
}
SYSTEM_EVENT_TYPES = {"driver_unbind": 0x1, "driver_bind": 0x2}
REMOTE_TYPES = {"gpu": 0x00, "npu": 0x01, "switch": 0x02, "unknown": 0xFF}
