"""Judge one poll of one GPU: presence, recovery action, flags, counters, gauges and rates.

Called by `judge` for NVML readings, and for a dcgm-exporter page where NVML is off. Absent
values are neither good nor bad. What each check looks at stands in `judge.facts.checks`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from rules.catalog.reason import ClosesKind, Reason, Severity
from rules.catalog.reasons import REASONS
from rules.catalog.signals import Signal
from rules.judge.closing import mark_reset
from rules.judge.facts.checks import GAUGES, LATCHES, RETRAINS, VOLATILE, GaugeCheck
from rules.judge.facts.links import links_returned
from rules.judge.facts.sample import Sample, number_of
from rules.judge.gauge import Gauge, Latch
from rules.judge.incident import Finding, Scope
from rules.judge.judging import Judging
from rules.judge.ledger import noted, whose
from rules.judge.observation import GpuSeen, Readings, SourceName, Value
from rules.judge.present import links_down
from rules.judge.recording import SUPERSEDED, finding_for_action, note_no_need, record, take_answer
from rules.judge.state import Counter, GpuView, NodeState, close_for, find_gpu, just_told, with_gpu

LINK_ERRORS: Final = "NVLink errors"
PENDING_REASON: Final = "RowRemapPending"
_PENDING_REASONS: Final = frozenset({PENDING_REASON, "RepairPending", "RetiredPagesPending"})
"""Work that the next reset of the GPU does."""
PENDING_AFTER_ERROR: Final = "RowRemapPendingAfterError"
DRAIN_AND_RESET: Final = 4
_MEMORY_ERROR_XIDS: Final = frozenset({48, 94})
_ROW_REMAP_FAILED_XID: Final = 64
_LONGEST_RATE_GAP_S: Final = 600.0
"""A rate over a longer gap says nothing about now. Source: gpuward, ten polls."""

_COUNTERS: Final = frozenset(
    {
        *VOLATILE,
        Signal.PCIE_REPLAYS,
        Signal.NVLINK_CRC_ERRORS,
        Signal.NVLINK_CRC_DATA_ERRORS,
        Signal.NVLINK_REPLAYS,
        Signal.NVLINK_RECOVERIES,
        Signal.NVLINK_INTEGRITY_ERRORS,
        Signal.NVLINK_RECEIVE_ERRORS,
        Signal.NVLINK_MALFORMED_PACKETS,
        Signal.NVLINK_DROPPED_PACKETS,
        Signal.NVLINK_REMOTE_ERRORS,
        Signal.C2C_ERRORS,
        Signal.HW_THERMAL_SLOWDOWN_TIME,
        Signal.SW_THERMAL_SLOWDOWN_TIME,
        Signal.POWER_BRAKE_TIME,
    }
)


def judge_readings(on: Judging, seen: Readings, source: SourceName = SourceName.NVML) -> Judging:
    """Take one poll."""
    view = find_gpu(on.state, seen.gpu, seen.pci)
    if view is None:
        view = GpuView(seen=GpuSeen(uuid=seen.gpu, index=-1, pci=seen.pci))
    values = seen.values
    # A page of dcgm-exporter is all it has to say: what it stopped exporting is absent.
    kept = {} if source is SourceName.DCGM else view.values
    view = replace(view, values={**kept, **values}, read_at=on.now)
    if view.values.get(Signal.PRESENCE, "present") != "present" or not values:
        return on.then(with_gpu(on.state, view))
    generation = number_of(values.get(Signal.PCIE_GENERATION)) or 0.0
    best = max(view.best_generation, generation)
    view = replace(view, answered_at=on.now, best_generation=best)
    before = view.counters
    on = on.then(with_gpu(on.state, view))
    if _went_back(before, values):
        on = mark_reset(on, view.seen.uuid, view.pci)
        before = {}
    on = _polled_action(on, view, values, source)
    on = _latches(on, view, values, source)
    on = _gauges(on, view, values, before, source)
    on = _note_link_errors(on, view, values, before)
    if Signal.NVLINK_STATES in values:
        on = links_returned(on, _current(on.state, view))
    return _keep_counters(on, view, values, before)


def _polled_action(
    on: Judging, view: GpuView, values: Mapping[Signal, Value], source: SourceName
) -> Judging:
    """The recovery action by polling: a change takes one confirming re-read, or the driver's
    event.
    """
    number = number_of(values.get(Signal.RECOVERY_ACTION))
    if number is None or number < 0:
        return on
    value = int(number)
    view = _current(on.state, view)
    if view.action == value or (view.action is None and value == 0):
        on = on.then(with_gpu(on.state, replace(view, action=value, action_seen=None)))
        # A page of dcgm-exporter may be older than the Xid that asks.
        asked = value == 0 and source is SourceName.NVML
        return note_no_need(on, view.seen.uuid, view.pci) if asked else on
    if view.action_seen != value and not just_told(view.told_at, on.now):
        return on.then(with_gpu(on.state, replace(view, action_seen=value)))
    gpu, pci = view.seen.uuid, view.pci
    evidence = f"{source.value}: recovery action {value}"
    finding = finding_for_action(on.state, value, on.now, source, evidence)
    finding = replace(finding, gpu=gpu, pci=pci)
    on = take_answer(on, gpu, pci, value, finding=finding)
    return mark_reset(on, gpu, pci) if value == 0 else on


def _latches(
    on: Judging, view: GpuView, values: Mapping[Signal, Value], source: SourceName
) -> Judging:
    for check in LATCHES:
        bad = check.bad(values, on.thresholds)
        if bad is None:
            continue
        view = _current(on.state, view)
        old = view.latches.get(check.reason, Latch())
        new = old.step(bad=bad)
        if new == old and not new.raised:
            continue
        view = replace(view, latches={**view.latches, check.reason: new})
        if check.reason in _PENDING_REASONS:
            pending = any(view.latches.get(r, Latch()).seen for r in _PENDING_REASONS)
            view = replace(view, reset_pending=pending)
        on = on.then(with_gpu(on.state, view))
        if new.raised:
            row = _pending_row(on.state, view) if check.reason == PENDING_REASON else None
            if row is not None:
                on = _close(on, view, PENDING_REASON, SUPERSEDED)
            row = row or REASONS[check.reason]
            on = _find(on, view, row, check.evidence(values), source, first=not old.raised)  # fmt: skip
        elif old.seen and not bad and check.proves_reset and _ends_by_reset(check.reason):
            on = mark_reset(on, view.seen.uuid, view.pci)
    return on


def _ends_by_reset(reason: str) -> bool:
    return REASONS[reason].closes_on.kind is ClosesKind.RESET


def _pending_row(state: NodeState, view: GpuView) -> Reason | None:
    """A pending remap is a record, unless an error or the driver says that it matters now."""
    after_error = any(
        incident.concerns(view.seen.uuid, view.pci)
        and not _MEMORY_ERROR_XIDS.isdisjoint(incident.xids)
        and incident.closed_by not in ("BeforeStart", ClosesKind.RESET, ClosesKind.REBOOT)
        for incident in state.incidents
    )
    if after_error or view.action == DRAIN_AND_RESET:
        return REASONS[PENDING_AFTER_ERROR]
    return None


def _gauges(
    on: Judging,
    view: GpuView,
    values: Mapping[Signal, Value],
    before: Mapping[Signal, Counter],
    source: SourceName,
) -> Judging:
    sample = Sample(
        values=values,
        known=_current(on.state, view).values,
        rates=_rates(values, before, on.now),
        links_down=links_down(on.state, view) if Signal.NVLINK_STATES in values else None,
        thresholds=on.thresholds,
        best_generation=view.best_generation,
        booting=on.now
        < (on.state.node.booted_at or on.state.started_at) + on.thresholds["BootGrace"].value,
    )
    for check in GAUGES:
        measured = check.measure(sample)
        if measured is None:
            continue
        view = _current(on.state, view)
        old = view.gauges.get(check.reason, Gauge())
        new = old.step(
            bad=measured.bad, good=measured.good, threshold=on.thresholds[measured.threshold]
        )
        if new == old:
            continue
        on = on.then(with_gpu(on.state, replace(view, gauges={**view.gauges, check.reason: new})))
        if new.raised:
            on = _raise_gauge(on, view, check, measured.evidence, source, first=not old.raised)  # fmt: skip
        elif sum(new.good) >= on.thresholds[measured.threshold].count:
            # An incident may be older than this memory: it came through a reboot.
            on = _close(on, view, check.reason, ClosesKind.STATE)
    return on


def _raise_gauge(
    on: Judging,
    view: GpuView,
    check: GaugeCheck,
    evidence: str,
    source: SourceName,
    *,
    first: bool,
) -> Judging:
    scope = Scope.DOMAIN if check.domain else Scope.GPU
    return _find(on, view, REASONS[check.reason], evidence, source, first=first, scope=scope)


def _find(
    on: Judging,
    view: GpuView,
    row: Reason,
    evidence: str,
    source: SourceName,
    *,
    first: bool,
    scope: Scope = Scope.GPU,
) -> Judging:
    """Record a raised check: once with its reading, then only that it still stands."""
    known = any(
        incident.active
        and incident.row.reason == row.reason
        and incident.concerns(view.seen.uuid, view.pci)
        for incident in on.state.incidents
    )
    if not first and row.severity is Severity.INFO:
        return on  # a standing record is neither renewed nor opened over and over
    finding = Finding(
        at=on.now,
        row=row,
        gpu=view.seen.uuid,
        pci=view.pci,
        source=source,
        evidence="" if known else f"{source.value}: {evidence}",
        counts=False,
        scope=scope,
        caused_by=_ROW_REMAP_FAILED_XID if row.reason == "RowRemapFailure" else None,
    )
    return record(on, finding)


def _close(on: Judging, view: GpuView, reason: str, by: str) -> Judging:
    return on.then(
        close_for(
            on.state,
            view.seen.uuid,
            view.pci,
            lambda incident: incident.row.reason == reason,
            on.now,
            by,
        )
    )


def _current(state: NodeState, view: GpuView) -> GpuView:
    return state.gpus.get(view.seen.uuid or view.pci, view)


def _went_back(before: Mapping[Signal, Counter], values: Mapping[Signal, Value]) -> bool:
    """Whether a counter since driver load shrank: the GPU was reset."""
    for signal in VOLATILE:
        value = number_of(values.get(signal))
        if value is not None and signal in before and value < before[signal].value:
            return True
    return False


def _rates(
    values: Mapping[Signal, Value], before: Mapping[Signal, Counter], now: float
) -> dict[Signal, float]:
    """Increase per second of each counter that has a base and did not go back."""
    rates = {}
    for signal, base in before.items():
        value = number_of(values.get(signal))
        elapsed = now - base.at
        if value is not None and 0 < elapsed <= _LONGEST_RATE_GAP_S and value >= base.value:
            rates[signal] = (value - base.value) / elapsed
    return rates


def _note_link_errors(
    on: Judging, view: GpuView, values: Mapping[Signal, Value], before: Mapping[Signal, Counter]
) -> Judging:
    """Count for the day what is too rare for a rate."""
    grown = sum(
        max(0, int(number - before[signal].value))
        for signal in RETRAINS
        if signal in before and (number := number_of(values.get(signal))) is not None
    )
    owner, window_s = whose(view.seen.uuid, view.pci), on.thresholds["BudgetWindow"].value
    counted = noted(on.state.ledger, owner, LINK_ERRORS, on.now, window_s, count=grown)
    return on if counted is on.state.ledger else on.then(replace(on.state, ledger=counted))


def _keep_counters(
    on: Judging, view: GpuView, values: Mapping[Signal, Value], before: Mapping[Signal, Counter]
) -> Judging:
    fresh = {
        signal: Counter(at=on.now, value=number)
        for signal in _COUNTERS
        if (number := number_of(values.get(signal))) is not None
    }
    if not fresh:
        return on
    return on.then(
        with_gpu(on.state, replace(_current(on.state, view), counters={**before, **fresh}))
    )
