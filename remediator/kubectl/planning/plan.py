"""`kubectl gpuward plan`: what would happen now if the policy enforced, node by node.

Reads the live cluster, foresees what the remediator does next with its own rules
(`rules.fleet.forecast`) and asks the API server with one dry-run eviction per pod. It writes
nothing: dry runs do not add up, so each pod answers for itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from remediator.kubectl.cluster import Cluster
from remediator.kubectl.command import CommandError
from remediator.kubectl.look import existing_node
from remediator.kubectl.planning.leases import maintenance_leases
from remediator.kubectl.planning.node_plan import NodePlan, done_now, node_plan
from remediator.kubectl.planning.shown import plan_lines
from remediator.kubectl.planning.surroundings import Surroundings
from remediator.view.people import pause_lines
from remediator.view.text import document
from rules.api.nodes import QuarantineView
from rules.api.pods import PodView
from rules.api.quarantine import Mode, Phase
from rules.api.selectors import parse_selector
from rules.api.timestamps import utc
from rules.drain.gangs import gangs_of
from rules.fleet.breaker import Breaker
from rules.fleet.budget import BudgetLine
from rules.fleet.forecast import Forecast
from rules.fleet.turns import budget_book, over_budget
from rules.policy.policy import Policy
from rules.session.causes import has_human
from rules.session.observation import is_open
from rules.session.snapshot import FleetSnapshot
from rules.text.counted import count

READ_ONE_BY_ONE = 20
"""Nodes whose pods are read node by node; of more all pods are listed once."""
IN_DRAIN = {str(Phase.DRAINING), str(Phase.MARKED), str(Phase.PENDING)}


async def plan(
    cluster: Cluster,
    policy: Policy,
    source: str,
    *,
    in_force: bool,
    nodes: Sequence[str],
    selector: str,
    form: str,
) -> str:
    """The plan as text, or as JSON or YAML: of all nodes, of some, of those with some labels.

    `source` says where the policy is from; `in_force` that it is the one a remediator goes by.
    """
    enforced = msgspec.structs.replace(policy, mode=Mode.ENFORCE)
    snapshot = await _snapshot(cluster, enforced)
    for node in nodes:
        if node not in snapshot.nodes:
            await existing_node(cluster, node)
            raise CommandError(
                f"the policy's nodeSelector {policy.node_selector!r} selects no node {node}; "
                f"kubectl gpuward why {node} says more"
            )
    meant = parse_selector(selector)
    shown = {
        name
        for name, found in snapshot.nodes.items()
        if (not nodes or name in nodes) and meant(found.labels)
    }
    forecast = Forecast(snapshot)
    opened = forecast.copied()
    sessions = [s for s in opened.quarantines.values() if is_open(s)]
    pods = await _pods(cluster, snapshot, sessions)
    gangs = {name: gangs_of(its, {}) for name, its in pods.items()}
    verdict = forecast.judged(gangs)
    over = _over_budget(replace(opened, gangs=gangs), sessions)
    in_shadow = in_force and policy.mode == Mode.SHADOW
    now = _now(replace(snapshot, policy=policy, gangs=gangs)) if in_shadow else {}
    planned = []
    around = Surroundings(cluster)
    for name, found in sorted(forecast.foreseen().items()):
        if name not in shown and (nodes or selector):
            continue
        made = await node_plan(around, found, forecast.snapshot, pods)
        if made is None and now.get(name, "nothing") != "nothing":
            made = NodePlan(node=name, would="nothing", reason="")
        if made is not None:
            exceeds = over.get(found.after.name, "") if found.after is not None else ""
            planned.append(replace(made, over_budget=exceeds, now=now.get(name, "")))
    if form in {"json", "yaml"}:
        return document([msgspec.to_builtins(one) for one in planned], form)
    lines = [f"{source}, mode {policy.mode}; {count(verdict.selected, 'node')} selected"]
    if not in_force:
        lines.append(_BY_DEFAULTS)
    elif in_shadow:
        lines.append(_IN_SHADOW)
    lines += [_budget_line(line) for line in verdict.lines]
    lines += _breaker_lines(verdict.breaker)
    lines += pause_lines(snapshot.pauses.values(), snapshot.now)
    if not planned:
        # A label that was mistyped must not look like a fleet that is well.
        none = f"no node that the policy selects has the labels {selector}"
        return "\n".join([*lines, "nothing would be done" if shown or not selector else none])
    return "\n".join([*lines, "", *plan_lines(planned, wide=form == "wide")])


_BY_DEFAULTS = (
    "this is what Enforce would do by the defaults; a remediator that runs goes on by the policy "
    "it read last, which may enforce"
)
_IN_SHADOW = (
    "this is what Enforce would do; in Shadow no node is taken, and what is out only comes back"
)


def _now(snapshot: FleetSnapshot) -> dict[str, str]:
    """What is done to each node under the policy as it is."""
    forecast = Forecast(snapshot)
    forecast.judged(snapshot.gangs)
    foreseen = forecast.foreseen()
    return {name: done_now(found, forecast.snapshot) for name, found in foreseen.items()}


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


def _over_budget(snapshot: FleetSnapshot, sessions: Sequence[QuarantineView]) -> dict[str, str]:
    """Sessions that people asked for and that take a node more than the budget allows."""
    selected, book = budget_book(snapshot)
    found = {}
    for session in sorted(sessions, key=lambda s: (s.metadata.created_at, s.name)):
        name = session.spec.node_name
        if not has_human(session) or session.status.phase not in {"", Phase.PENDING}:
            continue
        if clause := over_budget(name, selected, book):
            found[session.name] = f"exceeds the budget, as a person may: {clause}"
        if name in selected:
            book.take(selected[name])
    return found


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
        maintenance_leases=await maintenance_leases(cluster),
        observing_since=0.0,
    )
