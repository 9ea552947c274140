"""`kubectl gpuward why`: one node, or the node of a pod, as lines for a person or as a value."""

from __future__ import annotations

import argparse
import sys
from typing import Any

import msgspec

from remediator.kubectl.cluster import Cluster, unreadable
from remediator.kubectl.command import Answer, CommandError, Terminal, labelled, width_for
from remediator.kubectl.node_look import NodeLook, leading_reason, look_at, nearest, phase_words
from remediator.kubectl.why.why import sessions_of
from remediator.kubectl.why.why import why as told
from remediator.view.times import age
from rules.api.health import plain
from rules.api.mark import read_note
from rules.api.names import ANNOTATION_HOLD, API_VERSION
from rules.api.nodes import QuarantineView
from rules.api.object_name import api_path
from rules.api.pods import PodView
from rules.ledger.places import went_to
from rules.session.observation import is_open, opted_out
from rules.text.printable import printable


async def why(cluster: Cluster, options: argparse.Namespace, _: Terminal) -> Answer:
    """Everything about one node, or about a pod (NAMESPACE/NAME) and its node."""
    values = options.output in {"json", "yaml"}
    namespace, slash, name = str(options.node).rpartition("/")
    above = ""
    if slash:
        above, name = await _pod(cluster, namespace, name)
    look = await look_at(cluster, name, namespace=options.namespace)
    if look.node is None and not look.node_hidden and not look.sessions:
        raise CommandError(f"there is no node {name}{await nearest(cluster, name)}")
    if values:
        return [_item(look)]
    gone = look.node is None and not look.node_hidden
    wide, width = options.output == "wide", width_for(sys.stdout)
    lines = await _gone(cluster, look) if gone else told(look, wide=wide, width=width)
    return "\n".join([*([above, ""] if above else []), *lines])


async def _pod(cluster: Cluster, namespace: str, name: str) -> tuple[str, str]:
    """A line about the pod, and the node to tell of: where it is, or else the newest node whose
    drain moved it.
    """
    pod, called = f"{namespace}/{name}", printable(f"pod {namespace}/{name}")
    unseen = ""
    try:
        found = await cluster.get(api_path("/api/v1/namespaces", namespace, "pods", name))
    except CommandError as error:
        if not error.forbidden:
            raise
        found, unseen = None, f"; you may not get pods in {namespace}"
    if found is not None:
        try:
            node = msgspec.convert(found, PodView).spec.node_name
        except msgspec.ValidationError as error:
            raise CommandError(unreadable(error)) from error
        if node:
            return f"{called} is on node {node}", node
    naming = [one for one in await cluster.sessions() if pod in _pods_named(one)]
    if not naming:
        raise CommandError(
            f"{called} is on no node, and no session names it{unseen}; see kubectl -n {namespace} "
            f"get events --field-selector involvedObject.name={name}"
        )
    last = max(naming, key=lambda one: one.metadata.creation_timestamp or "")
    reason = f"{last.spec.node_name} ({leading_reason(last)}, session {last.name})"
    return printable(f"{called} was moved by the drain of {reason}{unseen}"), last.spec.node_name


def _pods_named(session: QuarantineView) -> frozenset[str]:
    """The pods that the session's drain names, as `NAMESPACE/NAME`: of many, the last."""
    drain = session.status.drain
    if drain is None:
        return frozenset()
    told = (drain.waiting, drain.left_by_policy, drain.left_by_failure)
    blocked = (block.pods for block in drain.blocked)
    return frozenset(drain.recent).union(*(pods.names for pods in (*told, *blocked)))


async def _gone(cluster: Cluster, look: NodeLook) -> list[str]:
    """A node that is no more: what its last session kept."""
    last = look.sessions[-1]
    since = age(last.status.phase_since or last.metadata.creation_timestamp, look.now)
    lines = [f"{look.name}: there is no such node any more"]
    lines += labelled("last", [f"session {last.name} is {phase_words(last)} for {since}"])
    lines += labelled("", [last.status.message] if last.status.message else [])
    kept = last.status.evidence.get("incidents")
    causes = []
    for incident in kept if isinstance(kept, list) else ():
        if isinstance(incident, dict):
            causes.append(f"{incident.get('reason', '?')} ({incident.get('severity', '?')})")
            causes += [f"  > {line}" for line in incident.get("evidence", ())]
    lines += labelled("cause", causes)
    try:
        moved = went_to(look.name, await cluster.healths(), await cluster.records())
    except CommandError:
        moved = ()  # who may not read them is told the rest
    lines += labelled("now", [f"{one.clause}: kubectl gpuward why {one.node}" for one in moved])
    return lines + labelled("before", [sessions_of(look.name)])


def _item(look: NodeLook) -> dict[str, Any]:
    node, session = look.node, look.session or (look.sessions[-1] if look.sessions else None)
    note = read_note(node) if node is not None else None
    return {
        "apiVersion": API_VERSION,
        "kind": "GPUNodeExplanation",
        "metadata": {"name": look.name},
        "exists": None if look.node_hidden else node is not None,
        "unschedulable": node.spec.unschedulable if node is not None else None,
        "mark": plain(note) if note is not None else None,
        "hold": node.annotations.get(ANNOTATION_HOLD) if node is not None else None,
        "optedOut": opted_out(node) if node is not None else None,
        "people": list(look.people),
        "stale": look.stale or None,
        "health": plain(look.health.status) if look.health is not None else None,
        "session": _session(session) if session is not None else None,
        "ended": [one.name for one in look.sessions if not is_open(one)],
        "pauses": [{"name": p.metadata.name, **plain(p.spec)} for p in look.pauses],
        "lines": told(look, wide=True),
        "unseen": list(look.unseen),
    }


def _session(session: QuarantineView) -> dict[str, Any]:
    return {
        "name": session.name,
        "open": is_open(session),
        "spec": plain(session.spec),
        "status": plain(session.status),
    }
