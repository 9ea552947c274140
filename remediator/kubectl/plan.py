"""`kubectl gpuward plan`: what would happen now if the policy enforced, node by node.

Reads the live cluster, foresees what the remediator does next with its own rules
(`rules.fleet.forecast`) and asks the API server with one dry-run eviction per pod. It writes
nothing: dry runs do not add up, so each pod answers for itself.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

import msgspec

from remediator.controller.maintenance_leases import LEASES
from remediator.kubectl.cluster import Cluster
from remediator.kubectl.command import Answer, CommandError, Terminal, labelled, table
from remediator.kubectl.in_force import judged_by
from remediator.kubectl.node_look import existing_node
from remediator.kubectl.node_plan import NodePlan, node_plan
from remediator.view.people import pause_lines
from rules.api.nodes import LeaseView, QuarantineView
from rules.api.pods import PodView
from rules.api.quarantine import Mode, Phase
from rules.api.selectors import parse_selector
from rules.api.timestamps import utc
from rules.drain.gangs import gangs_of
from rules.fleet.breaker import Breaker
from rules.fleet.budget import BudgetLine
from rules.fleet.forecast import Forecast
from rules.policy.policy import Policy
from rules.session.observation import is_open
from rules.session.owners import leases_by_node
from rules.session.snapshot import FleetSnapshot
from rules.text.printable import count, printable

READ_ONE_BY_ONE: Final = 20
"""Nodes whose pods are read node by node; of more all pods are listed once."""
IN_DRAIN: Final = {str(Phase.DRAINING), str(Phase.MARKED), str(Phase.PENDING)}
_SHOWN_BLOCKS: Final = 3
_BY_DEFAULTS: Final = (
    "this is what Enforce would do by the defaults; a remediator that runs goes on by the policy "
    "it read last, which may enforce"
)
_IN_SHADOW: Final = (
    "this is what Enforce would do; in Shadow no node is taken, and what is out only comes back"
)


async def plan(cluster: Cluster, options: argparse.Namespace, _: Terminal) -> Answer:
    """What would happen now: to all nodes, to some, or to those with some labels."""
    policy, source = await judged_by(cluster, options)
    in_force = policy is not None
    return await planned(cluster, policy or Policy(), source, options, in_force=in_force)


async def planned(
    cluster: Cluster,
    policy: Policy,
    source: str,
    options: argparse.Namespace,
    *,
    in_force: bool,
) -> Answer:
    """By this policy; `source` says where it is from, `in_force` that a remediator goes by it."""
    enforced = msgspec.structs.replace(policy, mode=Mode.ENFORCE)
    snapshot = await _snapshot(cluster, enforced)
    for node in options.nodes:
        if node not in snapshot.nodes:
            await existing_node(cluster, node)
            raise CommandError(
                f"the policy's nodeSelector {policy.node_selector!r} selects no node {node}; "
                f"kubectl gpuward why {node} says more"
            )
    selector = options.selector or ""
    meant = parse_selector(selector)
    shown = {
        name
        for name, found in snapshot.nodes.items()
        if (not options.nodes or name in options.nodes) and meant(found.labels)
    }
    forecast = Forecast(snapshot)
    opened = forecast.copied()
    sessions = [s for s in opened.quarantines.values() if is_open(s)]
    pods = await _pods(cluster, snapshot, sessions)
    gangs = {name: gangs_of(its, {}) for name, its in pods.items()}
    verdict = forecast.judged(gangs)
    in_shadow = in_force and policy.mode == Mode.SHADOW
    plans = []
    for name, found in sorted(forecast.foreseen().items()):
        if name not in shown and (options.nodes or selector):
            continue
        made = await node_plan(cluster, found, forecast.snapshot, pods)
        if made is not None:
            plans.append(made)
    if options.output in {"json", "yaml"}:
        return [msgspec.to_builtins(one) for one in plans]
    lines = [f"{source}, mode {policy.mode}; {count(verdict.selected, 'node')} selected"]
    if not in_force:
        lines.append(_BY_DEFAULTS)
    elif in_shadow:
        lines.append(_IN_SHADOW)
    lines += [_budget_line(line) for line in verdict.lines]
    lines += _breaker_lines(verdict.breaker)
    lines += pause_lines(snapshot.pauses.values(), snapshot.now)
    if not plans:
        # A label that was mistyped must not look like a fleet that is well.
        none = f"no node that the policy selects has the labels {selector}"
        return "\n".join([*lines, "nothing would be done" if shown or not selector else none])
    return "\n".join([*lines, "", *_lines(plans, wide=options.output == "wide")])


async def _pods(
    cluster: Cluster, snapshot: FleetSnapshot, sessions: Sequence[QuarantineView]
) -> dict[str, tuple[PodView, ...]]:
    """The pods of each node that is to be drained, by node: what runs there, and which gangs."""
    wanted = {
        s.spec.node_name
        for s in sessions
        if s.spec.node_name in snapshot.nodes and s.status.phase in {"", *IN_DRAIN}
    }
    if len(wanted) <= READ_ONE_BY_ONE:
        return {name: await cluster.pods_on(name) for name in sorted(wanted)}
    found: dict[str, list[PodView]] = {name: [] for name in wanted}
    for pod in await cluster.pods():
        if pod.spec.node_name in found:
            found[pod.spec.node_name].append(pod)
    return {name: tuple(its) for name, its in found.items()}


def _budget_line(line: BudgetLine) -> str:
    standing = f": {line.standing}, no detector takes another" if line.standing else ""
    return f"budget: {line.clause}{standing}"


def _breaker_lines(breaker: Breaker) -> list[str]:
    """That it is open; the sentence stands with the nodes that it holds."""
    if breaker.refusal is None:
        return []
    until = f" until {utc(breaker.refusal.until)}" if breaker.refusal.until is not None else ""
    return [f"the breaker is open{until} ({breaker.refusal.reason})"]


async def _snapshot(cluster: Cluster, policy: Policy) -> FleetSnapshot:
    nodes = {n.name: n for n in await cluster.nodes(policy.node_selector)}
    sessions = {s.name: s for s in await cluster.sessions()}
    # People may quarantine nodes that the policy does not select.
    for name in {s.spec.node_name for s in sessions.values() if is_open(s)} - set(nodes):
        if (node := await cluster.node(name)) is not None:
            nodes[name] = node
    return FleetSnapshot(
        now=cluster.now(),
        policy=policy,
        nodes=nodes,
        healths={h.metadata.name: h for h in await cluster.healths()},
        quarantines=sessions,
        records={r.name: r for r in await cluster.records()},
        pauses={p.metadata.name: p for p in await cluster.pauses()},
        agents={a.uid: a for a in await cluster.agents()},
        maintenance_leases=await _maintenance_leases(cluster),
        observing_since=0.0,
    )


async def _maintenance_leases(cluster: Cluster) -> dict[str, LeaseView]:
    """By node; those that this person may not list, or nobody understands, are none, and that is
    said.
    """
    try:
        found = await cluster.everything(LEASES, {})
        return leases_by_node(msgspec.convert(one, LeaseView, strict=False) for one in found)
    except CommandError as error:
        if not error.forbidden:
            raise
        cluster.say(f"not seen, whether node maintenance holds a node: {error}")
    except msgspec.ValidationError as error:
        cluster.say(f"not seen, whether node maintenance holds a node: a Lease is none: {error}")
    return {}


def _lines(planned: Sequence[NodePlan], *, wide: bool) -> list[str]:
    """The table, and under it what there is to say of each node."""
    lines = [_table(planned)]
    for one in planned:
        if said := _details(one, wide=wide):
            lines += ["", printable(one.node), *labelled("", said)]
    return lines


def _table(planned: Sequence[NodePlan]) -> str:
    held_back = any(one.blocked_by for one in planned)
    header = ["REASON", "PEOPLE", "EVICT", "BLOCKED", "LEFT"]
    header = ["NODE", "WOULD", *(["WHY"] if held_back else []), *header]
    rows = [
        [
            one.node,
            f"{one.would}, then {one.then}" if one.then else one.would,
            *([one.blocked_by] if held_back else []),
            one.reason,
            ", ".join(one.people),
            str(one.evictable),
            str(len(one.blocked)),
            str(one.left),
        ]
        for one in planned
    ]
    return table(header, rows)


def _details(one: NodePlan, *, wide: bool) -> list[str]:
    """Why it waits and what blocks it."""
    said = [one.because] if one.because else []
    blocked = one.blocked if wide else one.blocked[:_SHOWN_BLOCKS]
    said += [f"blocked: {text}" for text in blocked]
    if len(one.blocked) > len(blocked):
        said.append(f"and {len(one.blocked) - len(blocked)} more blocks: -o wide")
    if one.repair:
        said.append(one.repair)
    return said
