"""The reasons that are not Xids, one row each, and the driver's own recovery action as reasons.

Looked up by the judges in `rules` and by the agent's command line. Rows are data: what stands
here is what is published. Where a row rests on a reading, the number lies in
`rules.catalog.thresholds` under the same name. Never put logic here.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from rules.catalog.reason import (
    BY_HUMAN,
    ON_REBOOT,
    ON_RESET,
    SILENCE_3M,
    Action,
    ClosesOn,
    Level,
    Reason,
    ReasonClass,
    Severity,
    closes_on_state,
)
from rules.catalog.signals import Signal

_NVML: Final = "NVML reference"
_MEMORY: Final = "NVIDIA GPU memory error management"
_XID: Final = "NVIDIA Xid catalog"
_FIELD: Final = "seen in the field"
_OURS: Final = "gpuward"

_D, _C, _G, _L, _R = (
    ReasonClass.DECISIVE,
    ReasonClass.NEEDS_CONTEXT,
    ReasonClass.GAUGE,
    ReasonClass.LATCH,
    ReasonClass.RECORD,
)
_INFO, _DEGRADED, _FATAL = Severity.INFO, Severity.DEGRADED, Severity.FATAL
_REPORT, _CORDON, _DRAIN = Level.REPORT, Level.CORDON, Level.DRAIN


def _state(signal: str, count: int = 3, window: int = 5) -> ClosesOn:
    return closes_on_state(signal, count, window)


LEDGER_SIGNAL: Final = "ledger"
"""What a day without a single event closes."""
HOST_SIGNAL: Final = "host"
"""What the looks at the host's processes, services and modules close."""
_HOST: Final = _state(HOST_SIGNAL, 5, 5)


def _row(
    reason: str,
    klass: ReasonClass,
    severity: Severity,
    level: Level,
    action: Action,
    closes_on: ClosesOn,
    source: str,
    needs: str = "",
) -> Reason:
    return Reason(
        reason=reason,
        klass=klass,
        severity=severity,
        level=level,
        action=action,
        closes_on=closes_on,
        needs=needs,
        source=source,
    )


