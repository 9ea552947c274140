"""Judge the host's network ports and processes: links down or losing data, tasks that hang.

Called by `judge.facts.sources.take_host`. A port that was never seen active is not in use; a rate
needs two looks at the same counters. A process has to be in the same state in N of M looks: a tool
caught in a short wait is no finding. Where the host's processes are out of sight nothing is found,
and a hung task of the kernel log ends with the boot, or once all GPUs answer again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from msgspec import structs
from msgspec.structs import replace

from rules.catalog.reason import ClosesKind
from rules.catalog.reasons import REASONS
from rules.catalog.thresholds import Threshold
from rules.judge.facts.standing import (
    WHOLE,
    Check,
    Look,
    Renewed,
    above,
    close_standing,
    flag,
    is_raised,
    judge_check,
    looked,
    remembered,
)
from rules.judge.gauge import Gauge, Memory
from rules.judge.incident import Finding, Incident, Scope
from rules.judge.observation import HostSeen, NetworkPort, SourceName
from rules.judge.present import Present, present_of
from rules.judge.recording import record
from rules.judge.state import Judging, NodeState, PortErrors, PortView, close_where

PORT_DOWN: Final = "NetworkPortDown"
_MAX_PORTS: Final = 64


def judge_ports(on: Judging, seen: HostSeen) -> Judging:
    """Take one look at the ports; a host without adapters has none to look at."""
    known = _named(on.state)
    ports = {
        port.name: _stepped(on.state.ports.get(port.name, PortView()), port, on.now, known=known)
        for port in seen.ports[:_MAX_PORTS]
    }
    on = on.then(replace(on.state, ports=ports))
    since = {name: view.down_since for name, view in ports.items() if view.down_since is not None}
    if ports and not since:
        return close_where(on, lambda i: i.row.reason == PORT_DOWN, ClosesKind.STATE)
    down = [
        name
        for name, at in since.items()
        if not ports[name].good_looks and on.now - at >= on.thresholds[PORT_DOWN].value
    ]
    if known or not down:
        return on
    finding = Finding(
        at=seen.at,
        row=REASONS[PORT_DOWN],
        source=SourceName.HOST,
        evidence=f"network ports that were active and are down: {', '.join(sorted(down))}",
        ports=tuple(sorted(down)),
        scope=Scope.NODE,
    )
    return record(on, finding)


def _named(state: NodeState) -> frozenset[str]:
    """The ports that an open finding names: an earlier agent on this node saw them active."""
    return frozenset(
        name
        for incident in state.incidents
        if incident.active and incident.row.reason == PORT_DOWN
        for name in incident.ports
    )


def _stepped(view: PortView, port: NetworkPort, now: float, *, known: frozenset[str]) -> PortView:
    """One port after a look."""
    if port.active:
        good = view.good_looks + 1
        if view.down_since is None or good >= REASONS[PORT_DOWN].closes_on.count:
            return PortView(was_active=True)
        return replace(view, was_active=True, good_looks=good)
    if not view.was_active and port.name not in known:
        return view
    since = now if view.down_since is None else min(view.down_since, now)
    return replace(view, down_since=since, good_looks=0)


_LONGEST_RATE_GAP_S: Final = 600.0
"""A rate over a longer gap says nothing about now. Source: gpuward, ten looks."""


class Ports(NamedTuple):
    """The ports that count errors, what each counted at the look before, and the time."""

    seen: Sequence[NetworkPort]
    before: Mapping[str, PortErrors]
    now: float


def _rates(ports: Ports, limit: Threshold) -> dict[str, Look]:
    looks = {}
    for port in ports.seen:
        old = ports.before.get(port.name)
        grown = _grown(old.errors, port.errors) if old else {}
        passed = ports.now - old.at if old else 0
        if min(grown.values(), default=-1) < 0 or not 0 < passed <= _LONGEST_RATE_GAP_S:
            continue
        kinds = " ".join(f"{kind}=+{more}" for kind, more in sorted(grown.items()) if more)
        evidence = f"network port {port.name} loses data: {kinds} since the last look"
        looks[port.name] = above(limit, sum(grown.values()) * 60 / passed, evidence)
    return looks


_PORT_ERRORS: Final = Check(
    reason="NetworkPortErrors",
    measure=_rates,
    scope=Scope.NODE,
    counts=True,
    renewed=Renewed.NEVER,
)


def judge_port_errors(on: Judging, seen: HostSeen) -> Judging:
    """Take one look at the error counters; a host without adapters has none."""
    ports = [port for port in seen.ports[:_MAX_PORTS] if port.errors]
    looks = looked(on, _PORT_ERRORS, Ports(ports, on.state.port_errors, on.now))
    counted = {port.name: PortErrors(at=on.now, errors=port.errors) for port in ports}
    if not counted and not on.state.port_errors:
        return on
    on = on.then(structs.replace(on.state, port_errors=counted))
    # A port that has just come says nothing yet, and is not good for that.
    fresh = dict.fromkeys(counted, Gauge())
    on = on.remember(_PORT_ERRORS.reason, {**fresh, **remembered(on.state, _PORT_ERRORS.reason)})
    return judge_check(on, _PORT_ERRORS, looks, SourceName.HOST, keep=counted)


def _grown(old: Mapping[str, int], new: Mapping[str, int]) -> dict[str, int]:
    return {kind: count - old[kind] for kind, count in new.items() if kind in old}


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


def _process_check(reason: str, kind: Kind) -> Check[Tasks]:
    def measure(tasks: Tasks, _: Threshold) -> dict[str, Look]:
        names = dict.fromkeys((*tasks.here, *tasks.before))
        return {name: flag(name in tasks.here, f"{name} {kind.words}") for name in names}

    return Check(
        reason=reason, measure=measure, scope=Scope.NODE, counts=True, renewed=Renewed.EACH_LOOK
    )


PROCESS_CHECKS: Final = tuple(_process_check(reason, kind) for reason, kind in KINDS.items())


def judge_processes(on: Judging, seen: HostSeen) -> Judging:
    """Take one look; none of an earlier boot's processes is there any more."""
    on = close_where(on, lambda i: i.rebooted and i.row.reason in KINDS, ClosesKind.REBOOT)
    if seen.processes is None:
        return _out_of_sight(on)
    for check in PROCESS_CHECKS:
        state = KINDS[check.reason].state
        listed = (p for p in seen.processes[:_MAX_PROCESSES] if p.state == state)
        here = tuple(f"{task.name} (pid {task.pid})" for task in listed)
        on = _look_at_processes(on, check, Tasks(here, remembered(on.state, check.reason)))
    return on


def _look_at_processes(on: Judging, check: Check[Tasks], tasks: Tasks) -> Judging:
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
    for check in PROCESS_CHECKS:
        on = on.remember(check.reason, {})
    hung = _standing(on.state, HUNG)
    answer = _silent(hung, on.now) and all(
        present_of(on.state, i, since=i.last_seen) is Present.GOOD for i in hung
    )
    on, over = _untracked(on, HUNG, bad=False, good=bool(hung) and answer)
    return close_standing(on, HUNG, None, ClosesKind.STATE) if over else on
