"""All that happened to one node, as one list in time: faults, sessions, repairs, tests, people.

Made of what objects say and nothing else; drawn on the node's page, printed by `kubectl gpuward
history NODE`. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from msgspec import structs

from remediator.view.shapes import NodeTimeline, TimelineItem
from remediator.view.text import span
from rules.api.health import HealthStatus
from rules.api.nodes import PauseView, QuarantineView
from rules.api.quarantine import Phase, TimelineEntry
from rules.api.timestamps import format_time, parse_time, utc_of
from rules.catalog.device import places
from rules.ledger.record import FaultOutcome, RecordView
from rules.repair.parts import GPU_REPLACED, kept_replacements
from rules.session.causes import DELETED_BY
from rules.session.observation import is_open, pause_over
from rules.session.people.said import said_at
from rules.session.status import BY_GPUWARD, BY_PERSON, LET_GO, PAUSED_BY

SHOWN_ITEMS: Final = 80
_PAUSED: Final = "paused"
_TOLD_ELSEWHERE: Final = ("Repair", "Test", GPU_REPLACED)
"""Steps of a session's timeline that `status.repair`, `status.validation` and the evidence tell
better."""


class Lane(StrEnum):
    """What an item is about, from the cause to the cure."""

    FAULT = "fault"
    SESSION = "session"
    REPAIR = "repair"
    TEST = "test"
    NODE = "node"
    PERSON = "person"


def node_timeline(
    name: str,
    sessions: Sequence[QuarantineView],
    health: HealthStatus | None,
    records: Iterable[RecordView],
    now: float,
    pauses: Sequence[PauseView] = (),
) -> NodeTimeline:
    """The node's items, oldest first; of too many the latest. `records` are those of
    `rules.fleet.happenings.records_by_now`: as written they are up to a minute old. `pauses` are
    those that cover the node, or did.
    """
    found = [item for session in sessions for item in _of_session(session, now)]
    told = [item for pause in pauses for item in _of_pause(pause, now)]
    found = [item for item in found if not _told_by_pause(item, pauses)] + told
    found += (_while_it_was(item, sessions) for item in _faults(name, sessions, health, records))
    timed = [item for item in found if parse_time(item.at) is not None]
    # Sessions hold whole seconds: of one second, causes come before what follows from them.
    timed.sort(key=lambda item: (int(parse_time(item.at) or 0), list(Lane).index(Lane(item.lane))))
    return NodeTimeline(
        items=tuple(timed[-SHOWN_ITEMS:]), earlier=max(0, len(timed) - SHOWN_ITEMS)
    )


def _while_it_was(item: TimelineItem, sessions: Sequence[QuarantineView]) -> TimelineItem:
    """A fault does not go on after its node: one that came back under the name is another."""
    if item.until:
        return item
    began = parse_time(item.at) or 0.0
    gone = [s.status.phase_since for s in sessions if s.status.phase == Phase.NODE_GONE]
    after = [at for at in gone if (parse_time(at) or 0.0) >= began]
    return structs.replace(
        item, until=min(after, key=lambda at: parse_time(at) or 0.0, default="")
    )


def lasted(item: TimelineItem) -> str:
    """`14m`; "goes on" where it has no end, "" for a moment."""
    if not item.until:
        return "goes on"
    began, ended = parse_time(item.at) or 0.0, parse_time(item.until)
    return span(ended - began) if ended is not None and ended > began else ""


def _of_session(session: QuarantineView, now: float) -> Iterator[TimelineItem]:
    yield from _phases(session)
    yield from _acts(session, now)
    status = session.status
    for attempt in status.repair:
        by = f"by {attempt.adapter}" if attempt.adapter else ""
        numbered = f"attempt {attempt.attempt}" if attempt.attempt > 1 else ""
        yield TimelineItem(
            lane=Lane.REPAIR,
            at=attempt.asked_at or attempt.started_at,
            until=attempt.ended_at,
            what=attempt.step,
            state=attempt.state,
            said=": ".join(filter(None, (" ".join(filter(None, (by, numbered))), attempt.proof))),
            session=session.name,
        )
    for swap in kept_replacements(status.evidence):
        yield TimelineItem(
            lane=Lane.REPAIR,
            at=swap.at,
            until=swap.at,
            what=swap.short,
            state="",
            said=swap.clause,
            session=session.name,
        )
    for test in status.validation:
        yield TimelineItem(
            lane=Lane.TEST,
            at=test.started_at,
            until=test.ended_at,
            what=f"test under load by {test.provider}" if test.provider else "test under load",
            state=test.verdict or test.state,
            said=test.message,
            session=session.name,
        )


def _phases(session: QuarantineView) -> Iterator[TimelineItem]:
    """Each phase from its beginning to that of the next; the end of a session is a moment."""
    entries = [e for e in session.status.timeline if e.step in set(Phase)]
    shadow = " (Shadow)" if session.status.mode == "Shadow" else ""
    if not session.status.phase:
        yield TimelineItem(
            lane=Lane.SESSION,
            at=session.metadata.creation_timestamp,
            until="",
            what="opened",
            state=Phase.PENDING,
            said="the remediator has not reconciled it yet",
            session=session.name,
        )
    for position, entry in enumerate(entries):
        ends = Phase(entry.step).ended
        later = entries[position + 1].at if position + 1 < len(entries) else ""
        if not later and not is_open(session):
            later = session.status.phase_since
        yield TimelineItem(
            lane=Lane.SESSION,
            at=entry.at,
            until=entry.at if ends else later,
            what=f"{entry.step}{shadow}",
            state=entry.step,
            said=entry.message,
            session=session.name,
        )


def _acts(session: QuarantineView, now: float) -> Iterator[TimelineItem]:
    """What people did, and what else is worth a line of its own."""
    spec = session.spec

    def act(at: str, what: str, by: str, said: str = "") -> TimelineItem:
        return TimelineItem(
            lane=Lane.PERSON, at=at, until=at, what=what, state="", said=said, by=by,
            session=session.name,
        )  # fmt: skip

    opened = session.metadata.creation_timestamp
    for position, cause in enumerate(spec.causes):
        if cause.source == "Human":
            # Of a cause without a time: only the first was there when the session was opened.
            at = said_at(cause.at, session, now)
            later = " later" if position and at is None else ""
            when = opened if at is None else format_time(at)
            who = cause.by or "a person"
            yield act(when, f"quarantine asked for{later}", who, cause.message)
    asked = spec.release
    if asked is not None and is_open(session):
        at = said_at(asked.at, session, now)
        if at is not None:
            who = asked.by or "a person"
            yield act(format_time(at), "release asked for", who, asked.reason)
    for entry in session.status.timeline:
        if entry.step in set(Phase):
            if Phase(entry.step).ended and entry.by and entry.by != BY_GPUWARD:
                named = asked.by if asked is not None and asked.by != DELETED_BY else ""
                who = named or (entry.by if entry.by != BY_PERSON else "a person")
                why = asked.reason if asked is not None else ""
                yield act(entry.at, _ending(entry), who, why or entry.message)
        elif entry.step == LET_GO:
            who = entry.by if entry.by != BY_PERSON else "a person"
            step, _, why = entry.message.partition(": ")
            yield act(entry.at, f"{step} let go", who, why)
        elif entry.step == PAUSED_BY:
            who = entry.by if entry.by != BY_PERSON else "a person"
            yield act(entry.at, _PAUSED, who, entry.message)
        elif not entry.step.startswith(_TOLD_ELSEWHERE):
            yield TimelineItem(
                lane=Lane.NODE, at=entry.at, until=entry.at, what=entry.step, state="",
                said=entry.message, session=session.name,
            )  # fmt: skip


def _told_by_pause(item: TimelineItem, pauses: Iterable[PauseView]) -> bool:
    """Sessions keep who paused them for when the pause is gone: one that is there says it."""
    at = parse_time(item.at)
    return (
        item.what == _PAUSED
        and at is not None
        and any(
            (pause.spec.by or "a person") == item.by
            and pause.metadata.created_at <= at
            and not pause_over(pause, at)
            for pause in pauses
        )
    )


def _of_pause(pause: PauseView, now: float) -> Iterator[TimelineItem]:
    """A pause that covers the node, and its end."""
    spec, made = pause.spec, pause.metadata
    who = spec.by or "a person"
    until = "" if not spec.until or pause_over(pause, now) else f" until {utc_of(spec.until)}"
    said = f"{made.name}{until}: {spec.reason or 'no reason given'}"
    moments = [(made.creation_timestamp, _PAUSED, who, said)]
    if pause_over(pause, now):
        by = spec.ended.by or "a person" if spec.ended is not None else BY_GPUWARD
        why = "" if spec.ended is not None else ", its time was over"
        moments.append((spec.until, "pause ended", by, f"{made.name}{why}"))
    for at, what, by, words in moments:
        yield TimelineItem(
            lane=Lane.PERSON, at=at, until=at, what=what, state="", said=words, by=by
        )


def _ending(entry: TimelineEntry) -> str:
    """A person's end of a session in a word or two."""
    return "given back" if entry.step == Phase.RELEASED else "session ended"


