"""The commands that only look: list, why, show; `fleet` and `history` are elsewhere."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from remediator.kubectl.cluster import GROUP_PATH, Cluster
from remediator.kubectl.command import CommandError
from remediator.kubectl.fleet_look import NODES_HIDDEN, breaker_lines, gpu_nodes
from remediator.kubectl.ready.policy_said import readable_policy
from remediator.kubectl.terminal import Terminal
from remediator.view.people import must_of, needs_verdict, part_of_people, pause_lines
from remediator.view.session_words import askers, leading_reason, mark_stays, phase_words
from remediator.view.shared_waits import shared_waits, without
from remediator.view.text import age, document, labelled, table, width_for
from rules.api.health import plain
from rules.api.names import ANNOTATION_HOLD, API_VERSION
from rules.api.nodes import FreshNode, HealthView, NodeView, PauseView, QuarantineView
from rules.api.object_name import is_object_name
from rules.api.sentences import some
from rules.fleet.health_now import health_now
from rules.session.observation import is_open, opted_out
from rules.text.printable import printable

if TYPE_CHECKING:
    from remediator.kubectl.node_look import NodeLook
    from remediator.kubectl.why.pod_look import AskedPod
    from rules.ledger.places import Moved

_MOST_VERDICTS: Final = 50
"""So many are read one by one; of further nodes PEOPLE says what is known without."""


async def list_sessions(cluster: Cluster, options: argparse.Namespace, _: Terminal) -> str:
    """Open sessions, or all of them, by node; above them what people decided for the fleet."""
    wide = options.output == "wide"
    sessions = await cluster.sessions()
    pauses = await cluster.pauses()
    nodes = await gpu_nodes(cluster, options.selector or "")
    by_name = {node.name: node for node in nodes or ()}
    found = [
        s
        for s in sessions
        if (options.all or is_open(s) or mark_stays(s))
        and (not options.selector or s.spec.node_name in by_name)
    ]
    found.sort(key=lambda s: (s.spec.node_name, s.metadata.creation_timestamp, s.name))
    if options.output in {"json", "yaml"}:
        return document(wire_list(found), options.output)
    now = cluster.now()
    healths = await _verdicts(cluster, found)
    waits = shared_waits(found)
    lines = [
        *(await readable_policy(cluster, options.namespace))[1],
        *([NODES_HIDDEN] if nodes is None else []),
        *breaker_lines(found),
        *(wait.line for wait in waits if not wait.storm),
        *pause_lines(pauses, now),
        *_held_without(by_name.values(), sessions),
    ]
    said = [printable(line) for line in lines]
    if not found:
        return "\n".join([*said, _none(options, some_node=bool(by_name))])
    clauses = [wait.clause for wait in waits]
    rows = [
        [
            s.spec.node_name,
            phase_words(s),
            age(s.status.phase_since or s.metadata.creation_timestamp, now),
            leading_reason(s),
            _blocked(s),
            _people(s, by_name.get(s.spec.node_name), pauses, now, healths),
            s.name,
            *((s.spec.level, askers(s), without(s.status.message, clauses)) if wide else ()),
        ]
        for s in found
    ]
    header = ["NODE", "PHASE", "SINCE", "REASON", "BLOCKED", "PEOPLE", "SESSION"]
    header += ["LEVEL", "BY", "MESSAGE"] if wide else []
    told = table(header, rows, spare=("SESSION", "SINCE", "BLOCKED", "PEOPLE"), wide=wide)
    return "\n".join([*said, *([""] if said else []), told])


def _none(options: argparse.Namespace, *, some_node: bool) -> str:
    """A label that was mistyped must not look like a fleet that is well."""
    if not options.selector:
        return "there is no session yet" if options.all else "no node is in quarantine"
    if not some_node:
        return f"no GPU node has the labels {options.selector}"
    what = "has a session" if options.all else "is in quarantine"
    return f"no node with the labels {options.selector} {what}"


async def _verdicts(cluster: Cluster, sessions: Iterable[QuarantineView]) -> dict[str, HealthView]:
    """Of the nodes whose PEOPLE rest on them, which are few: those of a whole fleet are heavy."""
    names = [s.spec.node_name for s in sessions if is_open(s) and needs_verdict(s)]
    try:
        asked = [name for name in names[:_MOST_VERDICTS] if is_object_name(name)]
        found = [await cluster.health(name) for name in asked]
    except CommandError:  # who may not read them is told the rest all the same
        return {}
    return {health.metadata.name: health for health in found if health is not None}


def _people(
    session: QuarantineView,
    node: NodeView | None,
    pauses: list[PauseView],
    now: float,
    healths: Mapping[str, HealthView],
) -> str:
    """What people decided about the session's node, and what it needs them for; nothing matters
    to one that has ended and let go of its node.
    """
    if not is_open(session):
        return must_of(session) if mark_stays(session) else ""
    health = healths.get(session.spec.node_name)
    believed = health if not health_now(node, health, None, now).why else None
    return ", ".join(part_of_people(node, session, pauses, now, believed))


def _held_without(nodes: Iterable[NodeView], sessions: list[QuarantineView]) -> list[str]:
    """Held nodes that no row shows."""
    opened = {session.spec.node_name for session in sessions if is_open(session)}
    held = [
        node.name
        for node in nodes
        if ANNOTATION_HOLD in node.annotations and node.name not in opened
    ]
    return [f"held without a session: {some(held)}"] if held else []


async def why_node(cluster: Cluster, options: argparse.Namespace, _: Terminal) -> str:
    """Everything about one node, or a pod and its node, in short lines."""
    from remediator.kubectl.node_look import look_at
    from remediator.kubectl.why.pod_look import AskedPod, asked_pod

    pod = asked_pod(options)
    if pod is not None:
        return await _why_pod(cluster, options, pod)
    look = await look_at(cluster, options.node, namespace=options.namespace)
    if look.node is None and not look.node_hidden:
        if not look.sessions:
            return await _why_pod(cluster, options, AskedPod(name=look.name), or_node=True)
        return await _gone(cluster, look, options.output)
    return _why_told(look, options)


def _why_told(look: NodeLook, options: argparse.Namespace) -> str:
    if options.output in {"json", "yaml"}:
        return document(_why_document(look), options.output)
    from remediator.kubectl.why.why import why

    # Of several nodes that one command is about, what holds all of them is said at the first.
    said = getattr(options, "said", None)
    wide = options.output == "wide"
    return "\n".join(why(look, wide=wide, width=width_for(sys.stdout), said=said))


async def _why_pod(
    cluster: Cluster, options: argparse.Namespace, asked: AskedPod, *, or_node: bool = False
) -> str:
    """What is known about a pod, then about its node; `or_node`: it was looked for as one."""
    from remediator.kubectl.node_look import look_at
    from remediator.kubectl.why.pod import pod_document, pod_lines, several_lines
    from remediator.kubectl.why.pod_look import look_at_pods

    pods, unseen = await look_at_pods(cluster, asked)
    if not pods:
        unknown = f"nothing is known of a pod {asked.name}"
        if or_node:
            unknown = f"there is no node {asked.name}, and {unknown}"
        hidden = f"; not seen: {'; '.join(unseen)}" if unseen else ""
        raise CommandError(f"{unknown}{await nearest(cluster, asked.name)}{hidden}")
    nodes = {pod.node for pod in pods} if len(pods) == 1 else set()
    looks = [await look_at(cluster, name, namespace=options.namespace) for name in nodes if name]
    if options.output in {"json", "yaml"}:
        whys = [_why_document(look) for look in looks]
        value = [pod_document(pod, *whys) for pod in pods]
        return document(value[0] if len(value) == 1 else {"pods": value}, options.output)
    if len(pods) > 1:
        return "\n".join(several_lines(pods))
    parts = ["\n".join(pod_lines(pods[0])), *(_why_told(look, options) for look in looks)]
    return "\n\n".join(parts)


def _why_document(look: NodeLook) -> dict[str, Any]:
    from remediator.kubectl.why.why import why
    from rules.api.mark import read_note

    node, session = look.node, look.session
    note = read_note(node) if node else None
    return {
        "node": look.name,
        "exists": node is not None or None,
        "unschedulable": node.spec.unschedulable if node else None,
        "mark": plain(note) if note else None,
        "hold": node.annotations.get(ANNOTATION_HOLD) if node else None,
        "optedOut": opted_out(node) if node else None,
        "people": list(look.people),
        "stale": look.stale or None,
        "health": plain(look.health.status) if look.health else None,
        "session": wire(session) if session else None,
        "ended": [s.name for s in look.sessions if not is_open(s)],
        "pauses": [{"name": p.metadata.name, **plain(p.spec)} for p in look.pauses],
        "lines": why(look, wide=True),
        "unseen": list(look.unseen),
    }


async def _gone(cluster: Cluster, look: NodeLook, form: str) -> str:
    last = look.sessions[-1]
    if form in {"json", "yaml"}:
        value = {"node": look.name, "exists": False, "session": wire(last)}
        return document(value, form)
    since = age(last.status.phase_since or last.metadata.creation_timestamp, look.now)
    lines = [f"{look.name}: there is no such node any more"]
    lines += labelled("last", [f"session {last.name} is {phase_words(last)} for {since}"])
    lines += labelled("", [last.status.message] if last.status.message else [])
    evidence = last.status.evidence.get("incidents")
    lines += labelled("cause", _kept(evidence if isinstance(evidence, list) else []))
    moved = await _elsewhere(cluster, look)
    lines += labelled("now", [f"{one.clause}: kubectl gpuward why {one.node}" for one in moved])
    lines += labelled("before", [f"kubectl gpuward history {look.name}"])
    return "\n".join(lines)


async def _elsewhere(cluster: Cluster, look: NodeLook) -> tuple[Moved, ...]:
    """Where the GPUs of a node that is gone are now; nothing where that may not be read."""
    from rules.ledger.places import went_to

    try:
        records, healths = await cluster.records(), await cluster.healths()
    except CommandError:
        return ()
    return went_to(look.name, healths, records)


def _kept(incidents: list[Any]) -> list[str]:
    """Reasons and evidence that the session kept: they survive the node."""
    lines = []
    for incident in incidents:
        if isinstance(incident, dict):
            lines.append(f"{incident.get('reason', '?')} ({incident.get('severity', '?')})")
            lines += [f"  > {line}" for line in incident.get("evidence", ())]
    return lines


async def show(cluster: Cluster, options: argparse.Namespace, _: Terminal) -> str:
    """One session as its object, as the API server has it."""
    found = await cluster.get(f"{GROUP_PATH}/gpuquarantines/{options.session}")
    if found is None and (of_node := await cluster.sessions(options.session)):
        found = await cluster.get(f"{GROUP_PATH}/gpuquarantines/{of_node[-1].name}")
    if found is None:
        if await is_node(cluster, options.session):
            raise CommandError(f"{options.session} is a node, and there is no session of it")
        near = near_name(options.session, [one.name for one in await cluster.sessions()])
        lists = "; kubectl gpuward list --all names them"
        raise CommandError(f"there is no session {options.session}{near or lists}")
    found.get("metadata", {}).pop("managedFields", None)
    return document(found, options.output or "yaml")


async def existing_node(cluster: Cluster, name: str) -> FreshNode:
    """The node, or CommandError that says so."""
    node = await cluster.node(name)
    if node is None:
        past = await cluster.sessions(name)
        if past:
            # Another node of a like name is not what was meant: this one has been here.
            known = f"its last session is {phase_words(past[-1])}"
            raise CommandError(
                f"there is no node {name} any more, {known}: kubectl gpuward why {name}"
            )
        raise CommandError(f"there is no node {name}{await nearest(cluster, name)}")
    return node


async def nearest(cluster: Cluster, name: str) -> str:
    """`; did you mean NAME?`, or where to look for names."""
    try:
        names = [node.name for node in await cluster.nodes()]
    except CommandError:
        names = []
    return near_name(name, names) or "; kubectl get nodes lists them"


async def is_node(cluster: Cluster, name: str) -> bool:
    """Whether there is one, so that a like name is not what was meant."""
    try:
        return await cluster.node(name) is not None
    except CommandError as error:
        if not error.forbidden:
            raise
    # A node that may not be read and has a verdict is one.
    return await cluster.health(name) is not None


def near_name(wanted: str, names: Iterable[str]) -> str:
    """`; did you mean NAME?` of names that begin so or are spelled alike; "" where none is."""
    import difflib

    # Nothing in Kubernetes is told apart by capitals alone.
    known = {name.lower(): name for name in sorted(names)}
    begun = wanted.lower()
    longer = [name for name in known if name.startswith(begun)]
    near = longer or difflib.get_close_matches(begun, known, n=1, cutoff=0.75)
    return f"; did you mean {known[near[0]]}?" if near else ""


def _blocked(session: QuarantineView) -> str:
    conditions = session.status.conditions
    for kind in ("Blocked", "Paused", "NodeUnreachable"):
        for condition in conditions:
            if condition.type == kind and condition.status == "True":
                return condition.reason
    return ""


def wire(session: QuarantineView) -> dict[str, Any]:
    """The session as an API object."""
    return {
        "apiVersion": API_VERSION,
        "kind": "GPUQuarantine",
        "metadata": {
            "name": session.name,
            "uid": session.metadata.uid,
            "creationTimestamp": session.metadata.creation_timestamp,
        },
        "spec": plain(session.spec),
        "status": plain(session.status),
    }


def wire_list(sessions: list[QuarantineView]) -> dict[str, Any]:
    """Several as a List."""
    return {"apiVersion": "v1", "kind": "List", "items": [wire(s) for s in sessions]}
