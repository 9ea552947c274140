"""When NVML learned what: the first driver branch of each symbol, field and event that is not old.

An old driver's library simply lacks a newer symbol and does not know a newer field, so a node
description only has to name its driver version. Sources: NVIDIA's NVML change log and header.
"""

from __future__ import annotations

SYMBOLS = {
    "nvmlDeviceGetCurrentClocksEventReasons": 535,
    "nvmlDeviceGetSramEccErrorStatus": 550,
    "nvmlDeviceGetGpuFabricInfoV": 550,
    "nvmlDeviceGetNumaNodeId": 550,
    "nvmlDeviceGetTemperatureV": 565,
    "nvmlDeviceGetMarginTemperature": 570,
    "nvmlSystemEventSetCreate": 575,
    "nvmlSystemEventSetFree": 575,
    "nvmlSystemRegisterEvents": 575,
    "nvmlSystemEventSetWait": 575,
    "nvmlDeviceGetRepairStatus": 580,
    "nvmlDeviceGetUnrepairableMemoryFlag_v1": 590,
    "nvmlDeviceGetBankRemapperStatus_v1": 615,
}

FABRIC_V3_BRANCH = 580
"""From here nvmlDeviceGetGpuFabricInfoV takes the third structure, with a health summary."""

FIELDS = (
    ("NVML_FI_DEV_C2C_LINK_COUNT", 530),
    ("NVML_FI_DEV_PCIE_COUNT_CORRECTABLE_ERRORS", 535),
    ("NVML_FI_DEV_TEMPERATURE_SHUTDOWN_TLIMIT", 550),
    ("NVML_FI_DEV_NVLINK_COUNT_XMIT_PACKETS", 560),
    ("NVML_FI_DEV_RESET_STATUS", 565),
    ("NVML_FI_DEV_C2C_LINK_ERROR_INTR", 570),
    ("NVML_FI_DEV_POWER_SYNC_BALANCING_FREQ", 580),
    ("NVML_FI_DEV_EDPP_MULTIPLIER", 590),
    ("NVML_FI_DEV_REMAPPED_ROWS_COR_INACTIVE", 615),
)
"""Ascending: from this field's number on, the branch that first knew it."""

EVENTS = {
    "mig_config_change": 450,
    "single_bit_storm": 560,
    "dram_retirement": 560,
    "dram_retirement_failure": 560,
    "non_fatal_poison": 560,
    "fatal_poison": 560,
    "gpu_unavailable": 565,
    "recovery_action": 565,
}