def _faults(
    name: str,
    sessions: Sequence[QuarantineView],
    health: HealthStatus | None,
    records: Iterable[RecordView],
) -> Iterator[TimelineItem]:
    """Each fault once: as the verdict has it, else as its session kept it, else as a record."""
    known: set[tuple[str, int]] = set()
    over = _over(health)

    def new(reason: str, at: str) -> bool:
        began = parse_time(at)
        if began is None or (reason, int(began)) in known:
            return False
        known.add((reason, int(began)))
        return True

    for one in health.incidents if health is not None else ():
        where = ", ".join(places(one.reason, one.pci, one.gpus)[:4])
        if new(one.reason, one.first_seen):
            closed = f"closed by {one.closed_by}" if one.closed_by else ""
            until = one.closed_at or ("" if one.active else one.last_seen or one.first_seen)
            yield _fault(
                one.first_seen,
                until,
                one.reason,
                one.severity,
                "; ".join(filter(None, (where, closed))),
            )
    recorded = list(_recorded(name, records, new, over))
    for session in sessions:
        for at, kept in _kept(session):
            reason = _text(kept.get("reason"))
            if new(reason, at):
                ended = over(reason, at) if is_open(session) else session.status.phase_since
                yield _fault(at, ended, reason, _text(kept.get("severity")), "")
    yield from recorded


