"""Processes of the driver's world that hang in a driver call, or ended and stay.

Called by `judge_sources.take_host`. It takes the same process in the same state in N of M looks:
a monitoring tool that is caught in a short wait, each time another one, is no finding. Where the
host's processes are out of sight nothing is found, and what the kernel log said of a hung task
ends by the GPUs that answer again, or with the boot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from rules.catalog.reason import ClosesKind
from rules.catalog.thresholds import Threshold
from rules.judge.facts.standing import (
    WHOLE,
    Check,
    Look,
    Renewed,
    close_standing,
    flag,
    is_raised,
    judge_check,
    looked,
    remembered,
)
from rules.judge.gauge import Gauge, Memory
from rules.judge.incident import Incident, Scope
from rules.judge.judging import Judging, close_where
from rules.judge.observation import HostSeen, SourceName
from rules.judge.present import Present, present_of
from rules.judge.state import NodeState

HUNG: Final = "HungNvidiaTask"
ZOMBIE: Final = "ZombieNvidiaTask"
_MAX_PROCESSES: Final = 64
_REPEATS_WITHIN_S: Final = 150.0
"""The kernel looks for hung tasks every 120 s and names again the one that still hangs. Source:
Linux kernel.hung_task_timeout_secs, its default and some slack."""


class Kind(NamedTuple):
    """A bad state of a process, and how the finding names it."""

    state: str
    words: str


KINDS: Final = {
    HUNG: Kind("D", "in uninterruptible sleep"),
    ZOMBIE: Kind("Z", "ended, and its parent did not take notice"),
}
_UNTRACKED: Final = " untracked"
"""Looks since an earlier agent's find, or the kernel's word of a task not followed here."""


class Tasks(NamedTuple):
    """The processes in a bad state, and those that were remembered for it."""

    here: Sequence[str]
    before: Mapping[str, Memory]


def _check(reason: str, kind: Kind) -> Check[Tasks]:
    def measure(tasks: Tasks, _: Threshold) -> dict[str, Look]:
        names = dict.fromkeys((*tasks.here, *tasks.before))
        return {name: flag(name in tasks.here, f"{name} {kind.words}") for name in names}

    return Check(
        reason=reason, measure=measure, scope=Scope.NODE, counts=True, renewed=Renewed.EACH_LOOK
    )


CHECKS: Final = tuple(_check(reason, kind) for reason, kind in KINDS.items())


def judge_processes(on: Judging, seen: HostSeen) -> Judging:
    """Take one look; none of an earlier boot's processes is there any more."""
    on = close_where(on, lambda i: i.rebooted and i.row.reason in KINDS, ClosesKind.REBOOT)
    if seen.processes is None:
        return _out_of_sight(on)
    for check in CHECKS:
        state = KINDS[check.reason].state
        listed = (p for p in seen.processes[:_MAX_PROCESSES] if p.state == state)
        here = tuple(f"{task.name} (pid {task.pid})" for task in listed)
        on = _look(on, check, Tasks(here, remembered(on.state, check.reason)))
    return on


def _look(on: Judging, check: Check[Tasks], tasks: Tasks) -> Judging:
    """One kind of process; one that was not in its state for long enough is forgotten.

    What is not followed here is over after looks without a process that stays in its state from
    look to look, once the kernel is silent.
    """
    reason, known = check.reason, _standing(on.state, check.reason)
    stays = any(name in tasks.before and tasks.before[name].seen for name in tasks.here)
    gone = not stays and _silent(known, on.now)
    if known:
        on, over = _untracked(on, reason, bad=stays, good=gone)
    else:
        on, over = on.remember(reason + _UNTRACKED, {}), False
    on = judge_check(on, check, looked(on, check, tasks), SourceName.HOST, closes=False)
    kept = {
        name: task
        for name, task in remembered(on.state, reason).items()
        if task.raised or (isinstance(task, Gauge) and any(task.bad))
    }
    on = on.remember(reason, dict(list(kept.items())[:_MAX_PROCESSES]))
    followed = any(task.raised for task in tasks.before.values())
    if is_raised(on.state, reason) or not (followed or over):
        return on
    return close_standing(on, reason, None, ClosesKind.STATE)


def _untracked(on: Judging, reason: str, *, bad: bool, good: bool) -> tuple[Judging, bool]:
    """Take a look at what nobody follows, and say whether it is over."""
    old = remembered(on.state, reason + _UNTRACKED).get(WHOLE, Gauge())
    new = old.step(bad=bad, good=good, threshold=on.thresholds[reason])
    return on.remember(reason + _UNTRACKED, {WHOLE: new}), new.over(on.thresholds[reason])


def _standing(state: NodeState, reason: str) -> list[Incident]:
    return [i for i in state.incidents if i.active and i.row.reason == reason]


def _silent(standing: list[Incident], now: float) -> bool:
    return all(now - incident.last_seen > _REPEATS_WITHIN_S for incident in standing)


def _out_of_sight(on: Judging) -> Judging:
    """What the kernel log said of a hung task is over when it falls silent and all GPUs answer."""
    for check in CHECKS:
        on = on.remember(check.reason, {})
    hung = _standing(on.state, HUNG)
    answer = _silent(hung, on.now) and all(
        present_of(on.state, i, since=i.last_seen) is Present.GOOD for i in hung
    )
    on, over = _untracked(on, HUNG, bad=False, good=bool(hung) and answer)
    return close_standing(on, HUNG, None, ClosesKind.STATE) if over else on
