"""Check the readings of one GPU, count its NVLink errors and detect recovered NVLinks.

Readings come from NVML, or from dcgm-exporter where NVML is off. Absent values are neither good
nor bad. The checks are in `judge.facts.checks`.
"""

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Final

from msgspec.structs import replace

from rules.catalog import reasons, xid
from rules.catalog.reason import ClosesKind, Level, Reason, Severity
from rules.catalog.signals import Signal
from rules.judge import closing, present, recording, state, topology
from rules.judge.facts import checks, standing
from rules.judge.facts.standing import Sample
from rules.judge.incident import GpuId, Incident
from rules.judge.memory import Latch
from rules.judge.observation import GpuSeen, Readings, SourceName, Value
from rules.judge.state import Counter, GpuView, Judging
from rules.kernel_log.record import KernelLine

_PENDING_REASONS: Final = frozenset({"RowRemapPending", "RepairPending", "RetiredPagesPending"})
"""Repairs that the next reset of the GPU completes."""
_PROVE_RESET: Final = frozenset(
    check.reason
    for check in checks.FLAGS
    if reasons.REASONS[check.reason].closes_on.kind is ClosesKind.RESET
    and check.reason != checks.RECOVERY_FAILED
)
"""Flags that only a reset of the GPU clears."""
_LONGEST_RATE_GAP_S: Final = 600.0
"""A rate over a longer gap is not current. Source: gpuward."""

