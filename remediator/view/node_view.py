"""One node as values: its verdict, its marks, what people wrote on it, its sessions. Pure."""

from __future__ import annotations

from remediator.view.fleet_view import node_row
from remediator.view.people import pause_scope
from remediator.view.session_view import node_marks, rows_of
from remediator.view.shapes import NodeDetail
from remediator.view.state import PageState
from rules.api.names import ANNOTATION_HOLD, LABEL_OPT_OUT
from rules.api.nodes import HealthView, NodeView
from rules.api.quarantine import TimelineEntry
from rules.session.observation import pause_covers

SHOWN_STEPS = 60


def node_detail(node: NodeView, state: PageState) -> NodeDetail:
    """One node whole."""
    live = state.health(node.name)
    verdict = state.known(node.name)
    return NodeDetail(
        node=node_row(node, state),
        verdict="live" if live else "read" if verdict else "none",
        health=verdict.status if verdict else None,
        marks=node_marks(node),
        notes=tuple(_notes(node, state)),
        sessions=rows_of(state.by_node.get(node.name, ())),
        timeline=_timeline(node.name, verdict, state),
    )


def _timeline(
    name: str, verdict: HealthView | None, state: PageState
) -> tuple[TimelineEntry, ...]:
    """Faults and steps of all sessions in one row, oldest first; the last of them."""
    found = [
        TimelineEntry(at=step.at, step=step.step, message=step.message, by=step.by)
        for session in state.by_node.get(name, ())
        for step in session.status.timeline
    ]
    for one in verdict.status.incidents if verdict is not None else ():
        where = f" on {', '.join(one.pci[:4])}" if one.pci else ""
        fault = f"{one.reason} ({one.severity}){where}"
        found.append(TimelineEntry(at=one.first_seen, step="Fault", message=fault, by="agent"))
        if one.closed_at:
            by = f"closed by {one.closed_by}" if one.closed_by else "closed"
            found.append(
                TimelineEntry(
                    at=one.closed_at, step="Closed", message=f"{one.reason}: {by}", by="agent"
                )
            )
    found.sort(key=lambda step: step.at)
    return tuple(found[-SHOWN_STEPS:])


def _notes(node: NodeView, state: PageState) -> list[str]:
    notes = []
    if reason := node.annotations.get(ANNOTATION_HOLD):
        notes.append(f"Held: {reason}")
    if node.labels.get(LABEL_OPT_OUT) == "true":
        notes.append("Opted out: this node is watched and reported, never touched.")
    for name, pause in sorted(state.snapshot.pauses.items()):
        if pause_covers(pause, node, state.now):
            by = f" by {pause.spec.by}" if pause.spec.by else ""
            notes.append(f"Paused{by} ({name}, {pause_scope(pause)}): {pause.spec.reason}")
    return notes