def _over(health: HealthStatus | None) -> Callable[[str, str], str]:
    """When a fault that began then and is not known to have ended did end; "" where it goes on.

    Sessions and records keep a fault until its part is back in service: whether it is still there
    the verdict says, where there is one.
    """
    incidents = health.incidents if health is not None else ()
    active = {one.reason for one in incidents if one.active}

    def over(reason: str, latest: str) -> str:
        if health is None or reason in active:
            return ""
        closed = [one.closed_at for one in incidents if one.reason == reason and one.closed_at]
        return max([latest, *closed], key=lambda at: parse_time(at) or 0.0)

    return over


def _recorded(
    name: str, records: Iterable[RecordView], new: Any, over: Callable[[str, str], str]
) -> Iterator[TimelineItem]:
    for record in records:
        status = record.status
        here = [event for event in status.events if event.node == name]
        if record.doubt or not here:
            continue
        for event in here:
            if new(event.reason, event.at):
                last = event.last_at or event.at
                holds = event.outcome == FaultOutcome.ACTIVE
                until = event.ended_at or (over(event.reason, last) if holds else last)
                said = status.uuid or "the node"
                yield _fault(event.at, until, event.reason, event.severity, said)
        for word in status.said:
            yield TimelineItem(
                lane=Lane.PERSON, at=word.at, until=word.at, what=f"said {word.word}", state="",
                said=word.reason, by="a person",
            )  # fmt: skip


def _kept(session: QuarantineView) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What the session's evidence, free-form, says of its faults."""
    listed = session.status.evidence.get("incidents")
    for one in listed[:8] if isinstance(listed, list) else ():
        if isinstance(one, Mapping):
            yield _text(one.get("firstSeen")), one


def _fault(at: str, until: str, reason: str, severity: str, said: str) -> TimelineItem:
    return TimelineItem(
        lane=Lane.FAULT, at=at, until=until, what=reason, state=severity, said=said
    )


def _text(value: object) -> str:
    return value[:512] if isinstance(value, str) else ""
