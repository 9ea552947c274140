"""The engine of checks on polled values: raise with evidence, renew, close.

A check has a reason, a function that measures it, and a memory between polls (N of M, or a flag
with a second read). The meaning of its reason is in `rules.catalog.reasons`, its limits in
`rules.catalog.thresholds`. The tables of checks are in `judge.facts`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from rules.catalog import reasons
from rules.catalog.reason import ClosesKind, Reason, Severity
from rules.catalog.signals import Signal
from rules.catalog.thresholds import FLAG, Threshold, Thresholds
from rules.judge import incident, recording
from rules.judge.incident import Finding, Scope
from rules.judge.memory import Gauge, Latch, Memory
from rules.judge.observation import SourceName, Value
from rules.judge.state import GpuView, Judging, NodeState
from rules.judge.topology import Partition

_LARGEST: Final = float(1 << 64)
"""No counter of the driver is wider than 64 bits."""


def number_of(value: Value) -> float | None:
    """Return a reading as a number; None if it is absent, not a number or out of range."""
    if isinstance(value, int | float) and abs(value) <= _LARGEST:  # NaN fails this, too
        return float(value)
    return None


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One poll: its `values`, the last `known` ones, rates per second, links down.

    `best_generation` is the highest PCIe generation of its link so far; `booting`: the grace
    period after boot is not over; `outside`: whether the GPU may be outside all active fabric
    partitions; `limits` and `clock_events`: the power limits and clock event reasons of the node's
    other GPUs of the same product; `shared_fabric`: partitions are assigned on demand.
    """

    values: Mapping[Signal, Value]
    known: Mapping[Signal, Value]
    rates: Mapping[Signal, float]
    links_down: int | None
    thresholds: Thresholds
    best_generation: float = 0.0
    booting: bool = False
    outside: Partition = Partition.NO
    limits: Sequence[float] = ()
    clock_events: Sequence[float] = ()
    shared_fabric: bool = False

    def number(self, signal: Signal) -> float | None:
        """Return a number of this poll; None if absent or not read."""
        return number_of(self.values.get(signal))

    def last(self, signal: Signal) -> float | None:
        """Return the latest number of a signal that is polled less often."""
        return number_of(self.known.get(signal))


_S = TypeVar("_S")


class CheckResult(NamedTuple):
    """The result of a check: bad, good, or neither (hysteresis).

    `limit` names the threshold if it is not the one of the check's reason.
    """

    bad: bool
    good: bool
    evidence: str = ""
    limit: str = ""


def above(limit: Threshold, value: float, evidence: str) -> CheckResult:
    """Return a result that is bad at the limit and above it."""
    return CheckResult(value >= limit.value, value <= limit.clear, evidence)


def below(limit: Threshold, value: float, evidence: str) -> CheckResult:
    """Return a result that is bad at the limit and below it."""
    return CheckResult(value <= limit.value, value >= limit.clear, evidence)


def flag(bad: bool, evidence: str) -> CheckResult:
    """Return a result that is either bad or good."""
    return CheckResult(bad, not bad, evidence)


class Check(msgspec.Struct, Generic[_S], frozen=True, kw_only=True):
    """One check. `measure` takes a poll and the threshold; it returns None without data.

    `counts`: each raise adds to the incident's count. `renews`: every bad poll renews the
    incident, not only those that change the memory. `heavier` returns a more severe row where more
    is known. `caused_by` is the Xid of the incident to which it belongs.
    """

    reason: str
    measure: Callable[[_S, Threshold], CheckResult | None]
    memory: type[Gauge] | type[Latch] = Gauge
    scope: Scope = Scope.GPU
    counts: bool = False
    renews: bool = False
    heavier: Callable[[NodeState, GpuView], Reason | None] | None = None
    caused_by: int | None = None

    def limit(self, thresholds: Thresholds) -> Threshold:
        """Return the threshold in force; a flag without a threshold is bad from 1 on."""
        return thresholds.thresholds.get(self.reason, FLAG)


def judge_checks(
    on: Judging,
    checks: Iterable[Check[_S]],
    sample: _S,
    source: SourceName,
    view: GpuView | None = None,
    *,
    prefix: str = "",
) -> Judging:
    """Take one poll of a GPU, or of the node where `view` is None."""
    for check in checks:
        result = check.measure(sample, check.limit(on.thresholds))
        if result is not None:
            on = judge_check(on, check, result, source, view, prefix=prefix)
    return on


def judge_check(
    on: Judging,
    check: Check[_S],
    result: CheckResult,
    source: SourceName,
    view: GpuView | None = None,
    *,
    prefix: str = "",
) -> Judging:
    """Take the result of one check."""
    view = on.current(view) if view is not None else None
    limit = on.thresholds[result.limit] if result.limit else check.limit(on.thresholds)
    before = memory_of(on.state, check.reason, view)
    old = check.memory() if before is None else before
    new = old.step(bad=result.bad, good=result.good, threshold=limit)
    if new == before and not (check.renews and new.raised):
        return on
    on = on.remember(check.reason, new, view)
    view = on.current(view) if view is not None else None
    if not new.raised:
        # An incident may be older than this memory, from before a restart or a reboot.
        over = new.over(limit)
        return close_standing(on, check.reason, view, ClosesKind.STATE) if over else on
    row = reasons.REASONS[check.reason]
    heavier = check.heavier(on.state, view) if check.heavier and view else None
    if heavier is not None:
        on, row = close_standing(on, check.reason, view, recording.SUPERSEDED), heavier
    finding = Finding(
        at=on.now,
        row=row,
        gpu_id=view.gpu_id if view else incident.NO_GPU_ID,
        source=source,
        evidence=prefix + result.evidence,
        counts=check.counts,
        scope=check.scope,
        caused_by=check.caused_by,
    )
    return record_standing(on, finding, first=not old.raised)


def memory_of(state: NodeState, reason: str, view: GpuView | None = None) -> Memory | None:
    """Return the memory of a check."""
    return (state.checks if view is None else view.checks).get(reason)


def is_raised(state: NodeState, reason: str, view: GpuView | None = None) -> bool:
    """Return whether a check is raised."""
    memory = memory_of(state, reason, view)
    return memory is not None and memory.raised


def record_standing(on: Judging, finding: Finding, *, first: bool = True) -> Judging:
    """Record a lasting finding: with evidence the first time, later only as a renewal.

    A lasting finding of severity Info is not renewed.
    """
    if not first and finding.row.severity is Severity.INFO:
        return on
    fresh = first if finding.counts else not is_known(on.state, finding)
    return recording.record(on, finding if fresh else replace(finding, evidence="", counts=False))


def is_known(state: NodeState, finding: Finding) -> bool:
    """Return whether an active incident of this GPU, or of the node, has this reason."""
    return any(
        i.active and i.has_reason(finding.row.reason) and i.concerns(finding.gpu_id)
        for i in state.incidents
    )


def close_standing(on: Judging, reason: str, view: GpuView | None, by: str) -> Judging:
    """Close the incidents of a reason, of one GPU or of the node."""
    if view is None:
        return recording.close_where(on, lambda i: i.row.reason == reason, by)
    return recording.close_for(on, view.gpu_id, lambda i: i.row.reason == reason, by)
