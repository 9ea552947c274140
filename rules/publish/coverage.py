"""Which checks had data: what a Healthy rests on, and what it says nothing about.

Called by `verdict`. A check that had no data did not pass: it was not made.
"""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType
from typing import Final

from rules.catalog.signals import Signal
from rules.judge.observation import SourceName, SourceState
from rules.judge.state import GpuView, NodeState


class Check(StrEnum):
    """The groups of checks, as sentences name them."""

    KERNEL_LOG = "kernel log"
    PRESENCE = "presence"
    ACTION = "recovery action"
    MEMORY = "memory"
    HEAT = "heat"
    PCIE = "PCIe"
    NVLINK = "NVLink"
    FABRIC = "fabric"


_SIGNALS: Final = MappingProxyType(
    {
        Check.PRESENCE: frozenset({Signal.PRESENCE}),
        Check.ACTION: frozenset({Signal.RECOVERY_ACTION}),
        Check.MEMORY: frozenset(
            signal
            for signal in Signal
            if signal.startswith(("ecc_unc", "dram_", "sram_", "remap", "bank_", "retire"))
        )
        | {Signal.UNREPAIRABLE_MEMORY, Signal.CHANNEL_REPAIR_PENDING},
        Check.HEAT: frozenset(
            {
                Signal.TEMPERATURE,
                Signal.MEMORY_TEMPERATURE,
                Signal.THERMAL_MARGIN,
                Signal.SLOWDOWN_MARGIN,
                Signal.CLOCK_EVENT_REASONS,
                Signal.HW_THERMAL_SLOWDOWN_TIME,
                Signal.SW_THERMAL_SLOWDOWN_TIME,
            }
        ),
        Check.PCIE: frozenset(signal for signal in Signal if signal.startswith("pcie_")),
        Check.NVLINK: frozenset(signal for signal in Signal if signal.startswith("nvlink_")),
        Check.FABRIC: frozenset({Signal.FABRIC_STATE, Signal.FABRIC_HEALTH_SUMMARY}),
    }
)
_EVERYWHERE: Final = (Check.KERNEL_LOG, Check.ACTION, Check.MEMORY, Check.HEAT)
"""What every data centre GPU has; others have no NVLink, no fabric, or hide PCIe from a guest."""

_TELLING: Final = (Check.PRESENCE, Check.ACTION, Check.MEMORY)
"""One of these at least must have been seen: heat alone says nothing of a GPU that fails."""


def covered(state: NodeState) -> tuple[Check, ...]:
    """The checks that had data: the log, and what was read on every GPU that is there."""
    views = [view for view in state.gpus.values() if view.enumerated]
    log = state.source(SourceName.KERNEL_LOG) is SourceState.UP
    return tuple(
        check
        for check in Check
        if (log if check is Check.KERNEL_LOG else views and all(_has(v, check) for v in views))
    )


def missed(checks: tuple[Check, ...]) -> tuple[Check, ...]:
    """Those that any GPU should give data for and that had none."""
    return tuple(check for check in _EVERYWHERE if check not in checks)


def tells_too_little(state: NodeState) -> bool:
    """Whether a page lists a GPU and nothing on it would show a fault.

    NVML always says at least whether a GPU is present.
    """
    if state.view_source is not SourceName.DCGM or SourceName.DCGM in state.restored_sources:
        return False
    return any(
        view.enumerated and not any(_has(view, check) for check in _TELLING)
        for view in state.gpus.values()
    )


def _has(view: GpuView, check: Check) -> bool:
    return any(view.values.get(signal) is not None for signal in _SIGNALS[check])