_COUNTERS: Final = frozenset(
    {
        *checks.VOLATILE,
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
    """Take one poll of a GPU."""
    view = state.find_gpu(on.state, seen.gpu, seen.pci)
    if view is None:
        view = GpuView(seen=GpuSeen(uuid=seen.gpu, index=-1, pci=seen.pci))
    values = seen.values
    # A page of dcgm-exporter is complete: what it stopped exporting is absent.
    kept = {} if source is SourceName.DCGM else view.values
    view = replace(view, values={**kept, **values}, read_at=on.now)
    if view.values.get(Signal.PRESENCE, "present") != "present" or not values:
        return on.with_gpu(view)
    generation = standing.number_of(values.get(Signal.PCIE_GENERATION)) or 0.0
    best = max(view.best_generation, generation)
    view = replace(view, answered_at=on.now, best_generation=best)
    before = view.counters
    on = on.with_gpu(view)
    if _went_back(before, values):
        on = closing.note_reset(on, view.gpu_id)
        before = {}
    on = _polled_action(on, view, values, source)
    sample = _sample(on, on.current(view), values, before)
    on = _flags(on, view, sample, source)
    on = standing.judge_checks(on, checks.GAUGES, sample, source, view, prefix=f"{source.value}: ")
    if Signal.NVLINK_STATES in values:
        on = links_returned(on, on.current(view))
    return _keep_counters(on, view, values, before)


def _polled_action(
    on: Judging, view: GpuView, values: Mapping[Signal, Value], source: SourceName
) -> Judging:
    """Take a polled recovery action; a change needs a second read or the driver's event."""
    number = standing.number_of(values.get(Signal.RECOVERY_ACTION))
    if number is None or number < 0:
        return on
    value = int(number)
    view = on.current(view)
    if view.action == value or (view.action is None and value == 0):
        if (view.action, view.action_seen) != (value, None):
            on = on.with_gpu(replace(view, action=value, action_seen=None))
        # A page of dcgm-exporter may be older than the Xid.
        asked = value == 0 and source is SourceName.NVML
        return recording.note_no_need(on, view.gpu_id) if asked else on
    if view.action_seen != value and not state.just_reported(view.reported_at, on.now):
        return on.with_gpu(replace(view, action_seen=value))
    gpu_id = view.gpu_id
    evidence = f"{source.value}: recovery action {value}"
    finding = recording.finding_for_action(on.state, value, on.now, source, evidence)
    finding = replace(finding, gpu_id=gpu_id)
    on = recording.take_answer(on, gpu_id, value, finding=finding)
    return closing.note_reset(on, gpu_id) if value == 0 else on


def _sample(
    on: Judging, view: GpuView, values: Mapping[Signal, Value], before: Mapping[Signal, Counter]
) -> Sample:
    up_since = on.state.node.booted_at or on.state.started_at
    return Sample(
        values=values,
        known=view.values,
        rates=_rates(values, before, on.now),
        links_down=present.links_down(on.state, view) if Signal.NVLINK_STATES in values else None,
        thresholds=on.thresholds,
        best_generation=view.best_generation,
        booting=on.now < up_since + on.thresholds["BootGrace"].value,
        outside=topology.outside_partition(on.state, view),
        limits=_others(on, view, Signal.POWER_LIMIT, values),
        clock_events=_others(on, view, Signal.CLOCK_EVENT_REASONS, values),
        shared_fabric=on.state.node.shared_fabric,
    )


def _others(
    on: Judging, view: GpuView, signal: Signal, values: Mapping[Signal, Value]
) -> list[float]:
    """Return the recent values of the other GPUs of the same product, if this poll has one."""
    if signal not in values:
        return []
    return [
        number
        for other in on.state.gpus.values()
        if other.gpu_id != view.gpu_id
        and other.seen.product == view.seen.product
        and other.enumerated
        and on.now - other.answered_at <= _LONGEST_RATE_GAP_S
        and (number := standing.number_of(other.values.get(signal))) is not None
    ]


def _flags(on: Judging, view: GpuView, sample: Sample, source: SourceName) -> Judging:
    """Take the flags; some that clear are evidence of a reset."""
    for check in checks.FLAGS:
        result = check.measure(sample, check.limit(on.thresholds))
        if result is None:
            continue
        before = _flag(on, view, check.reason)
        on = standing.judge_check(on, check, result, source, view, prefix=f"{source.value}: ")
        after = _flag(on, view, check.reason)
        if check.reason in _PENDING_REASONS and (after != before or after.raised):
            pending = any(_flag(on, view, reason).seen for reason in _PENDING_REASONS)
            on = on.with_gpu(replace(on.current(view), reset_pending=pending))
        if before.seen and not after.seen and check.reason in _PROVE_RESET:
            on = closing.note_reset(on, view.gpu_id)
    return on


def _flag(on: Judging, view: GpuView, reason: str) -> Latch:
    flag = standing.memory_of(on.state, reason, on.current(view))
    return flag if isinstance(flag, Latch) else Latch()


def _went_back(before: Mapping[Signal, Counter], values: Mapping[Signal, Value]) -> bool:
    """Return whether a counter since driver load decreased, which means a reset of the GPU."""
    for signal in checks.VOLATILE:
        value = standing.number_of(values.get(signal))
        if value is not None and signal in before and value < before[signal].value:
            return True
    return False


def _rates(
    values: Mapping[Signal, Value], before: Mapping[Signal, Counter], now: float
) -> dict[Signal, float]:
    """Return the increase per second of each counter with an earlier value."""
    rates = {}
    for signal, base in before.items():
        value = standing.number_of(values.get(signal))
        elapsed = now - base.at
        if value is not None and 0 < elapsed <= _LONGEST_RATE_GAP_S and value >= base.value:
            rates[signal] = (value - base.value) / elapsed
    return rates


def _keep_counters(
    on: Judging, view: GpuView, values: Mapping[Signal, Value], before: Mapping[Signal, Counter]
) -> Judging:
    new = {
        signal: Counter(at=on.now, value=number)
        for signal in _COUNTERS
        if (number := standing.number_of(values.get(signal))) is not None
    }
    if not new:
        return on
    return on.with_gpu(replace(on.current(view), counters={**before, **new}))


_ON_LINK: Final = f"Xid {xid.NVLINK_XID} on link "

_MANY_LINKS: Final = 3
"""Links of one GPU with an error within a day, at different times, that point at the GPU. Source:
gpuward, the same as for bursts of Xid 13 at one place."""

_RETURNED_POLLS: Final = 3
"""Polls that find all links up after the last error. Source: gpuward, as for NVLinkDown."""


def count_link_fault(
    on: Judging, line: KernelLine, row: Reason, gpu_id: GpuId, at: float
) -> tuple[Judging, Reason]:
    """Count an error of a link and return its row, more severe if errors repeat within a day.

    They repeat if the same link, or two other links of the same GPU, had one. Errors that the
    registers show as ignorable or as a consequence of another error do not count.
    """
    if line.xid in xid.NVLINK_XIDS and (view := state.find_gpu(on.state, *gpu_id)) is not None:
        on = on.with_gpu(replace(view, links_up=0))
    if line.xid != xid.NVLINK_XID or line.link is None or row.severity is Severity.INFO:
        return on, row
    window_s = on.thresholds["RepeatWindow"].value
    apart_s = on.thresholds["IncidentGrouping"].value
    what = f"{_ON_LINK}{line.link}"
    erred_at = _erred_at(on, gpu_id, at - window_s)
    on = on.note(gpu_id, what, at, "RepeatWindow", family=_ON_LINK)
    again = at - erred_at.get(what, at) > apart_s
    if not again and _bursts((*erred_at.values(), at), apart_s) < _MANY_LINKS:
        return on, row
    heavier = replace(
        row,
        severity=max(row.severity, Severity.DEGRADED),
        level=max(row.level, Level.CORDON),
    )
    return on, heavier


def _erred_at(on: Judging, gpu_id: GpuId, since: float) -> dict[str, float]:
    """Return when each link of a GPU last had an error after `since`, by UUID or address."""
    found: dict[str, float] = {}
    for (owner, what), entry in on.state.ledger.items():
        if owner in gpu_id and what.startswith(_ON_LINK) and entry.last_at >= since:
            found[what] = max(entry.last_at, found.get(what, since))
    return found


def _bursts(times: Iterable[float], apart_s: float) -> int:
    """Return how many times are more than `apart_s` after the one before, plus the first."""
    ordered = sorted(times)
    return 1 + sum(later - earlier > apart_s for earlier, later in pairwise(ordered))


def links_returned(on: Judging, view: GpuView) -> Judging:
    """Take one poll of a GPU's links; close the incidents of links that are up again."""
    polls = view.links_up + 1 if present.all_links_up(on.state, view) else 0
    on = on.with_gpu(replace(view, links_up=min(polls, _RETURNED_POLLS)))
    if polls < _RETURNED_POLLS:
        return on
    return recording.close_for(on, view.gpu_id, _waits_for_links, ClosesKind.STATE)


def _waits_for_links(incident: Incident) -> bool:
    waits = incident.row.closes_on.signal == Signal.NVLINK_STATES
    return waits and not xid.NVLINK_XIDS.isdisjoint(incident.xids)
