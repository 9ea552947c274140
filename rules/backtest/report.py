"""What a policy did with the past, in numbers and node by node, and how two policies differ."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from rules.api.nodes import QuarantineView
from rules.api.quarantine import Mode, Phase
from rules.api.timestamps import format_time, parse_time
from rules.backtest.engine import Replayed
from rules.backtest.past import Past, PastFault, RealSession
from rules.session.observation import is_open

AT_ONCE_S: Final = 900.0
"""A fault that went away by itself so soon after the mark was probably none."""
FOREWARNED_S: Final = 7 * 86_400.0
_NEAR_S: Final = 3600.0


class ReportPart(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of the report: camelCase in JSON."""


class Taken(ReportPart, frozen=True, kw_only=True):
    """A node that the policy took out."""

    node: str
    session: str
    reason: str
    severity: str
    at: str
    drained: str
    ended: str
    phase: str
    gpu_hours: float
    likely_wrong: str
    """Why it was probably no fault; empty where nothing speaks for that."""


class Waited(ReportPart, frozen=True, kw_only=True):
    """A session that had to wait for the fleet's sake."""

    node: str
    session: str
    reason: str
    why: str
    seconds: int


class Missed(ReportPart, frozen=True, kw_only=True):
    """A Fatal fault under which work went on."""

    node: str
    reason: str
    at: str
    warned: str
    """An earlier, milder fault of the node within a week on which nobody acted; empty without."""


class PolicyResult(ReportPart, frozen=True, kw_only=True):
    """One policy over the whole past."""

    policy: str
    mode: str
    nodes: int
    """Different nodes taken."""
    sessions: int
    taken: tuple[Taken, ...]
    waited: tuple[Waited, ...]
    missed: tuple[Missed, ...]
    gpu_hours_out: float
    likely_wrong: int

    @property
    def sentence(self) -> str:
        """`Enforce: 11 nodes, 3 likely wrong, 40 GPU-days out`."""
        return (
            f"{self.policy} ({self.mode}): {self.nodes} nodes in {self.sessions} sessions, "
            f"{self.likely_wrong} likely wrong, {self.gpu_hours_out / 24:.1f} GPU-days out, "
            f"{len(self.missed)} fatal faults left alone"
        )


class PolicyDifference(ReportPart, frozen=True, kw_only=True):
    """One node that two policies treated differently."""

    node: str
    first: str
    second: str


class BacktestReport(ReportPart, frozen=True, kw_only=True):
    """Every policy, what really was, and what differs."""

    since: str
    until: str
    nodes: int
    faults: int
    policies: tuple[PolicyResult, ...]
    differences: tuple[tuple[str, str, tuple[PolicyDifference, ...]], ...]
    """(a policy, another one, node by node)."""
    cannot_tell: tuple[str, ...]


def result_of(name: str, past: Past, replayed: Replayed) -> PolicyResult:
    """One policy's row."""
    sessions = sorted(
        replayed.sessions.values(), key=lambda s: (s.metadata.created_at, s.spec.node_name)
    )
    taken = tuple(
        found for s in sessions if (found := _taken(s, past, replayed.policy.mode)) is not None
    )
    by_name = {session.name: session for session in sessions}
    waited = tuple(
        Waited(
            node=by_name[session].spec.node_name,
            session=session,
            reason=reason,
            why=replayed.said.get((session, reason), ""),
            seconds=round(seconds),
        )
        for (session, reason), seconds in replayed.waits.items()
        if session in by_name and seconds >= 1
    )
    return PolicyResult(
        policy=name,
        mode=str(replayed.policy.mode),
        nodes=len({one.node for one in taken}),
        sessions=len(taken),
        taken=taken,
        waited=waited,
        missed=_missed(past, sessions),
        gpu_hours_out=round(sum(one.gpu_hours for one in taken), 1),
        likely_wrong=sum(bool(one.likely_wrong) for one in taken),
    )


def steps_of(session: QuarantineView) -> dict[str, float]:
    """When a session reached each phase first."""
    found: dict[str, float] = {}
    for entry in session.status.timeline:
        at = parse_time(entry.at)
        if at is not None and entry.step in set(Phase):
            found.setdefault(entry.step, at)
    return found


def _taken(session: QuarantineView, past: Past, mode: Mode) -> Taken | None:
    steps = steps_of(session)
    marked = steps.get(Phase.MARKED)
    if marked is None:
        return None
    ended = None if is_open(session) else parse_time(session.status.phase_since)
    node = session.spec.node_name
    hours = ((ended or past.ended) - marked) / 3600 * past.gpus(node)
    cause = next(iter(session.spec.causes), None)
    return Taken(
        node=node,
        session=session.name,
        reason=(cause.reason or cause.source) if cause is not None else "",
        severity=cause.severity if cause is not None else "",
        at=format_time(marked),
        drained=format_time(steps[Phase.QUARANTINED]) if Phase.QUARANTINED in steps else "",
        ended=format_time(ended) if ended is not None else "",
        phase=session.status.phase,
        gpu_hours=round(hours, 2) if mode == Mode.ENFORCE else 0.0,
        likely_wrong=_likely_wrong(session, marked, past),
    )


