"""Processes of the driver's world that hang in a driver call, or ended and stay.

Called by `judge_sources.take_host`. It takes the same process in the same state in N of M looks:
a monitoring tool that is caught in a short wait, each time another one, is no finding. Where the
host's processes are out of sight nothing is found, and what the kernel log said of a hung task
ends by the GPUs that answer again, or with the boot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from rules.catalog.reason import ClosesKind, Severity
from rules.catalog.reasons import REASONS
from rules.catalog.thresholds import Threshold
from rules.judge.closing import close_where
from rules.judge.gauge import Gauge
from rules.judge.incident import Finding, Incident, Scope
from rules.judge.judging import Judging
from rules.judge.observation import HostProcess, HostSeen, SourceName
from rules.judge.present import Present, present_of
from rules.judge.recording import record
from rules.judge.state import NodeState

HUNG: Final = "HungNvidiaTask"
ZOMBIE: Final = "ZombieNvidiaTask"
_MAX_PROCESSES: Final = 64
_REPEATS_WITHIN_S: Final = 150.0
"""The kernel looks for hung tasks every 120 s and names again the one that still hangs. Source:
Linux kernel.hung_task_timeout_secs, its default and some slack."""


@dataclass(frozen=True, slots=True)
class ProcessKind:
    """One bad state of a process and the finding it makes."""

    reason: str
    state: str
    words: str


KINDS: Final = (
    ProcessKind(HUNG, "D", "in uninterruptible sleep"),
    ProcessKind(ZOMBIE, "Z", "ended, and its parent did not take notice"),
)


def judge_processes(on: Judging, seen: HostSeen) -> Judging:
    """Take one look; none of an earlier boot's processes is there any more."""
    names = {kind.reason for kind in KINDS}
    on = on.then(
        close_where(
            on.state, lambda i: i.rebooted and i.row.reason in names, on.now, ClosesKind.REBOOT
        )
    )
    if seen.processes is None:
        return _out_of_sight(on.then(replace(on.state, tasks={})))
    for kind in KINDS:
        here = [p for p in seen.processes[:_MAX_PROCESSES] if p.state == kind.state]
        on = _look(on, kind, here)
    return on


def _look(on: Judging, kind: ProcessKind, here: list[HostProcess]) -> Judging:
    limit = on.thresholds[kind.reason]
    before = {task: gauge for task, gauge in on.state.tasks.items() if task.state == kind.state}
    others = {task: gauge for task, gauge in on.state.tasks.items() if task.state != kind.state}
    after = _stepped(before, here, limit)
    over = _untracked(on, kind, before, here, limit)
    on = on.then(
        replace(on.state, tasks={**others, **after}, host={**on.state.host, kind.reason: over})
    )
    raised = [task for task, gauge in after.items() if gauge.raised]
    followed = [task for task, gauge in before.items() if gauge.raised]
    if raised:
        fresh = [task for task in raised if task not in followed]
        return _record(on, kind, fresh)
    if followed or sum(over.good) >= limit.count:
        return on.then(
            close_where(on.state, lambda i: i.row.reason == kind.reason, on.now, ClosesKind.STATE)
        )
    return on


def _untracked(
    on: Judging,
    kind: ProcessKind,
    before: Mapping[HostProcess, Gauge],
    here: list[HostProcess],
    limit: Threshold,
) -> Gauge:
    """Looks since an earlier agent's find, or the kernel's word of a task not followed here.

    Good is one without a process that stays so from look to look, once the kernel is silent.
    """
    standing = _standing(on.state, kind.reason)
    if not standing:
        return Gauge()
    stays = any(task in before and before[task].bad[-1:] == (True,) for task in here)
    old = on.state.host.get(kind.reason, Gauge())
    return old.step(bad=stays, good=not stays and _silent(standing, on.now), threshold=limit)


def _standing(state: NodeState, reason: str) -> list[Incident]:
    return [i for i in state.incidents if i.active and i.row.reason == reason]


def _silent(standing: list[Incident], now: float) -> bool:
    return all(now - incident.last_seen > _REPEATS_WITHIN_S for incident in standing)


def _stepped(
    before: Mapping[HostProcess, Gauge], here: list[HostProcess], limit: Threshold
) -> dict[HostProcess, Gauge]:
    """Each task after a look; one that was not in this state for long enough is forgotten."""
    stepped = {
        task: before.get(task, Gauge()).measure(task in here, limit)
        for task in dict.fromkeys((*here, *before))
    }
    kept = {task: gauge for task, gauge in stepped.items() if gauge.raised or any(gauge.bad)}
    return dict(list(kept.items())[:_MAX_PROCESSES])


def _record(on: Judging, kind: ProcessKind, fresh: list[HostProcess]) -> Judging:
    """Each task once with its name; after that only that something still stands."""
    row = REASONS[kind.reason]
    standing = Finding(at=on.now, row=row, source=SourceName.HOST, scope=Scope.NODE, counts=False)
    for task in fresh:
        evidence = f"{task.name} (pid {task.pid}) {kind.words}"
        on = record(on, replace(standing, evidence=evidence, counts=True))
    if fresh or row.severity is Severity.INFO:
        return on
    return record(on, standing)


def _out_of_sight(on: Judging) -> Judging:
    """What the kernel log said of a hung task is over when it falls silent and all GPUs answer."""
    limit = on.thresholds[HUNG]
    hung = _standing(on.state, HUNG)
    answer = _silent(hung, on.now) and all(
        present_of(on.state, i, since=i.last_seen) is Present.GOOD for i in hung
    )
    over = on.state.host.get(HUNG, Gauge()).step(
        bad=False, good=bool(hung) and answer, threshold=limit
    )
    on = on.then(replace(on.state, host={**on.state.host, HUNG: over}))
    if sum(over.good) < limit.count:
        return on
    return on.then(close_where(on.state, lambda i: i.row.reason == HUNG, on.now, ClosesKind.STATE))
