"""What a policy did with the past, in numbers and node by node, and how two policies differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from rules.api.nodes import QuarantineView
from rules.api.quarantine import Mode, Phase
from rules.api.timestamps import format_time, parse_time, utc
from rules.backtest.archive import LEFT_OUT
from rules.backtest.compare import differences
from rules.backtest.decisions import decided_in
from rules.backtest.engine import Replayed
from rules.backtest.faults import PastFault
from rules.backtest.past import Past
from rules.backtest.real import RealSession
from rules.backtest.results import (
    BacktestReport,
    Missed,
    PolicyPair,
    PolicyResult,
    Taken,
    Waited,
)
from rules.policy.differences import differences as settings_apart
from rules.policy.policy import Policy, effective_view
from rules.session.observation import is_open

AT_ONCE_S: Final = 900.0
"""A fault that went away by itself so soon after the mark was probably none."""
FOREWARNED_S: Final = 7 * 86_400.0
_NEAR_S: Final = 3600.0
_LEFT_OUT: Final = f".{next(iter(LEFT_OUT))}: "


def result_of(name: str, past: Past, replayed: Replayed) -> PolicyResult:
    """One policy's row."""
    sessions = sorted(
        replayed.sessions.values(), key=lambda s: (s.metadata.created_at, s.spec.node_name)
    )
    guessed = {name: tuple(dict.fromkeys(words)) for name, words in replayed.guessed.items()}
    taken = tuple(
        msgspec.structs.replace(found, guessed=guessed.get(s.name, ()))
        for s in sessions
        if (found := _taken(s, past, replayed.policy.mode)) is not None
    )
    by_name = {session.name: session for session in sessions}
    waited = tuple(
        Waited(
            node=by_name[session].spec.node_name,
            session=session,
            reason=reason,
            why=replayed.said.get((session, reason), ""),
            seconds=round(seconds),
            since=format_time(replayed.waited_since[session, reason]),
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
        unheard=_unheard(replayed),
    )


def _unheard(replayed: Replayed) -> tuple[str, ...]:
    """Nodes on which others said what the policy has no trigger for, with the reason it made."""
    return tuple(dict.fromkeys(f"{said.node} {said.cause.reason}" for said in replayed.unheard))


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
        decisions=decided_in(session),
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
            return f"{other.incident.reason} at {utc(other.began)}"
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


def report_of(
    past: Past,
    replayed: Sequence[tuple[str, Replayed]],
    real: Iterable[QuarantineView],
    ran: Policy | None = None,
) -> BacktestReport:
    """Every policy beside what really was; `ran`: the policy that was in force at the export."""
    results = [real_result(past, real)]
    results += [result_of(name, past, one) for name, one in replayed]
    named: dict[str, Policy | None] = {results[0].policy: ran}
    named |= {name: one.policy for name, one in replayed}
    pairs = tuple(
        _pair(first, second, past, named)
        for position, first in enumerate(results)
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


def _on_record(settings: list[str]) -> list[str]:
    """Without what the export left out: what an adapter would write is not known to differ."""
    unknown = tuple(f"{line.partition(_LEFT_OUT)[0]}." for line in settings if _LEFT_OUT in line)
    return [line for line in settings if not line.startswith(unknown)]


def _pair(
    first: PolicyResult, second: PolicyResult, past: Past, policies: Mapping[str, Policy | None]
) -> PolicyPair:
    one, other = policies.get(first.policy), policies.get(second.policy)
    settings: list[str] = []
    if one is not None and other is not None:
        settings = _on_record(settings_apart(effective_view(one), effective_view(other)))
    nodes, same = differences(first, second, past, (one, other))
    return PolicyPair(
        first=first.policy, second=second.policy, settings=tuple(settings), same=same, nodes=nodes
    )
