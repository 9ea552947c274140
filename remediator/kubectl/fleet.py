"""`kubectl gpuward fleet`: totals, and every GPU node that is not well, most severe first."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from remediator.kubectl.cluster import Cluster
from remediator.kubectl.command import Answer, Items, Terminal, table
from remediator.kubectl.in_force import of_policy, readable_policy
from remediator.kubectl.node_look import phase_words
from remediator.view.people import (
    HELD,
    MUSTS,
    OPTED_OUT,
    PAUSED,
    is_paused,
    mark_stays,
    part_of_people,
    pause_lines,
)
from rules.api.names import API_VERSION, LABEL_GPUS
from rules.api.nodes import HealthView, NodeView, QuarantineView
from rules.api.quarantine import gravest_reason
from rules.api.sentences import some
from rules.fleet.node_health import HealthNow, health_now, silent_together
from rules.session.observation import is_open
from rules.session.status import blocked_by, condition
from rules.text.printable import count, printable

_SEVERITY: Final = {"Unhealthy": 0, "Unknown": 1, "Degraded": 2, "Healthy": 3}
_LOST: Final = "sessions are paused by a GPUWardPause that was lost: create one and end it"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """One GPU node; without leave to read nodes only what its verdict says."""

    name: str
    node: NodeView | None
    health: HealthView | None
    session: QuarantineView | None
    """Open, or ended with its taint and cordon still on the node."""
    now: HealthNow
    people: tuple[str, ...]
    """What people decided about it, and what it needs them for."""

    @property
    def cordoned(self) -> bool:
        return self.node is not None and self.node.spec.unschedulable

    @property
    def notable(self) -> bool:
        """A pause alone is no reason to look at a node: it is said above the table."""
        decided = any(word != PAUSED for word in self.people)
        return self.now.word != "Healthy" or self.session is not None or self.cordoned or decided

    @property
    def reason(self) -> str:
        """The verdict's reason where it is not well, else the session's cause."""
        if self.health is not None and self.health.status.health != "Healthy":
            return self.health.status.reason
        if self.now.code or self.session is None:
            return self.now.code or ("CordonedByOthers" if self.cordoned else "")
        if mark_stays(self.session):
            return blocked_by(self.session.status) or "MarkStays"
        return gravest_reason(self.session.spec.causes) if self.session.spec.causes else ""

    def item(self) -> dict[str, object]:
        """As `-o json` has it, and the cells of the table."""
        return {
            "apiVersion": API_VERSION,
            "kind": "GPUNodeSummary",
            "metadata": {"name": self.name},
            "health": self.now.word,
            "gpusHealthy": self.health.status.gpus_healthy if self.health is not None else "",
            "reason": self.reason,
            "unschedulable": self.cordoned,
            "people": list(self.people),
            "phase": (self.session.status.phase or "Pending") if self.session is not None else "",
            "session": self.session.name if self.session is not None else "",
        }


async def fleet(cluster: Cluster, options: argparse.Namespace, _: Terminal) -> Answer:
    """One line of totals, then the nodes to look at; with -o wide every node."""
    wanted = f"{LABEL_GPUS},{options.selector}" if options.selector else LABEL_GPUS
    # Labels that may not be read cannot be compared, which is an error.
    nodes = await (
        cluster.nodes(wanted) if options.selector else cluster.readable(cluster.nodes(wanted))
    )
    healths = {health.metadata.name: health for health in await cluster.healths()}
    listed = [s for s in await cluster.sessions() if is_open(s) or mark_stays(s)]
    sessions = {s.spec.node_name: s for s in sorted(listed, key=is_open)}
    pauses = await cluster.pauses()
    policy, lines = await readable_policy(cluster, options.namespace)
    listed_agents = await cluster.readable(cluster.agents())
    agents = None if listed_agents is None else {pod.uid: pod for pod in listed_agents}
    now = cluster.now()
    by_name = {node.name: node for node in nodes or ()}
    rows = []
    for name in by_name if nodes is not None else healths:
        node, health, session = by_name.get(name), healths.get(name), sessions.get(name)
        state = health_now(node, health, agents, now)
        people = part_of_people(node, session, pauses, now, None if state.why else health)
        rows.append(
            _Row(name=name, node=node, health=health, session=session, now=state, people=people)
        )
    rows.sort(key=lambda row: (_SEVERITY.get(row.now.word, 1), row.name))
    if options.output in {"json", "yaml"}:
        found: Items = [row.item() for row in rows]
        return found
    if not rows:
        return (
            f"no GPU node has the labels {options.selector}"
            if options.selector
            else f"no node carries the label {LABEL_GPUS}: no agent has found a GPU yet; see "
            "kubectl get pods -A -l app.kubernetes.io/name=gpuward"
        )
    if nodes is None:
        lines.append("you may not list nodes: cordons and holds are not shown")
    if agents is None:
        lines.append("you may not list pods: that an agent is silent is known minutes later")
    elif silent := silent_together(agents.values()):
        lines.append(silent)
    held = sessions if not options.selector else {row.name: row.session for row in rows}
    shown_sessions = [session for session in held.values() if session is not None]
    if nodes is not None and (elsewhere := sorted({*held} - {*by_name})):
        lines.append(f"open sessions of what is no GPU node, or gone: {some(elsewhere)}")
    in_force = pause_lines(pauses, now)
    if not in_force and any(map(is_paused, shown_sessions)):
        in_force = [_LOST]
    lines = [_totals(rows, shown_sessions), *of_policy(policy, by_name.values()), *lines]
    lines += [*_breaker_lines(shown_sessions), *in_force]
    wide = options.output == "wide"
    shown = [row for row in rows if wide or row.notable]
    return "\n".join([*map(printable, lines), *(["", _table(shown, wide=wide)] if shown else [])])


def _breaker_lines(sessions: Iterable[QuarantineView]) -> list[str]:
    """That the breaker holds nodes back and why, once for all that wait for the same."""
    held: Counter[tuple[str, str]] = Counter()
    for session in sessions:
        storm = condition(session.status, "Storm")
        if storm is not None and storm.status == "True":
            held[storm.reason, storm.message] += 1
    return [
        f"{count(nodes, 'node')} held back ({reason}): {message}"
        for (reason, message), nodes in sorted(held.items())
    ]


def _totals(rows: Sequence[_Row], sessions: Sequence[QuarantineView]) -> str:
    words = Counter(row.now.word.lower() for row in rows)
    parts = ", ".join(f"{words[w]} {w}" for w in ("healthy", "degraded", "unhealthy", "unknown"))
    said = Counter(word for row in rows for word in row.people)
    people = "".join(f", {said[word]} {word}" for word in (HELD, PAUSED, OPTED_OUT) if said[word])
    if needed := sum(said[word] for word in MUSTS):
        people += f", {needed} {'needs' if needed == 1 else 'need'} operator action"
    return (
        f"{count(len(rows), 'GPU node')}: {parts}; {sum(row.cordoned for row in rows)} cordoned, "
        f"{count(sum(map(is_open, sessions)), 'open session')}{people}"
    )


def _table(rows: Sequence[_Row], *, wide: bool) -> str:
    header = ["NODE", "HEALTH", "USABLE", "PHASE", "PEOPLE", "REASON"]
    cells = []
    for row in rows:
        usable = row.health.status.gpus_healthy if row.health is not None else ""
        phase = phase_words(row.session) if row.session is not None else ""
        cells.append([row.name, row.now.word, usable, phase, ", ".join(row.people), row.reason])
        if wide:
            session = row.session.name if row.session is not None else ""
            cells[-1] += ["yes" if row.cordoned else "no", session]
    return table([*header, *(["CORDONED", "SESSION"] if wide else [])], cells)