_ROWS: Final = (
    # the GPU itself
    _row("GPULost", _D, _FATAL, _DRAIN, Action.RESTART_NODE, ON_REBOOT, _XID,
         "polling alone: 2 of 3, and absent from PCI or config space all ones"),
    _row("GPUResetRequired", _D, _FATAL, _DRAIN, Action.RESET_GPU, ON_RESET, _NVML),
    _row("GPUUnavailable", _C, _DEGRADED, _REPORT, Action.INVESTIGATE, ON_RESET, _NVML,
         "the GPU reads as lost or needing a reset, or the driver asks for a recovery action"),
    _row("GPUIRQIssue", _C, _DEGRADED, _REPORT, Action.INVESTIGATE, ON_REBOOT, _NVML),
    _row("GPULostOften", _G, _DEGRADED, _REPORT, Action.INVESTIGATE, _state(LEDGER_SIGNAL, 1, 1),
         _OURS,
         "each time back before it counted as lost"),
    _row("GPUCountMismatch", _G, _DEGRADED, _REPORT, Action.INVESTIGATE,
         _state(Signal.PRESENCE), _OURS, "driver loaded, others answering, no stand-down"),
    # memory
    _row("RowRemapFailure", _L, _FATAL, _DRAIN, Action.REPLACE_NODE, BY_HUMAN, _MEMORY),
    _row("RowRemapPending", _L, _INFO, _REPORT, Action.RESET_GPU, ON_RESET, _MEMORY,
         "becomes Degraded, Cordon after an Xid 48 or 94 or recovery action 4"),
    _row("RowRemapPendingAfterError", _L, _DEGRADED, _CORDON, Action.RESET_GPU, ON_RESET, _MEMORY),
    _row("RowRemapMany", _L, _DEGRADED, _REPORT, Action.RUN_DIAGNOSTICS, BY_HUMAN, _MEMORY),
    _row("EccUncorrectableVolatile", _L, _DEGRADED, _REPORT, Action.RESET_GPU, ON_RESET, _MEMORY),
    _row("EccCorrectedStorm", _G, _DEGRADED, _REPORT, Action.RUN_DIAGNOSTICS,
         _state(Signal.ECC_CORRECTED_VOLATILE, 1, 1), _OURS,
         "far above the node's other GPUs for an hour"),
    _row("RowRemapsCreeping", _G, _DEGRADED, _REPORT, Action.RUN_DIAGNOSTICS,
         _state(LEDGER_SIGNAL, 1, 1), _OURS, "correctable ones, in hours in which the "
                                             "other GPUs had none"),
    _row("EccSramThreshold", _L, _DEGRADED, _CORDON, Action.RUN_DIAGNOSTICS, BY_HUMAN, _MEMORY),
    _row("RetiredPagesPending", _L, _DEGRADED, _REPORT, Action.RESET_GPU, ON_RESET, _MEMORY),
    _row("RetiredPagesMany", _L, _DEGRADED, _REPORT, Action.REPLACE_NODE, BY_HUMAN, _MEMORY),
    _row("MemorySparesExhausted", _L, _DEGRADED, _REPORT, Action.RUN_DIAGNOSTICS, BY_HUMAN,
         _MEMORY),
    _row("ContainedErrorsOften", _G, _DEGRADED, _CORDON, Action.RUN_DIAGNOSTICS, BY_HUMAN, _OURS,
         "more Xids 94 within a day than chance explains"),
    _row("RepairPending", _L, _INFO, _REPORT, Action.RESET_GPU, ON_RESET, _NVML),
    _row("MemoryUnrepairable", _L, _FATAL, _DRAIN, Action.REPLACE_NODE, BY_HUMAN, _NVML),
    # heat and power
    _row("ThermalSlowdown", _G, _DEGRADED, _REPORT, Action.INVESTIGATE,
         _state(Signal.CLOCK_EVENT_REASONS), _NVML),
    _row("TemperatureMargin", _G, _DEGRADED, _REPORT, Action.INVESTIGATE,
         _state(Signal.THERMAL_MARGIN), _NVML),
    _row("MemoryTemperature", _G, _DEGRADED, _REPORT, Action.INVESTIGATE,
         _state(Signal.MEMORY_TEMPERATURE), _NVML),
    _row("PowerBrake", _G, _DEGRADED, _REPORT, Action.CHECK_MECHANICALS,
         _state(Signal.CLOCK_EVENT_REASONS), _NVML),
    _row("HardwareSlowdown", _G, _DEGRADED, _REPORT, Action.INVESTIGATE,
         _state(Signal.CLOCK_EVENT_REASONS), _NVML),
    _row("SlowerThanSiblings", _G, _DEGRADED, _REPORT, Action.RUN_DIAGNOSTICS,
         _state(LEDGER_SIGNAL, 1, 1), _OURS, "under the same load, as warm, and "
                                             "nothing holds it back"),
    # PCIe
    _row("PCIeWidthDegraded", _G, _DEGRADED, _REPORT, Action.CHECK_MECHANICALS,
         _state(Signal.PCIE_WIDTH), _NVML),
    _row("PCIeGenDegraded", _G, _DEGRADED, _REPORT, Action.CHECK_MECHANICALS,
         _state(Signal.PCIE_GENERATION), _NVML, "under load"),
    _row("PCIeReplayRate", _G, _DEGRADED, _REPORT, Action.CHECK_MECHANICALS,
         _state(Signal.PCIE_REPLAYS), "DCGM hardware limits"),
    _row("PCIeReplaysCreeping", _G, _DEGRADED, _REPORT, Action.CHECK_MECHANICALS,
         _state(LEDGER_SIGNAL, 1, 1), _OURS, "in hours in which the node's other "
                                             "GPUs had far fewer"),
    _row("PcieBandwidthLimited", _C, _DEGRADED, _REPORT, Action.CHECK_MECHANICALS, ON_REBOOT,
         "Linux PCI core", "the address is a GPU"),
    _row("PcieAerCorrected", _R, _INFO, _REPORT, Action.NONE, SILENCE_3M, "Linux PCI core"),
    _row("PcieAerUncorrected", _C, _DEGRADED, _REPORT, Action.INVESTIGATE, ON_REBOOT,
         "Linux PCI core", "the address is a GPU or a bridge above one"),
    _row("PcieContainment", _C, _DEGRADED, _REPORT, Action.INVESTIGATE, ON_REBOOT,
         "Linux PCI core", "the address is a bridge above a GPU"),
    _row("DeviceInaccessible", _C, _DEGRADED, _REPORT, Action.RESTART_NODE, ON_REBOOT,
         "Linux PCI core", "the address is a GPU that NVML does not see either"),
    # NVLink and fabric
    _row("NVLinkDown", _G, _DEGRADED, _CORDON, Action.RESET_GPU, _state(Signal.NVLINK_STATES),
         _NVML,
         "it lasts, and the driver was not restarted meanwhile"),
    _row("NVLinkStateUnknown", _G, _DEGRADED, _REPORT, Action.INVESTIGATE,
         _state(Signal.NVLINK_STATES), _OURS),
    _row("NVLinkRecoveryFailed", _L, _DEGRADED, _REPORT, Action.RESET_GPU, ON_RESET, _NVML),
    _row("NVLinkErrorRate", _G, _DEGRADED, _REPORT, Action.RUN_DIAGNOSTICS,
         _state(Signal.NVLINK_CRC_ERRORS), "DCGM hardware limits"),
    _row("NVLinkErrorsOften", _G, _DEGRADED, _REPORT, Action.RUN_DIAGNOSTICS,
         _state(LEDGER_SIGNAL, 1, 1), _OURS, "too rare for NVLinkErrorRate, too many for a day"),
    _row("NVLinkRecoveriesCreeping", _G, _DEGRADED, _REPORT, Action.RUN_DIAGNOSTICS,
         _state(LEDGER_SIGNAL, 1, 1), _OURS, "in hours in which the node's other GPUs had none"),
    _row("NVLinkBitErrors", _G, _DEGRADED, _REPORT, Action.RUN_DIAGNOSTICS,
         _state(Signal.NVLINK_EFFECTIVE_BER), "InfiniBand specification"),
    _row("NVLinkDetectFailed", _C, _DEGRADED, _REPORT, Action.RESET_GPU, ON_RESET, _FIELD,
         "links that should be up are down"),
    _row("C2CLinkDown", _G, _DEGRADED, _REPORT, Action.RUN_DIAGNOSTICS,
         _state(Signal.C2C_STATES, 2, 3),
         _NVML, "another chip-to-chip link of the GPU is up"),
    _row("C2CErrorRate", _G, _DEGRADED, _REPORT, Action.RUN_DIAGNOSTICS, _state(Signal.C2C_ERRORS),
         _OURS),
    _row("FabricStateFailed", _G, _DEGRADED, _CORDON, Action.RESTART_FABRIC_MANAGER,
         _state(Signal.FABRIC_STATE), _NVML, "the boot's grace is over"),
    _row("FabricDegraded", _G, _DEGRADED, _REPORT, Action.INVESTIGATE,
         _state(Signal.FABRIC_HEALTH_SUMMARY), _NVML),
    _row("SXidFatal", _D, _FATAL, _DRAIN, Action.RESTART_NODE, ON_REBOOT,
         "NVIDIA Fabric Manager guide"),
    _row("SXidNonFatal", _R, _INFO, _REPORT, Action.NONE, SILENCE_3M,
         "NVIDIA Fabric Manager guide"),
    _row("SXidUnknown", _C, _DEGRADED, _REPORT, Action.INVESTIGATE, ON_REBOOT,
         "NVSwitch driver", "no word in the line says whether it is fatal"),
    # firmware and driver
    _row("InfoRomCorrupt", _L, _DEGRADED, _REPORT, Action.UPDATE_FIRMWARE, BY_HUMAN, _NVML,
         "a flash of the InfoROM comes before another board"),
    _row("RmInitFailed", _C, _DEGRADED, _REPORT, Action.RESTART_NODE, ON_REBOOT, _FIELD,
         "NVML does not see the GPU either"),
    _row("ProbeFailed", _C, _DEGRADED, _REPORT, Action.RESTART_NODE, ON_REBOOT, _FIELD,
         "fewer GPUs than expected"),
    _row("GspError", _C, _DEGRADED, _REPORT, Action.RESET_GPU, ON_RESET, _FIELD,
         "an Xid 119 or 120, or the recovery action"),
    _row("ResetRequiredAssertion", _C, _DEGRADED, _REPORT, Action.RESET_GPU, ON_RESET, _FIELD,
         "NVML return code 16 or the recovery action names the GPU"),
    _row("ClientVersionMismatch", _R, _INFO, _REPORT, Action.NONE, SILENCE_3M, _FIELD),
    _row("DriverAbsent", _G, _INFO, _REPORT, Action.INVESTIGATE, _state("driver", 1, 1), _NVML),
    _row("DriverMismatch", _G, _INFO, _REPORT, Action.RESTART_NODE, _state("driver", 1, 1), _NVML),
    _row("NoAccess", _G, _INFO, _REPORT, Action.INVESTIGATE, _state("driver", 1, 1), _NVML),
    _row("WaitingForDriver", _R, _INFO, _REPORT, Action.NONE, _state("driver", 1, 1), _OURS),
    # host
    _row("NicPower", _C, _DEGRADED, _REPORT, Action.CHECK_MECHANICALS, ON_REBOOT, _FIELD),
    _row("NicTemperature", _R, _INFO, _REPORT, Action.INVESTIGATE, SILENCE_3M, _FIELD),
    _row("NicModule", _R, _INFO, _REPORT, Action.CHECK_MECHANICALS, SILENCE_3M, _FIELD),
    _row("NicHealth", _C, _DEGRADED, _REPORT, Action.RESTART_NODE, ON_REBOOT, _FIELD),
    _row("NicCommandFailed", _R, _INFO, _REPORT, Action.NONE, SILENCE_3M, _FIELD),
    _row("NetworkPortDown", _G, _DEGRADED, _REPORT, Action.INVESTIGATE, _state("nic"), _OURS),
    _row("NetworkPortErrors", _G, _DEGRADED, _REPORT, Action.INVESTIGATE, _state("nic"), _OURS),
    _row("HungNvidiaTask", _G, _DEGRADED, _REPORT, Action.RESTART_NODE, _HOST, _OURS,
         "the same task in each look"),
    _row("ZombieNvidiaTask", _G, _INFO, _REPORT, Action.NONE, _HOST, _OURS,
         "the same task in each look"),
    _row("FabricManagerStopped", _G, _DEGRADED, _REPORT, Action.RESTART_FABRIC_MANAGER,
         _HOST, "NVIDIA Fabric Manager guide",
         "NVSwitches of this node; it ran in this boot, or the GPUs wait for it"),
    _row("PersistenceModeOff", _G, _INFO, _REPORT, Action.NONE, _HOST, _NVML,
         "no nvidia-persistenced runs"),
    _row("ImexStopped", _G, _INFO, _REPORT, Action.NONE, _HOST, _OURS,
         "a node of an NVLink domain, and it ran in this boot"),
    _row("PeermemMissing", _G, _INFO, _REPORT, Action.NONE, _HOST, _OURS,
         "an InfiniBand adapter and the proprietary driver"),
    _row("NcclSegfault", ReasonClass.SOFTWARE, _INFO, _REPORT, Action.RESTART_APP, SILENCE_3M,
         _FIELD),
    _row("PeermemError", _R, _INFO, _REPORT, Action.NONE, SILENCE_3M, _FIELD),
    # the agent itself
    _row("AllChecksPassing", _R, _INFO, _REPORT, Action.NONE, SILENCE_3M, _OURS),
    _row("AgentStale", _R, _INFO, _REPORT, Action.INVESTIGATE, _state("agent", 1, 1), _OURS),
    _row("ForeignPage", _R, _INFO, _REPORT, Action.INVESTIGATE, _state("dcgm", 1, 1), _OURS),
    _row("SourcesDiffer", _R, _INFO, _REPORT, Action.INVESTIGATE, _state("dcgm", 8, 10), _OURS,
         "NVML and dcgm-exporter both up"),
    _row("SourceDown", _R, _INFO, _REPORT, Action.INVESTIGATE, _state("source", 1, 1), _OURS),
)  # fmt: skip