def _likely_wrong(session: QuarantineView, marked: float, past: Past) -> str:
    node = session.spec.node_name
    for real in past.sessions:
        if real.node == node and real.undone and _overlaps(real, marked):
            return "a person undid the real session"
    ids = {cause.incident for cause in session.spec.causes if cause.incident}
    its = [fault for fault in past.faults if fault.incident.id in ids]
    alone = [f for f in its if not f.mended and f.ended is not None]
    if its and len(alone) == len(its):
        latest = max(f.ended or 0.0 for f in its)
        if latest - marked <= AT_ONCE_S:
            return "its faults went away by themselves at once"
    return ""


def _overlaps(real: RealSession, at: float) -> bool:
    return real.opened - _NEAR_S <= at <= (real.ended or float("inf"))


def _missed(past: Past, sessions: Sequence[QuarantineView]) -> tuple[Missed, ...]:
    """Fatal faults during which the node was not out of service."""
    spans: dict[str, list[tuple[float, float]]] = {}
    for session in sessions:
        marked = steps_of(session).get(Phase.MARKED)
        if marked is not None:
            end = None if is_open(session) else parse_time(session.status.phase_since)
            spans.setdefault(session.spec.node_name, []).append((marked, end or float("inf")))
    found = []
    for fault in past.faults:
        if not fault.fatal:
            continue
        ended = fault.ended if fault.ended is not None else past.ended
        out = any(
            begin <= ended and end >= fault.began for begin, end in spans.get(fault.node, ())
        )
        if not out:
            found.append(
                Missed(
                    node=fault.node,
                    reason=fault.incident.reason,
                    at=format_time(fault.began),
                    warned=_warning(fault, past.faults),
                )
            )
    return tuple(found)


def _warning(fault: PastFault, faults: Iterable[PastFault]) -> str:
    for other in faults:
        before = fault.began - other.began
        same = set(other.incident.gpus) & set(fault.incident.gpus) or not other.incident.gpus
        if other.node == fault.node and 0 < before <= FOREWARNED_S and same and not other.fatal:
            return f"{other.incident.reason} at {format_time(other.began)}"
    return ""


def real_result(past: Past, sessions: Iterable[QuarantineView]) -> PolicyResult:
    """What really was, in the same form."""
    known = list(sessions)
    taken = tuple(
        found
        for s in sorted(known, key=lambda s: (s.metadata.created_at, s.spec.node_name))
        if (found := _taken(s, past, Mode(s.status.mode or Mode.SHADOW))) is not None
    )
    modes = sorted({s.status.mode for s in known if s.status.mode}) or ["none"]
    return PolicyResult(
        policy="what really was",
        mode=" and ".join(modes),
        nodes=len({one.node for one in taken}),
        sessions=len(taken),
        taken=taken,
        waited=(),
        missed=_missed(past, known),
        gpu_hours_out=round(sum(one.gpu_hours for one in taken), 1),
        likely_wrong=sum(bool(one.likely_wrong) for one in taken),
    )


def differences(one: PolicyResult, other: PolicyResult) -> tuple[PolicyDifference, ...]:
    """Nodes that the two treated differently, each with what each did and why."""
    nodes = sorted({t.node for t in (*one.taken, *other.taken)})
    nodes += sorted({w.node for w in (*one.waited, *other.waited)} - set(nodes))
    found = []
    for node in nodes:
        first, second = _story(one, node), _story(other, node)
        if first != second:
            found.append(PolicyDifference(node=node, first=first, second=second))
    return tuple(found)


def _story(result: PolicyResult, node: str) -> str:
    """What a policy did to one node, in one sentence."""
    parts = [
        f"taken at {one.at} for {one.reason}, {one.phase}{f' at {one.ended}' if one.ended else ''}"
        for one in result.taken
        if one.node == node
    ]
    waits = {w.reason: w.why for w in result.waited if w.node == node}
    if not parts:
        parts = [f"not taken: {why or reason}" for reason, why in waits.items()] or ["not taken"]
    return "; ".join(parts)[:1000]


def report_of(
    past: Past, replayed: Sequence[tuple[str, Replayed]], real: Iterable[QuarantineView]
) -> BacktestReport:
    """Every policy beside what really was."""
    results = [real_result(past, real)]
    results += [result_of(name, past, one) for name, one in replayed]
    pairs = tuple(
        (results[0].policy, other.policy, differences(results[0], other)) for other in results[1:]
    ) + tuple(
        (first.policy, second.policy, differences(first, second))
        for position, first in enumerate(results[1:], start=1)
        for second in results[position + 1 :]
    )
    return BacktestReport(
        since=format_time(past.began),
        until=format_time(past.ended),
        nodes=len(past.nodes),
        faults=len(past.faults),
        policies=tuple(results),
        differences=pairs,
        cannot_tell=past.lacks,
    )
