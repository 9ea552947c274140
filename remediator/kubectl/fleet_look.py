"""`kubectl gpuward fleet`: totals, and every GPU node that is not plainly well, gravest first."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from remediator.kubectl.cluster import Cluster
from remediator.kubectl.ready.policy_said import of_policy, readable_policy
from remediator.kubectl.terminal import Terminal
from remediator.view.clock_words import clocks_said
from remediator.view.gpu_nodes import has_gpus
from remediator.view.people import (
    GIVEN_BACK,
    HELD,
    MUSTS,
    OPTED_OUT,
    PAUSED,
    part_of_people,
    pause_lines,
)
from remediator.view.session_words import mark_stays, phase_words
from remediator.view.shared_waits import shared_waits
from remediator.view.text import document, table
from rules.api.names import LABEL_GPUS
from rules.api.nodes import HealthView, NodeView, QuarantineView
from rules.api.object_name import is_object_name
from rules.api.quarantine import gravest_reason
from rules.api.sentences import some
from rules.catalog.why_not import WhyNot
from rules.fleet.common import CommonCause, common_causes, common_causes_by
from rules.fleet.health_now import HealthNow, health_now
from rules.fleet.silent_together import silent_together
from rules.policy.policy import Policy
from rules.session.history import RELEASED, left_alone
from rules.session.observation import is_open
from rules.session.status import BREAKER_IS_OPEN, blocked_by, condition
from rules.text.counted import count
from rules.text.printable import printable

NODES_HIDDEN: Final = "you may not list nodes: cordons and holds are not shown"
_GRAVITY: Final = {"Unhealthy": 0, "Unknown": 1, "Degraded": 2, "Healthy": 3}
_MOST_TOLD: Final = 3
_DECIDED: Final = (HELD, PAUSED, OPTED_OUT, GIVEN_BACK)
_WORDS: Final = ("healthy", "degraded", "unhealthy", "unknown")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """One GPU node; without leave to read nodes only what its verdict says."""

    name: str
    node: NodeView | None
    health: HealthView | None
    session: QuarantineView | None
    now: HealthNow
    people: tuple[str, ...] = ()
    """What people decided about it, and what it needs them for."""
    lingering: QuarantineView | None = None
    """The ended session whose mark could not be taken off."""

    @property
    def word(self) -> str:
        """What `why` says, too."""
        return self.now.word

    @property
    def cordoned(self) -> bool:
        return self.node is not None and self.node.spec.unschedulable

    @property
    def notable(self) -> bool:
        """A pause alone is no reason to look at a node: it is said above the table."""
        ill = self.word != "Healthy"
        decided = any(word != PAUSED for word in self.people)
        taken = self.session is not None or self.lingering is not None or self.cordoned
        return ill or taken or decided


async def fleet(cluster: Cluster, options: argparse.Namespace, _: Terminal) -> str:
    """One line of totals, then the nodes to look at; with -o wide every node."""
    nodes = await gpu_nodes(cluster, options.selector or "")
    published, listed = await cluster.healths(), await cluster.sessions()
    pauses = await cluster.pauses()
    healths = {h.metadata.name: h for h in published}
    sessions = {s.spec.node_name: s for s in listed if is_open(s)}
    lingering = {s.spec.node_name: s for s in listed if mark_stays(s)}
    policy, wrong = await readable_policy(cluster, options.namespace)
    if options.selector:
        meant = {node.name for node in nodes or ()}
        sessions = {name: session for name, session in sessions.items() if name in meant}
    agents = await cluster.readable_agents()
    now = cluster.now()
    by_name = {node.name: node for node in nodes or ()}
    names = by_name if nodes is not None else healths
    back = _given_back(by_name.values(), healths, listed, policy or Policy(), now)
    words = {n: health_now(by_name.get(n), healths.get(n), agents, now) for n in names}
    rows = sorted(
        (
            _Row(
                name=n,
                node=by_name.get(n),
                health=healths.get(n),
                session=sessions.get(n),
                now=words[n],
                lingering=lingering.get(n),
                people=(
                    *([GIVEN_BACK] if n in back else []),
                    *part_of_people(
                        by_name.get(n),
                        sessions.get(n) or lingering.get(n),
                        pauses,
                        now,
                        healths.get(n) if not words[n].why else None,
                    ),
                ),
            )
            for n in names
        ),
        key=lambda row: (_GRAVITY.get(row.word, 1), row.name),
    )
    if options.output in {"json", "yaml"}:
        return document(_document(rows), options.output)
    if not rows and options.selector:
        return f"no GPU node has the labels {options.selector}"
    if not rows:
        return (
            f"no node carries the label {LABEL_GPUS}: no agent has found a GPU yet; see "
            "kubectl get pods -A -l app.kubernetes.io/name=gpuward"
        )
    wide = options.output == "wide"
    unseen = [NODES_HIDDEN] if nodes is None else []
    if agents is None:
        unseen.append("you may not list pods: that an agent is silent is known minutes later")
    elif silent := silent_together(agents.values()):
        unseen.append(silent)
    unseen += await _without_agent(cluster, options.selector or "")
    elsewhere = sorted(sessions.keys() - names.keys()) if nodes is not None else []
    if elsewhere:
        unseen.append(f"open sessions of what is no GPU node, or gone: {some(elsewhere)}")
    lines = [_totals(rows, sessions), *of_policy(policy, by_name.values())]
    lines += [*wrong, *unseen, *breaker_lines(sessions.values())]
    lines += [wait.line for wait in shared_waits(sessions.values()) if not wait.storm]
    if not options.selector:  # of a part of the fleet nobody can say what is elsewhere
        lines += [cause.message for cause in _common(policy, by_name, healths, sessions.values())]
    lines += clocks_said(by_name, healths, now)
    lines += pause_lines(pauses, now)
    shown = [row for row in rows if wide or row.notable]
    told = ["", _table(shown, wide=wide)] if shown else []
    return "\n".join([*map(printable, lines), *told])


def _common(
    policy: Policy | None,
    nodes: Mapping[str, NodeView],
    healths: Mapping[str, HealthView],
    sessions: Iterable[QuarantineView],
) -> list[CommonCause]:
    """What faults of several nodes have in common, besides what the breaker says of sessions: as
    the fleet page has it. Without a policy all nodes count, by the usual labels.
    """
    told = {
        cause.reason
        for session in sessions
        if (storm := condition(session.status, "Storm")) is not None
        and storm.status == "True"
        and storm.reason == WhyNot.CORRELATED_CAUSE
        for cause in session.spec.causes
    }
    found = common_causes_by(policy, nodes, healths) if policy else common_causes(nodes, healths)
    return [cause for cause in found if cause.reason not in told]


def _given_back(
    nodes: Iterable[NodeView],
    healths: Mapping[str, HealthView],
    sessions: Iterable[QuarantineView],
    policy: Policy,
    now: float,
) -> frozenset[str]:
    """The sick nodes that are in service because a person ended their session."""
    of: dict[str, list[QuarantineView]] = {}
    for session in sessions:
        of.setdefault(session.spec.node_name, []).append(session)
    return frozenset(
        node.name
        for node in nodes
        if (health := healths.get(node.name)) is not None
        and (own := of.get(node.name))
        and not any(map(is_open, own))
        and left_alone(node, health, own, (), policy, now) == RELEASED
    )


async def _without_agent(cluster: Cluster, selector: str) -> list[str]:
    """Nodes that have GPUs by a label or a resource, and on which no agent found any: no total
    counts them.
    """
    unlabelled = f"!{LABEL_GPUS}"
    found = await cluster.readable_nodes(f"{unlabelled},{selector}" if selector else unlabelled)
    names = sorted(node.name for node in found or () if has_gpus(node))
    if not names:
        return []
    have = "has" if len(names) == 1 else "have"
    return [f"{count(len(names), 'more node')} {have} GPUs that no agent has seen: {some(names)}"]


def breaker_lines(sessions: Iterable[QuarantineView]) -> list[str]:
    """That the breaker holds nodes back and why, said once for all that wait for the same."""
    held: dict[tuple[str, str], list[str]] = {}
    for session in sessions:
        storm = condition(session.status, "Storm")
        if is_open(session) and storm is not None and storm.status == "True":
            why = storm.message.removeprefix(BREAKER_IS_OPEN).removesuffix(".")
            held.setdefault((storm.reason, why), []).append(session.spec.node_name)
    if not held:
        return []
    told = sorted(held.items(), key=lambda one: (-len(one[1]), one[0]))
    lines = [
        f"the breaker holds back {count(len(nodes), 'node')} ({reason}){': ' if why else ''}{why}"
        for (reason, why), nodes in told[:_MOST_TOLD]
    ]
    if len(told) > _MOST_TOLD:
        lines.append(f"and {count(sum(len(n) for _, n in told[_MOST_TOLD:]), 'more node')}")
    # A session can name what no node can be called: that is nothing to paste.
    names = (name for nodes in held.values() for name in nodes)
    first = min(filter(is_object_name, names), default="NODE")
    return [
        *lines,
        f"what was seen: kubectl gpuward why {first}",
        'to keep what fails still in service: kubectl gpuward pause --reason "..."',
    ]


async def gpu_nodes(cluster: Cluster, selector: str) -> Sequence[NodeView] | None:
    """The GPU nodes, of those with these labels where some are named; None where they may not be
    listed, which is an error where labels are to be compared.
    """
    if selector:
        return await cluster.nodes(f"{LABEL_GPUS},{selector}")
    return await cluster.readable_nodes(LABEL_GPUS)


def _totals(rows: Sequence[_Row], sessions: dict[str, QuarantineView]) -> str:
    words = Counter(row.word.lower() for row in rows)
    parts = ", ".join(f"{words[word]} {word}" for word in _WORDS)
    cordoned = sum(row.cordoned for row in rows)
    said = Counter(word for row in rows for word in row.people)
    people = "".join(f", {said[word]} {word}" for word in _DECIDED if said[word])
    needed = sum(said[word] for word in MUSTS)
    people += f", {needed} {'needs' if needed == 1 else 'need'} a person" if needed else ""
    return (
        f"{count(len(rows), 'GPU node')}: {parts}; {cordoned} cordoned, "
        f"{count(len(sessions), 'open session')}{people}"
    )


def _table(rows: Sequence[_Row], *, wide: bool) -> str:
    header = ["NODE", "HEALTH", "USABLE", "PHASE", "PEOPLE", "REASON"]
    extra = ["CORDONED", "PRODUCT", "DRIVER", "INTERCONNECT", "SESSION"] if wide else []
    cells = [_cells(row, wide=wide) for row in rows]
    return table([*header, *extra], cells, spare=("USABLE", "PEOPLE", "PHASE"), wide=wide)


def _cells(row: _Row, *, wide: bool) -> list[str]:
    status = row.health.status if row.health else None
    session = row.session or row.lingering
    cells = [
        row.word,
        status.gpus_healthy if status else "",
        phase_words(session) if session else "",
        ", ".join(row.people),
        _reason(row),
    ]
    if not wide:
        return [row.name, *cells]
    labels = row.node.labels if row.node else {}
    return [
        row.name,
        *cells,
        "yes" if row.cordoned else "no",
        labels.get("gpuward.io/product", ""),
        labels.get("gpuward.io/driver", ""),
        labels.get("gpuward.io/interconnect", ""),
        session.name if session else "",
    ]


def _reason(row: _Row) -> str:
    """The verdict's reason where it is not well, else the session's cause."""
    if row.health is not None and row.health.status.health != "Healthy":
        return row.health.status.reason
    if row.now.code:
        return row.now.code
    if row.session is not None and row.session.spec.causes:
        return gravest_reason(row.session.spec.causes)
    if row.session is None and row.lingering is not None:
        return blocked_by(row.lingering.status) or "MarkStays"
    return "" if row.session is not None or not row.cordoned else "CordonedByOthers"


def _document(rows: Sequence[_Row]) -> dict[str, Any]:
    return {
        "nodes": len(rows),
        "health": {word: sum(r.word.lower() == word for r in rows) for word in _WORDS},
        "unschedulable": sum(row.cordoned for row in rows),
        "openSessions": sum(row.session is not None for row in rows),
        "items": [
            {
                "node": row.name,
                "health": row.word,
                "gpusHealthy": row.health.status.gpus_healthy if row.health else "",
                "reason": _reason(row),
                "unschedulable": row.cordoned,
                "people": list(row.people),
                "phase": (row.session.status.phase or "Pending") if row.session else "",
                "session": row.session.name if row.session else "",
            }
            for row in rows
        ],
    }