REASONS: Final = MappingProxyType({row.reason: row for row in _ROWS})
"""Every reason that is not an Xid, by its code."""

_RECOVERY_ROWS: Final = (
    _row("RecoveryActionNone", _R, _INFO, _REPORT, Action.NONE, SILENCE_3M, _NVML),
    _row("RecoveryActionResetGPU", _D, _FATAL, _DRAIN, Action.RESET_GPU, ON_RESET, _NVML),
    _row("RecoveryActionRestartNode", _D, _FATAL, _DRAIN, Action.RESTART_NODE, ON_REBOOT, _NVML),
    _row("RecoveryActionDrainP2P", _D, _FATAL, _DRAIN, Action.DRAIN_P2P, ON_RESET, _NVML,
         "NVLink nodes; read again after the drain"),
    _row("RecoveryActionDrainAndReset", _L, _DEGRADED, _CORDON, Action.RESET_GPU, ON_RESET, _NVML,
         "the reset is for when the GPU is empty"),
    _row("RecoveryActionIMEXDomain", _L, _DEGRADED, _REPORT, Action.RECOVER_IMEX_DOMAIN,
         _state(Signal.RECOVERY_ACTION, 1, 1), _NVML,
         "a finding of the domain; never drains a node"),
    _row("RecoveryActionBusReset", _D, _FATAL, _DRAIN, Action.RESTART_NODE, ON_REBOOT, _NVML),
    _row("RecoveryActionSystemReboot", _D, _FATAL, _DRAIN, Action.RESTART_NODE, ON_REBOOT, _NVML),
    _row("RecoveryActionUnknown", _L, _DEGRADED, _REPORT, Action.INVESTIGATE,
         _state(Signal.RECOVERY_ACTION, 1, 1), _NVML),
)  # fmt: skip

RECOVERY_REASONS: Final = MappingProxyType({row.reason: row for row in _RECOVERY_ROWS})

FIRST_IMEX_BRANCH: Final = 595
"""Recovery action 5 means the IMEX domain from this driver branch on, a bus reset before it."""


def reason_for_recovery_action(value: int, driver_branch: int | None = None) -> Reason:
    """Return what the driver's recovery action `value` (NVML field, event or Xid 154) means.

    `driver_branch` is the driver's major number (580); unknown reads as a current driver.
    """
    if 0 <= value <= 4 or value in (6, 7):
        return _RECOVERY_ROWS[value]
    if value == 5:
        old = driver_branch is not None and driver_branch < FIRST_IMEX_BRANCH
        return RECOVERY_REASONS["RecoveryActionBusReset"] if old else _RECOVERY_ROWS[5]
    return RECOVERY_REASONS["RecoveryActionUnknown"]
