"""The page of one node: its health, taints and sessions, and all that happened to it as one list
in time: faults, sessions, repairs, tests, people. Pure.
"""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Final

from remediator.view import fleet_view, operators, session_view
from remediator.view.shapes import NodePage, OperatorAction, TimelineItem
from remediator.view.state import PageState
from rules.api import gpu_record, names, quarantine_taint, timestamps
from rules.api.health import GpuStatus, HealthStatus, IncidentStatus
from rules.api.nodes import NodeView, QuarantineView
from rules.api.quarantine import Mode, Phase, TimelineEntry
from rules.catalog import explanations
from rules.fleet import node_health
from rules.session import causes, exclusions, halts, observation
from rules.session.repair import ladder
from rules.session.status import APPROVED, BY_GPUWARD, BY_OPERATOR, PAUSED_BY, sentence
from rules.text import pci_address

SHOWN_ITEMS: Final = 80
_OPERATOR: Final = "an operator"
_ELSEWHERE: Final = ("Repair", "Test")
"""Steps of a session's timeline that `status.repair`, `status.validation` and the evidence hold
with more detail."""
_CORDON_TAINT = "node.kubernetes.io/unschedulable"
"""Kubernetes adds it to every cordon; the cordon has its own line."""


class TimelineKind(StrEnum):
    """What an item is about, from the cause to the cure."""

    FAULT = "fault"
    SESSION = "session"
    REPAIR = "repair"
    TEST = "test"
    NODE = "node"
    OPERATOR = "person"


def node_timeline(
    sessions: Sequence[QuarantineView], health: HealthStatus | None, now: float
) -> list[TimelineItem]:
    """The node's items, oldest first: its sessions, and the faults that its agent reports."""
    found = [*_faults(health)] if health is not None else []
    for session in sessions:
        found += _phases(session)
        found += _repairs_and_tests(session)
        found += _asked(session, now)
        found += _entries(session)
    timed = [item for item in found if timestamps.parse_time(item.at) is not None]
    # Sessions hold whole seconds: of one second, causes come before what follows from them.
    return sorted(
        timed,
        key=lambda item: (
            int(_time(item.at)),
            list(TimelineKind).index(TimelineKind(item.timeline)),
        ),
    )


def lasted(item: TimelineItem) -> str:
    """`14m`; "goes on" where it has no end, "" for a moment."""
    if not item.until:
        return "goes on"
    ended = timestamps.parse_time(item.until)
    return (
        timestamps.span(ended - _time(item.at))
        if ended is not None and ended > _time(item.at)
        else ""
    )


def _time(at: str) -> float:
    return timestamps.parse_time(at) or 0.0


def _moment(
    timeline: TimelineKind, at: str, what: str, text: str, session: str, by: str = ""
) -> TimelineItem:
    return TimelineItem(
        timeline=timeline, at=at, until=at, what=what, text=text, session=session, by=by
    )


def _phases(session: QuarantineView) -> Iterator[TimelineItem]:
    """Each phase from its beginning to that of the next; the end of a session is a moment."""
    entries = [e for e in session.status.timeline if e.step in set(Phase)]
    shadow = " (Shadow)" if session.status.mode == "Shadow" else ""
    if not session.status.phase:
        yield TimelineItem(
            timeline=TimelineKind.SESSION,
            at=session.metadata.creation_timestamp,
            until="",
            what="opened",
            state=Phase.PENDING,
            text="the remediator has not reconciled it yet",
            session=session.name,
        )
    after = [entry.at for entry in entries[1:]]
    last = "" if observation.is_open(session) else session.status.phase_since
    for entry, later in zip(entries, [*after, last], strict=False):
        yield TimelineItem(
            timeline=TimelineKind.SESSION,
            at=entry.at,
            until=entry.at if Phase(entry.step).ended else later,
            what=f"{entry.step}{shadow}",
            state=entry.step,
            text=entry.message,
            session=session.name,
        )


