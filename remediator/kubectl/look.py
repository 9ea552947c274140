"""The commands that only look: list, fleet, why, show, history."""

from collections import Counter
from typing import Any

from remediator.kubectl.cluster import Cluster, CommandError
from remediator.kubectl.text import NONE, age, columns, document
from remediator.kubectl.why import ended, open_session, why
from rules.health_object import plain
from rules.names import API_VERSION, LABEL_GPUS, LABEL_HEALTH
from rules.snapshot import FreshNode, HealthView, QuarantineView

GRAVITY = {"Unhealthy": 0, "Unknown": 1, "Degraded": 2, "Healthy": 3}


async def list_sessions(cluster: Cluster, *, form: str, all_sessions: bool) -> str:
    """Open sessions, or all of them."""
    found = [s for s in await cluster.sessions() if all_sessions or not ended(s)]
    if form in {"json", "yaml"}:
        return document({"items": [_wire(s) for s in found]}, form)
    if not found:
        return "no node is in quarantine" if not all_sessions else "there is no session yet"
    now = cluster.now()
    header = ["NODE", "PHASE", "SINCE", "REASON", "SESSION"]
    rows = [
        [
            s.spec.node_name,
            _phase(s),
            age(s.status.phase_since or s.metadata.creation_timestamp, now),
            _first_reason(s),
            s.name,
            *([s.status.message] if form == "wide" else []),
        ]
        for s in found
    ]
    return columns([*header, *(["MESSAGE"] if form == "wide" else [])], rows)


async def fleet(cluster: Cluster, *, form: str) -> str:
    """One line of totals, then every GPU node that is not plainly healthy."""
    nodes = await cluster.nodes(LABEL_GPUS)
    healths = {h.metadata.name: h for h in await cluster.healths()}
    sessions = {s.spec.node_name: s for s in await cluster.sessions() if not ended(s)}
    words = Counter(n.labels.get(LABEL_HEALTH, "unknown") for n in nodes)
    out = sum(n.spec.unschedulable for n in nodes)
    if form in {"json", "yaml"}:
        total: dict[str, Any] = {"nodes": len(nodes), "unschedulable": out, "health": dict(words)}
        return document(total, form)
    if not nodes:
        return (
            f"no node carries the label {LABEL_GPUS}: no agent has found a GPU yet; "
            "look at the gpuward-agent pods"
        )
    parts = ", ".join(f"{words[w]} {w}" for w in ("healthy", "degraded", "unhealthy", "unknown"))
    lines = [f"{len(nodes)} GPU nodes: {parts}; {out} cordoned, {len(sessions)} open sessions"]
    notable = [n for n in nodes if n.labels.get(LABEL_HEALTH) != "healthy" or n.name in sessions]
    if notable:
        lines += ["", columns(_FLEET_HEADER, _fleet_rows(notable, healths, sessions))]
    return "\n".join(lines)


_FLEET_HEADER = ("NODE", "HEALTH", "GPUS", "PHASE", "REASON")


def _fleet_rows(
    nodes: list[Any], healths: dict[str, HealthView], sessions: dict[str, QuarantineView]
) -> list[list[str]]:
    rows = []
    for node in nodes:
        status = healths[node.name].status if node.name in healths else None
        session = sessions.get(node.name)
        health = status.health if status else "Unknown"
        rows.append(
            (
                GRAVITY.get(health, 1),
                [
                    node.name,
                    health,
                    status.gpus_healthy if status else "",
                    _phase(session) if session else "",
                    (status.reason if status else "")
                    or (_first_reason(session) if session else ""),
                ],
            )
        )
    return [row for _, row in sorted(rows)]


async def why_node(cluster: Cluster, name: str, *, form: str) -> str:
    """Everything about one node, in short lines."""
    node = await cluster.node(name)
    sessions = await cluster.sessions(name)
    if node is None:
        return _gone(name, sessions, cluster.now())
    health = await cluster.health(name)
    if form in {"json", "yaml"}:
        session = open_session(sessions)
        return document(
            {
                "node": name,
                "unschedulable": node.spec.unschedulable,
                "health": plain(health.status) if health else None,
                "session": _wire(session) if session else None,
            },
            form,
        )
    return "\n".join(why(node, health, sessions, await cluster.pauses(), cluster.now()))


def _gone(name: str, sessions: list[QuarantineView], now: float) -> str:
    if not sessions:
        raise CommandError(f"there is no node {name}, and there never was a session on one")
    last = sessions[-1]
    when = age(last.status.phase_since or last.metadata.creation_timestamp, now)
    return (
        f"{name}: the node is gone from the cluster; its last session {last.name} is "
        f"{_phase(last)} since {when}\n  {last.status.message}"
    )


async def show(cluster: Cluster, name: str, *, form: str) -> str:
    """One session whole."""
    session = await cluster.session(name)
    if session is None:
        raise CommandError(f"there is no session {name}; kubectl gpuward list --all names them")
    return document(_wire(session), form if form in {"json", "yaml"} else "yaml")


async def history(cluster: Cluster, name: str, *, form: str) -> str:
    """All sessions of one node, oldest first."""
    sessions = await cluster.sessions(name)
    if form in {"json", "yaml"}:
        return document({"items": [_wire(s) for s in sessions]}, form)
    if not sessions:
        return f"{name} has never been in quarantine"
    rows = [
        [
            s.metadata.creation_timestamp or NONE,
            _phase(s),
            _first_reason(s),
            str(s.status.drain.evicted if s.status.drain else 0),
            s.status.message,
        ]
        for s in sessions
    ]
    return columns(["OPENED", "PHASE", "REASON", "EVICTED", "MESSAGE"], rows)


async def existing_node(cluster: Cluster, name: str) -> FreshNode:
    """The node, or CommandError that says so."""
    node = await cluster.node(name)
    if node is None:
        raise CommandError(f"there is no node {name}; kubectl get nodes lists them")
    return node


def _phase(session: QuarantineView) -> str:
    phase = session.status.phase or "Pending"
    return f"{phase} (Shadow)" if session.status.mode == "Shadow" else phase


def _first_reason(session: QuarantineView) -> str:
    causes = session.spec.causes
    more = f" +{len(causes) - 1}" if len(causes) > 1 else ""
    return f"{causes[0].reason or causes[0].source}{more}" if causes else ""


def _wire(session: QuarantineView) -> dict[str, Any]:
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
