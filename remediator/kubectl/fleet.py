"""`kubectl gpuward fleet`: totals, and every GPU node that is not well, most severe first."""

import argparse
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from remediator.kubectl import command, in_force, node_state
from remediator.kubectl.cluster import Cluster
from remediator.kubectl.command import Answer, Items, Terminal
from remediator.view import operators
from rules.api import messages, names, quarantine
from rules.api.nodes import HealthView, QuarantineView
from rules.api.timestamps import TimeFormat
from rules.fleet import domain_session, node_health
from rules.session import observation, status
from rules.session.causes import requested_domain
from rules.text.printable import count, printable

_SEVERITY: Final = {"Unhealthy": 0, "Unknown": 1, "Degraded": 2, "Healthy": 3}


class NodeSummary(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One GPU node, as `-o json` has it."""

    api_version: str = names.API_VERSION
    kind: str = "GPUNodeSummary"
    metadata: dict[str, str]
    health: str
    gpus_healthy: str
    reason: str
    """The health status's reason where it is not well, else the session's cause."""
    unschedulable: bool
    people: tuple[str, ...]
    """Decisions of operators, and what the session needs from them."""
    phase: str
    session: str
    """Open, or ended with its taint and cordon still on the node."""

    @property
    def notable(self) -> bool:
        """Whether the table shows the node; a pause alone has a line above the table."""
        decided = any(one != operators.PAUSED for one in self.people)
        return self.health != "Healthy" or bool(self.session) or self.unschedulable or decided


def _reason(health: HealthView | None, session: QuarantineView | None, code: str) -> str:
    if health is not None and health.status.health != "Healthy":
        return health.status.reason
    if code or session is None:
        return code
    if operators.taint_stays(session):
        return status.blocked_by(session.status) or "MarkStays"
    return quarantine.most_severe_reason(session.spec.causes) if session.spec.causes else ""


async def fleet(cluster: Cluster, options: argparse.Namespace, _: Terminal) -> Answer:
    """Return one line of totals and the table of nodes; with -o wide of every node."""
    wanted = f"{names.LABEL_GPUS},{options.selector}" if options.selector else names.LABEL_GPUS
    nodes = {node.name: node for node in await cluster.nodes(wanted)}
    healths = {health.metadata.name: health for health in await cluster.healths()}
    known = [
        s for s in await cluster.sessions() if observation.is_open(s) or operators.taint_stays(s)
    ]
    sessions = {s.spec.node_name: s for s in sorted(known, key=observation.is_open)}
    pauses = await cluster.pauses()
    policy = await in_force.policy_in_force(cluster, options.namespace)
    lines = [policy.doubt] if policy.doubt else []
    listed = await cluster.readable(cluster.agents())
    agents = None if listed is None else {pod.uid: pod for pod in listed}
    now = cluster.now()
    rows = []
    for name, node in nodes.items():
        health, session = healths.get(name), sessions.get(name)
        state = node_health.health_now(node, health, agents, now)
        cordoned = node.spec.unschedulable
        rows.append(
            NodeSummary(
                metadata={"name": name},
                health=state.value,
                gpus_healthy=health.status.gpus_healthy if health is not None else "",
                reason=_reason(health, session, state.code)
                or ("CordonedByOthers" if cordoned else ""),
                unschedulable=cordoned,
                people=operators.part_of_people(
                    node, session, pauses, now, None if state.why else health
                ),
                phase=(session.status.phase or "Pending") if session is not None else "",
                session=session.name if session is not None else "",
            )
        )
    rows.sort(key=lambda row: (_SEVERITY.get(row.health, 1), row.metadata["name"]))
    if options.output not in {None, "wide"}:
        items: Items = msgspec.to_builtins(rows)
        return items
    if not rows and options.selector:
        return f"no GPU node has the labels {options.selector}"
    if not rows:
        pods = "kubectl get pods -A -l app.kubernetes.io/name=gpuward"
        return f"no node has the label {names.LABEL_GPUS}: no agent has found a GPU; see {pods}"
    if agents is None:
        lines.append("you may not list pods: a silent agent is detected minutes later")
    elif silent := node_health.silent_together(agents.values()):
        lines.append(silent)
    held = {on: its for on, its in sessions.items() if on in nodes or not options.selector}
    if elsewhere := sorted({*held} - {*nodes}):
        lines.append(
            f"open sessions of nodes without an agent, or deleted: {messages.name_list(elsewhere)}"
        )
    above = [_totals(rows, held.values()), *in_force.of_policy(policy.policy, nodes.values())]
    wide = options.output == "wide"
    times = TimeFormat(now, absolute=wide)
    lines = [*above, *lines, *_breaker_lines(held.values(), times)]
    lines += operators.pause_lines(pauses, times)
    lines += await _domain_lines(cluster, held.values(), sessions.values())
    shown = [row for row in rows if wide or row.notable]
    table = ["", _table(shown, held, wide=wide)] if shown else []
    return "\n".join([*map(printable, lines), *table])


def _breaker_lines(sessions: Iterable[QuarantineView], times: TimeFormat) -> list[str]:
    """Return a line for each reason for which the circuit breaker delays nodes."""
    held: Counter[tuple[str, str, str]] = Counter()
    for session in sessions:
        storm = status.condition(session.status, "Storm")
        if storm is not None and storm.status == "True":
            held[storm.reason, storm.message, session.status.until] += 1
    return [
        f"{count(nodes, 'node')} not quarantined{f' {times.until(until)}' if until else ''} "
        f"({reason}): {message}"
        for (reason, message, until), nodes in sorted(held.items())
    ]


async def _domain_lines(
    cluster: Cluster, shown: Iterable[QuarantineView], sessions: Iterable[QuarantineView]
) -> list[str]:
    """Return a line for each NVLink domain that a shown session quarantines as a unit."""
    domains = {requested_domain(one) for one in shown if observation.is_open(one)} - {""}
    nodes = await cluster.nodes(names.LABEL_NVLINK_DOMAIN) if domains else []
    found = [domain_session.progress(domain, sessions, nodes) for domain in sorted(domains)]
    return [f"NVLink domain {its.domain}: {its.clause}" for its in found]


def _totals(rows: Sequence[NodeSummary], sessions: Iterable[QuarantineView]) -> str:
    cordoned = sum(row.unschedulable for row in rows)
    counts = Counter(row.health.lower() for row in rows)
    parts = ", ".join(f"{counts[w]} {w}" for w in ("healthy", "degraded", "unhealthy", "unknown"))
    decisions = Counter(one for row in rows for one in row.people)
    shown = (operators.HELD, operators.PAUSED, operators.OPTED_OUT)
    decided = "".join(f", {decisions[one]} {one}" for one in shown if decisions[one])
    if needed := sum(decisions[one] for one in operators.MUSTS):
        decided += f", {needed} {'needs' if needed == 1 else 'need'} operator action"
    return (
        f"{count(len(rows), 'GPU node')}: {parts}; {cordoned} cordoned, "
        f"{count(sum(map(observation.is_open, sessions)), 'open session')}{decided}"
    )


def _table(rows: Sequence[NodeSummary], held: Mapping[str, QuarantineView], *, wide: bool) -> str:
    header = ["NODE", "HEALTH", "USABLE", "PHASE", "PEOPLE", "REASON"]
    cells = []
    for row in rows:
        phase = node_state.phase_text(held[n]) if (n := row.metadata["name"]) in held else ""
        cells.append([n, row.health, row.gpus_healthy, phase, ", ".join(row.people), row.reason])
        if wide:
            cells[-1] += ["yes" if row.unschedulable else "no", row.session]
    return command.table([*header, *(["CORDONED", "SESSION"] if wide else [])], cells)