def _repairs_and_tests(session: QuarantineView) -> Iterator[TimelineItem]:
    for attempt in session.status.repair:
        by = f"by {attempt.adapter}" if attempt.adapter else ""
        numbered = f"attempt {attempt.attempt}" if attempt.attempt > 1 else ""
        yield TimelineItem(
            timeline=TimelineKind.REPAIR,
            at=attempt.asked_at or attempt.started_at,
            until=attempt.ended_at,
            what=attempt.step,
            state=attempt.state,
            text=": ".join(filter(None, (" ".join(filter(None, (by, numbered))), attempt.proof))),
            session=session.name,
        )
    for test in session.status.validation:
        yield TimelineItem(
            timeline=TimelineKind.TEST,
            at=test.started_at,
            until=test.ended_at,
            what=f"test under load by {test.provider}" if test.provider else "test under load",
            state=test.result or test.state,
            text=test.message,
            session=session.name,
        )


def _asked(session: QuarantineView, now: float) -> Iterator[TimelineItem]:
    """What people asked of the session."""
    for position, cause in enumerate(session.spec.causes):
        if cause.source == "Human":
            # Of a cause without a time: only the first was there when the session was opened.
            at = ladder.requested_at(cause.at, session, now)
            when = (
                session.metadata.creation_timestamp if at is None else timestamps.format_time(at)
            )
            what = f"quarantine asked for{' later' if position and at is None else ''}"
            by = cause.by or _OPERATOR
            yield _moment(TimelineKind.OPERATOR, when, what, cause.message, session.name, by)
    asked = session.spec.release
    at = (
        ladder.requested_at(asked.at, session, now)
        if asked is not None and observation.is_open(session)
        else None
    )
    if asked is not None and at is not None:
        by, when = asked.by or _OPERATOR, timestamps.format_time(at)
        yield _moment(
            TimelineKind.OPERATOR, when, "release requested", asked.reason, session.name, by
        )


def _entries(session: QuarantineView) -> Iterator[TimelineItem]:
    """Steps of the session's own timeline that are no phase: what people did, and boots."""
    for entry in session.status.timeline:
        by = entry.by if entry.by != BY_OPERATOR else _OPERATOR
        if entry.step in set(Phase):
            if Phase(entry.step).ended and entry.by and entry.by != BY_GPUWARD:
                yield _ended_by_operator(session, entry, by)
        elif entry.step == APPROVED:
            what = f"{entry.subject} approved"
            yield _moment(TimelineKind.OPERATOR, entry.at, what, entry.message, session.name, by)
        elif entry.step == PAUSED_BY:
            yield _moment(
                TimelineKind.OPERATOR, entry.at, "paused", entry.message, session.name, by
            )
        elif not entry.step.startswith(_ELSEWHERE):
            yield _moment(TimelineKind.NODE, entry.at, entry.step, entry.message, session.name)


def _ended_by_operator(session: QuarantineView, entry: TimelineEntry, by: str) -> TimelineItem:
    asked = session.spec.release
    if asked is not None and asked.by != causes.DELETED_BY:
        by = asked.by or by
    what = "released" if entry.step == Phase.RELEASED else "session ended"
    text = (asked.reason if asked is not None else "") or entry.message
    return _moment(TimelineKind.OPERATOR, entry.at, what, text, session.name, by)


def _faults(health: HealthStatus) -> Iterator[TimelineItem]:
    for one in health.incidents:
        closed = f"closed by {one.closed_by}" if one.closed_by else ""
        where = ", ".join(explanations.places(one.reason, one.pci, one.gpus)[:4])
        yield TimelineItem(
            timeline=TimelineKind.FAULT,
            at=one.first_seen,
            until=one.closed_at or ("" if one.active else one.last_seen or one.first_seen),
            what=one.reason,
            state=one.severity,
            text="; ".join(filter(None, (where, closed))),
        )


