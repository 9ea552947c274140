"""The page of one node: its verdict, marks, sessions and timeline. Pure."""

from __future__ import annotations

from remediator.view.acts import acts_on
from remediator.view.clock_words import clock_said
from remediator.view.fleet_view import node_row
from remediator.view.people import pause_scope
from remediator.view.session_view import node_marks, session_detail
from remediator.view.shapes import MovedShown, NodePage, NodeTimeline
from remediator.view.state import PageState
from remediator.view.timeline import node_timeline
from rules.api.names import ANNOTATION_HOLD
from rules.api.nodes import HealthView, NodeView
from rules.fleet.happenings import records_by_now
from rules.fleet.health_now import UNKNOWN, HealthNow
from rules.ledger.places import came_from, went_to
from rules.ledger.record import RecordView
from rules.ledger.verdict import judge_record
from rules.session.halts import opt_out_unheard
from rules.session.observation import opted_out, pause_covers, pause_means
from rules.session.owners import failed_owner


def node_page(name: str, state: PageState) -> NodePage | None:
    """Everything that `/nodes/NAME` shows, also of a node that is gone and has sessions.

    None where there is neither a node nor a session of that name.
    """
    node = state.snapshot.nodes.get(name)
    sessions = state.by_node.get(name, ())
    if node is None and not sessions:
        return None
    live, verdict = state.health(name), state.known(name) if node is not None else None
    healths, records = state.snapshot.healths.values(), state.snapshot.records.values()
    moved = went_to(name, healths, records) if node is None else came_from(name, verdict, records)
    return NodePage(
        replica=state.replica(),
        name=name,
        node=node_row(node, state) if node is not None else None,
        verdict="none" if verdict is None else "live" if live else "read",
        health=verdict.status if verdict is not None else None,
        stale=_stale(state.health_now(node)) if node is not None and verdict is not None else "",
        marks=node_marks(node) if node is not None else (),
        notes=tuple(_notes(node, state)) if node is not None else (),
        moved=tuple(MovedShown(node=one.node, said=one.clause) for one in moved),
        acts=acts_on(name, state),
        sessions=tuple(session_detail(session, state) for session in reversed(sessions)),
        timeline=_timeline(name, node, verdict, state),
    )


def _timeline(
    name: str, node: NodeView | None, verdict: HealthView | None, state: PageState
) -> NodeTimeline:
    sessions, snapshot = state.by_node.get(name, ()), state.snapshot
    records = records_by_now(name, node, verdict, sessions, snapshot.records.values(), state.now)
    pauses = [
        one for one in snapshot.pauses.values() if node is not None and pause_means(one, node)
    ]
    status = verdict.status if verdict is not None else None
    return node_timeline(name, sessions, status, records, state.now, pauses)


def _stale(now: HealthNow) -> str:
    return now.why if now.word == UNKNOWN else ""


def _notes(node: NodeView, state: PageState) -> list[str]:
    notes = []
    if clock := clock_said(node, state.known(node.name), state.now):
        notes.append(f"{clock[0].upper()}{clock[1:]}.")
    if reason := node.annotations.get(ANNOTATION_HOLD):
        notes.append(f"Held: {reason}")
    if failed := failed_owner(node):
        notes.append(f"{failed[0].upper()}{failed[1:]}.")
    if opted_out(node):
        notes.append("Opted out: this node is watched and reported, never touched.")
    if unheard := opt_out_unheard(node):
        notes.append(f"{unheard[0].upper()}{unheard[1:]}.")
    notes += [
        f"Fails again and again: {judge_record(record.status, state.now).message}"
        for record in lemons_of(node.name, state)
    ]
    for name, pause in sorted(state.snapshot.pauses.items()):
        if pause_covers(pause, node, state.now):
            by = f" by {pause.spec.by}" if pause.spec.by else ""
            notes.append(f"Paused{by} ({name}, {pause_scope(pause)}): {pause.spec.reason}")
    return notes


def lemons_of(node: str, state: PageState) -> list[RecordView]:
    """The lemons that are in the node now, GPUs and the node itself."""
    records = state.snapshot.records.values()
    return [r for r in records if not r.doubt and r.status.lemon and r.status.node == node]
