"""`--nvlink-domain`: quarantine, explain and release all nodes of an NVLink domain as a unit.

Each function returns the nodes that the command then runs for, or the answer itself.
"""

import argparse
from collections.abc import Iterator

from remediator.kubectl import command, node_state, quarantine
from remediator.kubectl.cluster import Cluster
from remediator.kubectl.command import CommandError, Terminal
from rules.api import messages, names
from rules.api.nodes import HealthView, NodeView, QuarantineView, TimedNode
from rules.api.timestamps import TimeFormat
from rules.catalog.reason import Level, Severity
from rules.fleet import domain_session, node_health
from rules.fleet.domain_session import DomainProgress
from rules.session import observation
from rules.session.causes import requested_domain
from rules.session.repair import ladder
from rules.session.status import blocked_by
from rules.text.printable import count

Nodes = list[str]


async def quarantined(
    cluster: Cluster, options: argparse.Namespace, terminal: Terminal
) -> Nodes | str:
    """Return the nodes that have no session for the domain yet, after one confirmation."""
    domain = options.nvlink_domain
    its, _, _ = await _read(cluster, domain)
    wanted = [
        name
        for name in its.nodes
        if name not in its.sessions or its.sessions[name].spec.release is not None
    ]
    if not wanted:
        return f"NVLink domain {domain}: every node has a session for it, {its.clause}"
    room = await quarantine.capacity(cluster, options.namespace)
    warning = ""
    for name in wanted:
        warning = room.warning(name) or warning
        room.take(name)
    then = "No pod is evicted."
    if options.level == Level.DRAIN:
        then = (
            "After all are tainted and cordoned, their pods are evicted within their budgets, "
            "even if no other node has free GPUs."
        )
    terminal.ask(
        f"This takes NVLink domain {domain} out of service: {count(len(its.nodes), 'node')} "
        f"({messages.name_list(its.nodes)}). {then} Each repair step needs an operator. "
        f"{warning}".rstrip()
    )
    options.yes = True
    return wanted


async def released(
    cluster: Cluster, options: argparse.Namespace, terminal: Terminal
) -> Nodes | str:
    """Return the nodes with an open session for the domain, after one confirmation."""
    domain = options.nvlink_domain
    sessions = [one for one in await cluster.sessions() if observation.is_open(one)]
    its = {one.spec.node_name: one for one in sessions if requested_domain(one) == domain}
    wanted = sorted(name for name, one in its.items() if one.spec.release is None)
    if its and not wanted:
        return f"NVLink domain {domain}: the release of {count(len(its), 'node')} is requested"
    if not wanted:
        raise CommandError(f"no session for NVLink domain {domain} is open")
    if not options.yes:
        healths = {one.metadata.name: one for one in await cluster.healths()}
        terminal.ask(" ".join(_of_release(domain, {n: its[n] for n in wanted}, healths)))
    options.yes = True
    return wanted


def _of_release(
    domain: str, its: dict[str, QuarantineView], healths: dict[str, HealthView]
) -> Iterator[str]:
    """Yield what a release of the domain ends, and the faults that are still there."""
    yield f"This returns {count(len(its), 'node')} of NVLink domain {domain} to service now."
    if running := [name for name, one in its.items() if ladder.under_way(one.status)]:
        yield f"Repair steps in progress on {messages.name_list(running)} are withdrawn."
    if faulty := [name for name in its if name in healths and _is_faulty(healths[name])]:
        yield f"Faults are still active on {messages.name_list(faulty)}."
    if held := [name for name, one in its.items() if one.spec.hold]:
        yield f"The release ignores the hold of {messages.name_list(held)}."


def _is_faulty(health: HealthView) -> bool:
    return any(i.active and i.severity != Severity.INFO for i in health.status.incidents)


async def explained(cluster: Cluster, options: argparse.Namespace, _: Terminal) -> Nodes | str:
    """Return the state of the domain; its nodes for an output format of values."""
    domain = options.nvlink_domain
    its, nodes, opened = await _read(cluster, domain)
    if options.output not in {None, "wide"}:
        return list(its.nodes)
    healths = {one.metadata.name: one for one in await cluster.healths()}
    times = TimeFormat(cluster.now(), absolute=options.output == "wide")
    try:
        jobs = await node_state.compute_domains(cluster, {n: nodes[n].labels for n in its.nodes})
        used, unknown = [one.clause() for one in jobs], []
    except CommandError as error:
        if not error.forbidden:
            raise
        used, unknown = [], [node_state.UNKNOWN_JOBS]
    rows = [
        [name, *_cells(nodes[name], healths.get(name), opened.get(name), its, times.now)]
        for name in its.nodes
    ]
    none = f"{count(len(its.nodes), 'node')}, no session for it"
    return "\n".join(
        [
            f"NVLink domain {domain}: {its.clause if its.sessions else none}",
            *command.labelled("cause", _requests(its, times)),
            *command.labelled("next", _next(its)),
            *command.labelled("actions", _actions(its)),
            *command.labelled("jobs", used),
            *command.labelled("unknown", unknown),
            "",
            command.table(["NODE", "HEALTH", "PHASE", "BLOCKED"], rows),
        ]
    )


def _cells(
    node: NodeView,
    health: HealthView | None,
    session: QuarantineView | None,
    its: DomainProgress,
    now: float,
) -> list[str]:
    state = node_health.health_now(node, health, None, now).value
    if session is None:
        return [state, "", ""]
    own = "" if node.name in its.sessions else ", not for the domain"
    return [state, f"{node_state.phase_text(session)}{own}", blocked_by(session.status)]


def _requests(its: DomainProgress, times: TimeFormat) -> list[str]:
    """Return each request for the domain once."""
    causes = {
        (cause.by, cause.message): cause
        for session in its.sessions.values()
        for cause in session.spec.causes
        if cause.nvlink_domain == its.domain and cause.source == "Human"
    }
    return [
        f"asked for by {cause.by or 'an operator'}"
        f"{f' {times.ago(cause.at)}' if cause.at else ''}: {cause.message}"
        for cause in causes.values()
    ]


def _next(its: DomainProgress) -> Iterator[str]:
    if its.sessions and its.missing:
        yield f"drained after all are quarantined; see kubectl gpuward why {its.missing[0]}"
    elif its.sessions:
        yield "an operator repairs the domain, then releases it"


def _actions(its: DomainProgress) -> Iterator[str]:
    flags = f'--nvlink-domain {its.domain} --reason "..."'
    if len(its.sessions) < len(its.nodes):
        yield f"kubectl gpuward quarantine {flags}   take all its nodes out of service"
    if its.sessions:
        yield f"kubectl gpuward release {flags}   return all its nodes to service now"


async def _read(
    cluster: Cluster, domain: str
) -> tuple[DomainProgress, dict[str, TimedNode], dict[str, QuarantineView]]:
    """Return the state of the domain, all nodes by name, and the open session of each node."""
    nodes = {node.name: node for node in await cluster.nodes()}
    opened = [session for session in await cluster.sessions() if observation.is_open(session)]
    its = domain_session.progress(domain, opened, nodes.values())
    if not its.nodes:
        found = {node.labels.get(names.LABEL_NVLINK_DOMAIN, "") for node in nodes.values()} - {""}
        raise CommandError(
            f"no node has the label {names.LABEL_NVLINK_DOMAIN}={domain}; the domains are: "
            f"{messages.name_list(found) or 'none'}"
        )
    # Of several sessions the oldest takes over the causes of the others.
    return its, nodes, {session.spec.node_name: session for session in reversed(opened)}