def node_page(name: str, state: PageState) -> NodePage | None:
    """Everything that `/nodes/NAME` shows, also of a node that is gone and has sessions.

    None where there is neither a node nor a session of that name.
    """
    snapshot, now = state.snapshot, state.now
    node, sessions = snapshot.nodes.get(name), state.by_node.get(name, ())
    if node is None and not sessions:
        return None
    healths = snapshot.healths
    health = state.known(name) if node is not None else None
    status = health.status if health is not None else None
    stale = ""
    if node is not None and health is not None:
        found = state.health_now(node)
        stale = found.why if found.value == node_health.UNKNOWN else ""
    happened = node_timeline(sessions, status, now)
    return NodePage(
        replica=state.replica,
        name=name,
        node=fleet_view.node_row(node, state) if node is not None else None,
        health_source="none" if health is None else "live" if name in healths else "read",
        health=status,
        stale=stale,
        taints=tuple(_taints(node)) if node is not None else (),
        notes=tuple(_notes(node, state)) if node is not None else (),
        acts=acts_on(name, state),
        sessions=tuple(
            session_view.session_detail(session, state) for session in reversed(sessions)
        ),
        timeline=tuple(happened[-SHOWN_ITEMS:]),
        earlier=max(0, len(happened) - SHOWN_ITEMS),
    )


def gpus_with_readings(incident: IncidentStatus, health: HealthStatus) -> tuple[GpuStatus, ...]:
    """Return the GPUs of an active incident whose readings are published, in NVML order."""
    if not incident.active:
        return ()
    places = {*incident.gpus, *(incident.pci if not incident.gpus else ())} - {""}
    return tuple(
        gpu
        for gpu in health.gpus
        if gpu.readings is not None
        and not places.isdisjoint((gpu.uuid, pci_address.plain_address(gpu.pci)))
    )


def acts_on(name: str, state: PageState) -> tuple[OperatorAction, ...]:
    """What an operator can do about the node (`node_acts`), and for a node in service what takes
    it out; nothing of a node that is gone: whatever was written for it would change nothing.
    """
    snapshot = state.snapshot
    node = snapshot.nodes.get(name)
    if node is None:
        return ()
    session = state.open_session(name)
    pauses = [
        pause
        for pause in snapshot.pauses.values()
        if exclusions.pause_covers(pause, node, state.now)
    ]
    people = operators.decided(node, session, pauses, state.now)
    found = operators.node_acts(
        name, session, causes.cause_context(node, snapshot), people=people, pauses=pauses
    )
    if session is not None or quarantine_taint.quarantined(node):
        return found
    return (
        *operators.taking_out(name, people, shadow=snapshot.policy_of(node).mode == Mode.SHADOW),
        *found,
    )


def _taints(node: NodeView) -> Iterator[str]:
    """Taints and cordon of the node with their owners."""
    for taint in node.spec.taints:
        if taint.key != _CORDON_TAINT:
            owner = "gpuward" if taint.key == names.TAINT_QUARANTINE else "not gpuward"
            yield f"taint {taint.key}={taint.value}:{taint.effect} ({owner})"
    if node.spec.unschedulable:
        note = quarantine_taint.read_note(node)
        owner = "gpuward" if note else "not gpuward"
        if note and note.prior_unschedulable:
            owner = "not gpuward: it was cordoned before, and stays so after a release"
        yield f"cordoned ({owner})"


def _notes(node: NodeView, state: PageState) -> Iterator[str]:
    policy = state.snapshot.policy_of(node)
    if policy.shown_name:
        yield f"Policy: {policy.name}, mode {policy.mode}."
    if clock := operators.clock_message(node, state.known(node.name), state.now):
        yield sentence(clock)
    if reason := node.annotations.get(names.ANNOTATION_HOLD):
        yield f"Held: {reason}"
    if failed := exclusions.failed_owner(node):
        yield sentence(failed)
    if exclusions.opted_out(node):
        yield "Opted out: gpuward reports faults and does not change the node."
    if unheard := halts.invalid_opt_out(node):
        yield sentence(unheard)
    for record in state.snapshot.records.values():
        here = record.status.node == node.name and not record.doubt
        if here and gpu_record.is_repeat_offender(record.status, state.now):
            yield gpu_record.fault_summary(record.status, state.now)
    for name, pause in sorted(state.snapshot.pauses.items()):
        if exclusions.pause_covers(pause, node, state.now):
            by = f" by {pause.spec.by}" if pause.spec.by else ""
            yield f"Paused{by} ({name}, {operators.pause_scope(pause)}): {pause.spec.reason}"
