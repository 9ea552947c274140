"""Names in node descriptions and their numbers in nvml.h, and the first driver branch of symbols,
fields and events."""

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
OPERATIONAL = "operational"
"""The type of a GPU Operational Event in a description; it is no bit of an event set."""
CLOCK_EVENT_BRANCHES = {"board_limit": 615, "reliability": 615}
"""The first driver branch that reports these clock event reasons."""
TRAFFIC_DISABLED_BRANCH = 615
"""From this branch an NVLink that is up without traffic has a state of its own."""
FABRIC_MASK_BITS = ((615, 16), (595, 14), (0, 12))
"""How many bits of the fabric health mask each branch and later ones set, newest first."""
REMOTE_TYPES = {"gpu": 0x00, "npu": 0x01, "switch": 0x02, "unknown": 0xFF}


SYMBOLS = {
    "nvmlDeviceGetCurrentClocksEventReasons": 535,
    "nvmlDeviceGetSramEccErrorStatus": 550,
    "nvmlDeviceGetGpuFabricInfoV": 550,
    "nvmlDeviceGetNumaNodeId": 550,
    "nvmlDeviceGetTemperatureV": 565,
    "nvmlDeviceGetMarginTemperature": 570,
    "nvmlDeviceGetRepairStatus": 580,
    "nvmlDeviceGetUnrepairableMemoryFlag_v1": 590,
    "nvmlDeviceGetGpuFabricInfo_v4": 615,
    "nvmlEventSetRegisterGpuOperationalEvents_v1": 615,
    "nvmlEventSetWait_v3": 615,
    "nvmlEventSetGetContextCount_v1": 615,
    "nvmlEventSetGetContextInfo_v1": 615,
    "nvmlEventSetGetGpuOperationalEventContextLegacyXid_v1": 615,
}

FABRIC_V3_BRANCH = 580
"""From this branch nvmlDeviceGetGpuFabricInfoV has a third structure with a health summary."""

FIELDS = (
    ("NVML_FI_DEV_C2C_LINK_COUNT", 530),
    ("NVML_FI_DEV_PCIE_COUNT_CORRECTABLE_ERRORS", 535),
    ("NVML_FI_DEV_TEMPERATURE_SHUTDOWN_TLIMIT", 550),
    ("NVML_FI_DEV_NVLINK_COUNT_XMIT_PACKETS", 560),
    ("NVML_FI_DEV_RESET_STATUS", 565),
    ("NVML_FI_DEV_C2C_LINK_ERROR_INTR", 570),
    ("NVML_FI_DEV_POWER_SYNC_BALANCING_FREQ", 580),
    ("NVML_FI_DEV_EDPP_MULTIPLIER", 590),
    ("NVML_FI_DEV_NVLINK_COUNT_RAW_ERRORS_LANE0", 595),
    ("NVML_FI_DEV_NVLINK_GET_DATA_RATE", 610),
    ("NVML_FI_DEV_ACTIVE_BANK_REMAPPINGS", 615),
)
"""First field number and first driver branch that has it, ascending."""

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
