"""Assess the health of a node and of each of its GPUs: health, one reason, one message.

The loss of a data source makes health Unknown, never Unhealthy. A check without data counts as
neither passed nor failed.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

import msgspec

from rules.catalog.reason import Severity, strength
from rules.catalog.signals import Signal
from rules.catalog.thresholds import DEFAULT_RULES, Thresholds
from rules.judge import expected_gpus, messages, present
from rules.judge.facts import sources
from rules.judge.incident import Incident, IncidentPhase
from rules.judge.observation import SourceName, SourceState
from rules.judge.present import Present
from rules.judge.state import START_GRACE_S, GpuView, NodeState
from rules.text import printable


class Check(StrEnum):
    """The groups of checks, with their names in messages."""

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
"""Checks that every data center GPU supports. NVLink and fabric depend on the model, and a virtual
machine may hide PCIe."""

_CONCLUSIVE: Final = (Check.PRESENCE, Check.ACTION, Check.MEMORY)
"""At least one of these must have data: heat alone does not show a failing GPU."""


def covered(state: NodeState) -> tuple[Check, ...]:
    """Return the checks that have data: the kernel log, and what every enumerated GPU reports."""
    views = [view for view in state.gpus.values() if view.enumerated]
    log = state.source(SourceName.KERNEL_LOG) is SourceState.UP
    return tuple(
        check
        for check in Check
        if (log if check is Check.KERNEL_LOG else views and all(_has(v, check) for v in views))
    )


def missed(checks: tuple[Check, ...]) -> tuple[Check, ...]:
    """Return the checks without data that every GPU should support."""
    return tuple(check for check in _EVERYWHERE if check not in checks)


def reports_too_little(state: NodeState) -> bool:
    """Return whether the dcgm-exporter page lists a GPU without any metric that shows a fault.

    NVML always reports at least the presence of a GPU.
    """
    if state.view_source is not SourceName.DCGM or SourceName.DCGM in state.restored_sources:
        return False
    return any(
        view.enumerated and not any(_has(view, check) for check in _CONCLUSIVE)
        for view in state.gpus.values()
    )


def _has(view: GpuView, check: Check) -> bool:
    return any(view.values.get(signal) is not None for signal in _SIGNALS[check])


ALL_PASSING: Final = "AllChecksPassing"
WAITING: Final = "WaitingForDriver"
STARTING: Final = "Starting"
NO_COLLECTOR: Final = "NoSenseWorks"
NONE_ANSWERS: Final = "NoGPUAnswers"
LOG_ONLY: Final = "OnlyKernelLog"
NO_GPU: Final = "NoGPU"
TOO_LITTLE: Final = "TooLittleSeen"
MAX_MESSAGE_BYTES: Final = 1024


class Health(StrEnum):
    """The health of a node or a GPU."""

    HEALTHY = "Healthy"
    DEGRADED = "Degraded"
    UNHEALTHY = "Unhealthy"
    UNKNOWN = "Unknown"


class GpuAssessment(msgspec.Struct, frozen=True):
    """The health of one GPU; `reason` is empty while it is healthy."""

    health: Health
    reason: str = ""


class Assessment(msgspec.Struct, frozen=True, kw_only=True):
    """The health of the node. `degraded` is the most severe active Degraded incident.

    `gpus_healthy` is None (unknown, not zero) while no data source reports GPU health.
    """

    health: Health
    reason: str
    message: str
    gpus: Mapping[str, GpuAssessment]
    gpus_healthy: int | None
    gpus_expected: int
    degraded: Incident | None
    degraded_message: str


def assess(state: NodeState, now: float, thresholds: Thresholds = DEFAULT_RULES) -> Assessment:
    """Return the health of the node and its GPUs at `now`."""
    active = [incident for incident in state.incidents if incident.active]
    fatal = _most_severe(active, Severity.FATAL)
    degraded = _most_severe(active, Severity.DEGRADED)
    no_data = view_problem(state, now, thresholds)
    gpus = {key: _gpu(view, active, no_data=bool(no_data)) for key, view in state.gpus.items()}
    expected = state.expected.count or len(state.gpus)
    healthy = None if no_data else _count_healthy(state, gpus)
    if fatal is not None:
        health, reason = Health.UNHEALTHY, fatal.row.reason
        message = messages.incident_sentence(state, fatal, len(active) - 1)
    elif no_data and not (degraded is not None and _reported_by_log(no_data, degraded)):
        health, reason, message = Health.UNKNOWN, no_data, messages.unknown_sentence(no_data)
        if degraded is not None and no_data in (LOG_ONLY, NO_GPU):
            message = messages.unconfirmed_sentence(state, degraded)
    elif degraded is not None:
        health, reason = Health.DEGRADED, degraded.row.reason
        message = messages.incident_sentence(state, degraded, len(active) - 1)
    else:
        health, reason = Health.HEALTHY, ALL_PASSING
        message = _healthy_sentence(state, expected, healthy)
    return Assessment(
        health=health,
        reason=reason,
        message=_bounded(message),
        gpus=gpus,
        gpus_healthy=healthy,
        gpus_expected=expected,
        degraded=degraded,
        degraded_message=_bounded(
            messages.incident_sentence(state, degraded, 0)
            if degraded is not None
            else "No Degraded incident is active."
        ),
    )


def view_problem(state: NodeState, now: float, thresholds: Thresholds = DEFAULT_RULES) -> str:
    """Return the reason why GPU health is unknown; empty when it is known.

    A data source released on request keeps the last health status. Shortly after boot an absent
    driver counts as not loaded yet.
    """
    source = state.view_source
    if source is None:
        return _log_problem(state)
    view = state.sources.get(source)
    if view is None or not_polled_yet(state, now):
        return STARTING
    if view.state is SourceState.UP and not state.inventory_at and not state.gpus:
        return STARTING
    if view.state is SourceState.UP and _none_answers(state):
        return NONE_ANSWERS
    if view.state is not SourceState.DOWN:
        if not _has_gpus(state):
            return NO_GPU
        return TOO_LITTLE if reports_too_little(state) else ""
    reason = view.reason or f"{'NVML' if source is SourceName.NVML else 'DCGM'}Down"
    if _all_unbound(state):
        reason = sources.DRIVER_ABSENT
    booted_at = state.node.booted_at or state.started_at
    if reason == sources.DRIVER_ABSENT and now < booted_at + thresholds["BootGrace"].value:
        return WAITING
    return reason


def _log_problem(state: NodeState) -> str:
    """Return the reason where only the kernel log is read: it shows faults but not health."""
    log = state.source(SourceName.KERNEL_LOG)
    if log in (SourceState.ABSENT, SourceState.DOWN):
        return NO_COLLECTOR
    return LOG_ONLY if _has_gpus(state) or not state.pci_at else NO_GPU


def _has_gpus(state: NodeState) -> bool:
    """Return whether the node has or should have a GPU."""
    return bool(state.gpus or expected_gpus.gpu_addresses(state.functions) or state.expected.count)


def _reported_by_log(no_data: str, degraded: Incident) -> bool:
    """Return whether the kernel log alone reported this fault since the agent started."""
    return no_data in (LOG_ONLY, NO_GPU) and degraded.phase is not IncidentPhase.PRESENT


def not_polled_yet(state: NodeState, now: float) -> bool:
    """Return whether faults of an earlier boot are active and the GPUs were not polled since.

    Such a status is outdated and counts as Starting for a grace period, so nothing acts on it.
    """
    return now < state.started_at + START_GRACE_S and any(
        incident.active
        and incident.rebooted
        and present.present_of(state, incident, since=0.0) is Present.UNKNOWN
        for incident in state.incidents
    )


def _none_answers(state: NodeState) -> bool:
    """Return whether the driver is loaded and none of its GPUs answers."""
    enumerated = [view for view in state.gpus.values() if view.enumerated]
    return bool(enumerated) and all(
        view.values.get(Signal.PRESENCE) in ("lost", "missing") for view in enumerated
    )


def _all_unbound(state: NodeState) -> bool:
    """Return whether the PCI bus has GPUs and none is bound to the NVIDIA driver."""
    addresses = expected_gpus.gpu_addresses(state.functions)
    held = any(function.driver == "nvidia" for function in state.functions)
    return bool(addresses) and not held


def _most_severe(active: list[Incident], severity: Severity) -> Incident | None:
    named = [incident for incident in active if incident.row.severity is severity]
    return min(
        named,
        key=lambda i: (*(-part for part in strength(i.row)), i.first_seen, i.id),
        default=None,
    )


def _gpu(view: GpuView, active: list[Incident], *, no_data: bool) -> GpuAssessment:
    mine = [i for i in active if i.concerns(view.gpu_id)]
    fatal = _most_severe(mine, Severity.FATAL)
    if fatal is not None:
        return GpuAssessment(Health.UNHEALTHY, fatal.row.reason)
    if no_data or not view.enumerated:
        return GpuAssessment(Health.UNKNOWN)
    degraded = _most_severe(mine, Severity.DEGRADED)
    if degraded is not None:
        return GpuAssessment(Health.DEGRADED, degraded.row.reason)
    return GpuAssessment(Health.HEALTHY)


def _count_healthy(state: NodeState, gpus: Mapping[str, GpuAssessment]) -> int:
    return sum(
        view.enumerated and gpus[key].health is not Health.UNHEALTHY
        for key, view in state.gpus.items()
    )


def _healthy_sentence(state: NodeState, expected: int, healthy: int | None) -> str:
    if state.standing_down and state.stand_down is not None:
        return (
            f"The agent released the GPUs on request ({state.stand_down.reason}). "
            "The last health status is kept until they are back."
        )
    if state.view_source in state.restored_sources:
        gpus = printable.count(expected, "GPU")
        return f"All checks passed on {gpus} before the agent restarted. The next poll is pending."
    checks = covered(state)
    lacking = missed(checks)
    passing = "Checks with data pass" if lacking else "All checks pass"
    detail = f" ({', '.join(checks)})" if checks else ""
    detail += f"; no data: {', '.join(lacking)}" if lacking else ""
    if healthy is not None and healthy < expected:
        missing = printable.count(expected - healthy, "GPU")
        return f"{passing} on {healthy} of {expected} GPUs{detail}; {missing} not found yet."
    return f"{passing} on {printable.count(expected, 'GPU')}{detail}."


def _bounded(message: str) -> str:
    return printable.within_bytes(message, MAX_MESSAGE_BYTES)
