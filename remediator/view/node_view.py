"""The page of one node: its health, taints, sessions and timeline. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from remediator.view.acts import acts_on
from remediator.view.fleet_view import node_row
from remediator.view.people import clock_said, pause_scope
from remediator.view.session_view import session_detail
from remediator.view.shapes import NodeMark, NodePage
from remediator.view.state import PageState
from remediator.view.timeline import SHOWN_ITEMS, node_timeline
from rules.api.mark import read_note
from rules.api.names import ANNOTATION_HOLD, TAINT_QUARANTINE
from rules.api.nodes import NodeView
from rules.fleet.node_health import UNKNOWN
from rules.session.halts import opt_out_unheard
from rules.session.observation import opted_out, pause_covers
from rules.session.owners import failed_owner
from rules.session.repeat_offenders import faults_said, is_repeat_offender
from rules.session.status import sentence

_CORDON_TAINT = "node.kubernetes.io/unschedulable"
"""Kubernetes adds it to every cordon; the cordon has its own line."""


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
        stale = found.why if found.word == UNKNOWN else ""
    happened = node_timeline(sessions, status, now)
    return NodePage(
        replica=state.replica,
        name=name,
        node=node_row(node, state) if node is not None else None,
        verdict="none" if health is None else "live" if name in healths else "read",
        health=status,
        stale=stale,
        marks=tuple(_marks(node)) if node is not None else (),
        notes=tuple(_notes(node, state)) if node is not None else (),
        acts=acts_on(name, state),
        sessions=tuple(session_detail(session, state) for session in reversed(sessions)),
        timeline=tuple(happened[-SHOWN_ITEMS:]),
        earlier=max(0, len(happened) - SHOWN_ITEMS),
    )


def _marks(node: NodeView) -> Iterator[NodeMark]:
    """Taints and cordon of the node, and whose they are."""
    for taint in node.spec.taints:
        if taint.key != _CORDON_TAINT:
            owner = "gpuward" if taint.key == TAINT_QUARANTINE else "not gpuward"
            yield NodeMark(what=f"taint {taint.key}={taint.value}:{taint.effect}", owner=owner)
    if node.spec.unschedulable:
        note = read_note(node)
        owner = "gpuward" if note else "not gpuward"
        if note and note.prior_unschedulable:
            owner = "not gpuward: it was cordoned before, and stays so after a release"
        yield NodeMark(what="cordoned", owner=owner)


def _notes(node: NodeView, state: PageState) -> Iterator[str]:
    if clock := clock_said(node, state.known(node.name), state.now):
        yield sentence(clock)
    if reason := node.annotations.get(ANNOTATION_HOLD):
        yield f"Held: {reason}"
    if failed := failed_owner(node):
        yield sentence(failed)
    if opted_out(node):
        yield "Opted out: this node is watched and reported, never touched."
    if unheard := opt_out_unheard(node):
        yield sentence(unheard)
    for record in state.snapshot.records.values():
        here = record.status.node == node.name and not record.doubt
        if here and is_repeat_offender(record.status, state.now):
            yield faults_said(record.status, state.now)
    for name, pause in sorted(state.snapshot.pauses.items()):
        if pause_covers(pause, node, state.now):
            by = f" by {pause.spec.by}" if pause.spec.by else ""
            yield f"Paused{by} ({name}, {pause_scope(pause)}): {pause.spec.reason}"
