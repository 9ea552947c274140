"""Standing checks, the one engine: raise with evidence, renew silently, close.

A check is a row: its reason, how a check measures it, and what is remembered between two checks (N
of M, or a flag that one re-read confirms). What it means stands under its reason in
`rules.catalog.reasons`, its numbers under the same name in `rules.catalog.thresholds`. The tables
are in `judge.facts`: checks of a GPU's readings (a `Sample`), of the host, of two sources side by
side.
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
    """A reading as a number; None for what is absent, no number, or none that exists."""
    if isinstance(value, int | float) and abs(value) <= _LARGEST:  # NaN fails this, too
        return float(value)
    return None


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One poll: its `values`, the last `known` ones, rates per second, links down.

    `best_generation` is the highest PCIe generation its link was ever seen at; `booting`
    says that what takes its time after a boot is still given it, `outside` whether the GPU may be
    outside an active partition of the fabric. `limits` are the power
    limits of the node's other GPUs of its kind.
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

    def number(self, signal: Signal) -> float | None:
        """A number of this poll; None when absent or not asked."""
        return number_of(self.values.get(signal))

    def last(self, signal: Signal) -> float | None:
        """The latest number of a signal that is polled less often."""
        return number_of(self.known.get(signal))


_S = TypeVar("_S")


class CheckResult(NamedTuple):
    """What one check says: bad, good again, or neither, with hysteresis between the two.

    `limit` names the threshold where it is not the one of the check's reason.
    """

    bad: bool
    good: bool
    evidence: str = ""
    limit: str = ""


def above(limit: Threshold, value: float, evidence: str) -> CheckResult:
    """Bad at the limit and above it."""
    return CheckResult(value >= limit.value, value <= limit.clear, evidence)


def below(limit: Threshold, value: float, evidence: str) -> CheckResult:
    """Bad at the limit and below it."""
    return CheckResult(value <= limit.value, value >= limit.clear, evidence)


def flag(bad: bool, evidence: str) -> CheckResult:
    """Bad or good, and nothing between."""
    return CheckResult(bad, not bad, evidence)


class Check(msgspec.Struct, Generic[_S], frozen=True, kw_only=True):
    """One row. `measure` takes what a poll read and the threshold; None: it says nothing.

    `counts`: each time it is raised is one sighting more. `renews`: every poll that finds it
    standing reports it, not only those that change what is remembered. `heavier` is the reason
    that stands instead where more is known, `caused_by` the Xid whose incident it belongs to.
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
        """The numbers in force; a flag without numbers of its own is bad from 1 on."""
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
        look = check.measure(sample, check.limit(on.thresholds))
        if look is not None:
            on = judge_check(on, check, look, source, view, prefix=prefix)
    return on


def judge_check(
    on: Judging,
    check: Check[_S],
    look: CheckResult,
    source: SourceName,
    view: GpuView | None = None,
    *,
    prefix: str = "",
) -> Judging:
    """Take what a poll says of one check."""
    view = on.current(view) if view is not None else None
    limit = on.thresholds[look.limit] if look.limit else check.limit(on.thresholds)
    before = memory_of(on.state, check.reason, view)
    old = check.memory() if before is None else before
    new = old.step(bad=look.bad, good=look.good, threshold=limit)
    if new == before and not (check.renews and new.raised):
        return on
    on = on.remember(check.reason, new, view)
    view = on.current(view) if view is not None else None
    if not new.raised:
        # An incident may be older than this memory: it came through a restart or a reboot.
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
        evidence=prefix + look.evidence,
        counts=check.counts,
        scope=check.scope,
        caused_by=check.caused_by,
    )
    return record_standing(on, finding, first=not old.raised)


def memory_of(state: NodeState, reason: str, view: GpuView | None = None) -> Memory | None:
    """What is remembered of a check."""
    return (state.checks if view is None else view.checks).get(reason)


def is_raised(state: NodeState, reason: str, view: GpuView | None = None) -> bool:
    """Whether a check stands, as far as is remembered."""
    memory = memory_of(state, reason, view)
    return memory is not None and memory.raised


def record_standing(on: Judging, finding: Finding, *, first: bool = True) -> Judging:
    """Record something that lasts: its evidence once, later no more than that it still stands.

    A standing record of Info is neither renewed nor opened over and over.
    """
    if not first and finding.row.severity is Severity.INFO:
        return on
    fresh = first if finding.counts else not is_known(on.state, finding)
    return recording.record(on, finding if fresh else replace(finding, evidence="", counts=False))


def is_known(state: NodeState, finding: Finding) -> bool:
    """Whether an open incident of this GPU, or of the node, tells of it."""
    return any(
        i.active and i.has_reason(finding.row.reason) and i.concerns(finding.gpu_id)
        for i in state.incidents
    )


def close_standing(on: Judging, reason: str, view: GpuView | None, by: str) -> Judging:
    """Close what was found of one GPU, or of the node."""
    if view is None:
        return recording.close_where(on, lambda i: i.row.reason == reason, by)
    return recording.close_for(on, view.gpu_id, lambda i: i.row.reason == reason, by)
