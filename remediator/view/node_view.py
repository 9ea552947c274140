"""One node as values: its verdict, its marks, what people wrote on it, its sessions. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from remediator.view.acts import acts_on
from remediator.view.clock_words import clock_said
from remediator.view.fleet_view import node_row
from remediator.view.people import pause_scope
from remediator.view.session_view import node_marks, rows_of
from remediator.view.shapes import MovedShown, NodeDetail, NodeTimeline
from remediator.view.state import PageState
from remediator.view.timeline import node_timeline
from rules.api.names import ANNOTATION_HOLD
from rules.api.nodes import HealthView, NodeView
from rules.fleet.happenings import records_by_now
from rules.fleet.health_now import UNKNOWN, HealthNow
from rules.ledger.places import Moved, came_from
from rules.ledger.record import RecordView
from rules.ledger.verdict import judge_record
from rules.session.halts import opt_out_unheard
from rules.session.observation import opted_out, pause_covers, pause_means
from rules.session.owners import failed_owner


def node_detail(node: NodeView, state: PageState) -> NodeDetail:
    """One node whole."""
    live = state.health(node.name)
    verdict = state.known(node.name)
    return NodeDetail(
        node=node_row(node, state),
        verdict="live" if live else "read" if verdict else "none",
        health=verdict.status if verdict else None,
        # Whoever looks must not take old words for new.
        stale=_stale(state.health_now(node)) if verdict is not None else "",
        marks=node_marks(node),
        notes=tuple(_notes(node, state)),
        moved=tuple(moved_shown(came_from(node.name, verdict, state.snapshot.records.values()))),
        acts=acts_on(node.name, state),
        sessions=rows_of(state.by_node.get(node.name, ())),
        timeline=_timeline(node, verdict, state),
    )


def _timeline(node: NodeView, verdict: HealthView | None, state: PageState) -> NodeTimeline:
    sessions = state.by_node.get(node.name, ())
    records = records_by_now(
        node.name, node, verdict, sessions, state.snapshot.records.values(), state.now
    )
    status = verdict.status if verdict else None
    pauses = [one for one in state.snapshot.pauses.values() if pause_means(one, node)]
    return node_timeline(node.name, sessions, status, records, state.now, pauses)


def moved_shown(found: Iterable[Moved]) -> list[MovedShown]:
    """Which other nodes to look at, and why."""
    return [MovedShown(node=one.node, said=one.clause) for one in found]


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
