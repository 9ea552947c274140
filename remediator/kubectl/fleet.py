"""`kubectl gpuward fleet`: totals, and every GPU node that is not well, most severe first."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from remediator.kubectl.cluster import Cluster
from remediator.kubectl.command import Answer, Items, Terminal, table
from remediator.kubectl.node_look import phase_words
from remediator.kubectl.policy_in_force import of_policy, readable_policy
from remediator.view.people import (
    HELD,
    MUSTS,
    OPTED_OUT,
    PAUSED,
    mark_stays,
    part_of_people,
    pause_lines,
)
from rules.api.names import API_VERSION, LABEL_GPUS
from rules.api.nodes import HealthView, NodeView, QuarantineView
from rules.api.object_name import is_object_name
from rules.api.quarantine import gravest_reason
from rules.api.sentences import some
from rules.fleet.health_now import HealthNow, health_now
from rules.fleet.silent_together import silent_together
from rules.session.observation import is_open
from rules.session.status import BREAKER_IS_OPEN, blocked_by, condition
from rules.text.counted import count
from rules.text.printable import printable

_WORDS: Final = ("healthy", "degraded", "unhealthy", "unknown")
_SEVERITY: Final = {"Unhealthy": 0, "Unknown": 1, "Degraded": 2, "Healthy": 3}


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


async def fleet(cluster: Cluster, options: argparse.Namespace, _: Terminal) -> Answer:
    """One line of totals, then the nodes to look at; with -o wide every node."""
    wanted = f"{LABEL_GPUS},{options.selector}" if options.selector else LABEL_GPUS
    # Labels that may not be read cannot be compared, which is an error.
    nodes = await (cluster.nodes(wanted) if options.selector else cluster.readable_nodes(wanted))
    healths = {health.metadata.name: health for health in await cluster.healths()}
    listed = [s for s in await cluster.sessions() if is_open(s) or mark_stays(s)]
    sessions = {s.spec.node_name: s for s in sorted(listed, key=is_open)}
    pauses = await cluster.pauses()
    policy, lines = await readable_policy(cluster, options.namespace)
    agents = await cluster.readable_agents()
    now = cluster.now()
    by_name = {node.name: node for node in nodes or ()}
    rows = []
    for name in by_name if nodes is not None else healths:
        node, health, session = by_name.get(name), healths.get(name), sessions.get(name)
        state = health_now(node, health, agents, now)
        believed = health if not state.why else None
        people = part_of_people(node, session, pauses, now, believed)
        rows.append(
            _Row(name=name, node=node, health=health, session=session, now=state, people=people)
        )
    rows.sort(key=lambda row: (_SEVERITY.get(row.now.word, 1), row.name))
    if options.output in {"json", "yaml"}:
        return _items(rows)
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
    lines = [_totals(rows, shown_sessions), *of_policy(policy, by_name.values()), *lines]
    lines += [*_breaker_lines(shown_sessions), *pause_lines(pauses, now)]
    wide = options.output == "wide"
    shown = [row for row in rows if wide or row.notable]
    return "\n".join([*map(printable, lines), *(["", _table(shown, wide=wide)] if shown else [])])


def _breaker_lines(sessions: Iterable[QuarantineView]) -> list[str]:
    """That the breaker holds nodes back and why, said once for all that wait for the same."""
    held: dict[tuple[str, str], list[str]] = {}
    for session in sessions:
        storm = condition(session.status, "Storm")
        if storm is not None and storm.status == "True":
            why = storm.message.removeprefix(BREAKER_IS_OPEN).removesuffix(".")
            held.setdefault((storm.reason, why), []).append(session.spec.node_name)
    if not held:
        return []
    names = (name for nodes in held.values() for name in nodes)
    return [
        *(
            f"the breaker holds back {count(len(nodes), 'node')} ({reason})"
            + (f": {why}" if why else "")
            for (reason, why), nodes in sorted(held.items())
        ),
        f"what was seen: kubectl gpuward why {min(filter(is_object_name, names), default='NODE')}",
        'to keep what fails still in service: kubectl gpuward pause --reason "..."',
    ]


def _totals(rows: Sequence[_Row], sessions: Sequence[QuarantineView]) -> str:
    words = Counter(row.now.word.lower() for row in rows)
    parts = ", ".join(f"{words[word]} {word}" for word in _WORDS)
    opened = sum(map(is_open, sessions))
    said = Counter(word for row in rows for word in row.people)
    people = "".join(f", {said[word]} {word}" for word in (HELD, PAUSED, OPTED_OUT) if said[word])
    if needed := sum(said[word] for word in MUSTS):
        people += f", {needed} {'needs' if needed == 1 else 'need'} operator action"
    return (
        f"{count(len(rows), 'GPU node')}: {parts}; {sum(row.cordoned for row in rows)} cordoned, "
        f"{count(opened, 'open session')}{people}"
    )


def _table(rows: Sequence[_Row], *, wide: bool) -> str:
    header = ["NODE", "HEALTH", "USABLE", "PHASE", "PEOPLE", "REASON"]
    header += ["CORDONED", "PRODUCT", "DRIVER", "INTERCONNECT", "SESSION"] if wide else []
    cells = []
    for row in rows:
        labels = row.node.labels if row.node is not None else {}
        usable = row.health.status.gpus_healthy if row.health is not None else ""
        phase = phase_words(row.session) if row.session is not None else ""
        cells.append([row.name, row.now.word, usable, phase, ", ".join(row.people), row.reason])
        if wide:
            named = [labels.get(f"gpuward.io/{key}", "") for key in _LABELS]
            session = row.session.name if row.session is not None else ""
            cells[-1] += ["yes" if row.cordoned else "no", *named, session]
    return table(header, cells, spare=("USABLE", "PEOPLE", "PHASE"), wide=wide)


_LABELS: Final = ("product", "driver", "interconnect")


def _items(rows: Sequence[_Row]) -> Items:
    return [
        {
            "apiVersion": API_VERSION,
            "kind": "GPUNodeSummary",
            "metadata": {"name": row.name},
            "health": row.now.word,
            "gpusHealthy": row.health.status.gpus_healthy if row.health is not None else "",
            "reason": row.reason,
            "unschedulable": row.cordoned,
            "people": list(row.people),
            "phase": (row.session.status.phase or "Pending") if row.session is not None else "",
            "session": row.session.name if row.session is not None else "",
        }
        for row in rows
    ]
