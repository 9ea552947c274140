"""`kubectl gpuward plan`: what would happen now if the policy enforced, node by node.

Reads the live cluster, foresees what the remediator does next with its own rules
(`rules.fleet.forecast`) and asks the API server with one dry-run eviction per pod. It writes
nothing: dry runs do not add up, so each pod answers for itself.
"""

import argparse
from collections.abc import Mapping
from typing import Final

import msgspec

from remediator.controller import drain_reads
from remediator.kubectl import command, node_state, plan_table, tainted_devices
from remediator.kubectl.cluster import Cluster
from remediator.kubectl.command import Answer, CommandError, Terminal
from remediator.kubectl.in_force import judged_by
from remediator.kubectl.plan_table import NodePlan
from remediator.view import operators
from rules.api import quarantine, requests, selectors
from rules.api.nodes import LeaseView, QuarantineView
from rules.api.pods import OwnerView, PodView
from rules.api.quarantine import Mode, Phase
from rules.api.repair_writes import CreateTestJob, SetRepairCondition, WriteRepairObject
from rules.api.timestamps import TimeFormat
from rules.api.writes import Evicting
from rules.drain import node_room
from rules.drain.drain_plan import DrainInput, DrainPlan
from rules.drain.eviction import EvictionKind, classify, matching
from rules.drain.gangs import gangs_of
from rules.drain.memory import DrainMemory, answered
from rules.drain.plan import plan_drain
from rules.fleet.forecast import Forecast, NodeForecast
from rules.policy.policy import Policy, with_mode
from rules.session import drain_scope, exclusions, external, isolation, observation
from rules.session.causes import (
    actionable,
    cause_context,
    causes_in_effect,
    drains_now,
    open_causes,
    waits_for_room,
    worst,
)
from rules.session.observation import FleetSnapshot
from rules.session.repair import ladder
from rules.text.printable import count, printable

_BEFORE_ITS_END: Final = {"", Phase.PENDING, Phase.MARKED, Phase.DRAINING}
"""Phases of a session whose node is to be drained, or is being drained."""
_BY_DEFAULTS: Final = (
    "the plan is for mode Enforce with default limits; a running remediator uses the last policy "
    "that it read, which may have mode Enforce"
)
_IN_SHADOW: Final = (
    "the plan is for mode Enforce; in Shadow mode gpuward quarantines no node and only releases "
    "quarantined ones"
)
_TAINTS: Final = {"CordonAndTaint": "cordon and taint", "Taint": "taint", "Cordon": "cordon"}
_UNDRAINED: Final = "level Cordon: pods stay until the causes close"


async def plan(cluster: Cluster, options: argparse.Namespace, _: Terminal) -> Answer:
    """What would happen now: to all nodes, to some, or to those with some labels."""
    policy, source = await judged_by(cluster, options)
    in_force = policy is not None
    return await planned(cluster, policy or Policy(), source, options, in_force=in_force)


async def planned(
    cluster: Cluster, policy: Policy, source: str, options: argparse.Namespace, *, in_force: bool
) -> Answer:
    """Return the plan for a policy; `source` names its origin, `in_force` whether it is in use."""
    snapshot = await _snapshot(cluster, with_mode(policy, Mode.ENFORCE))
    for node in options.nodes:
        if node not in snapshot.nodes:
            await node_state.existing_node(cluster, node)
            raise CommandError(
                f"the policy's nodeSelector {policy.node_selector!r} selects no node {node}; "
                f"kubectl gpuward why {node} shows more"
            )
    selector = options.selector or ""
    meant = selectors.parse_selector(selector)
    shown = {
        name
        for name, found in snapshot.nodes.items()
        if (not options.nodes or name in options.nodes) and meant(found.labels)
    }
    forecast = Forecast(snapshot)
    to_drain = {
        session.spec.node_name
        for session in forecast.copied().quarantines.values()
        if observation.is_open(session) and session.status.phase in _BEFORE_ITS_END
    }
    pods = {name: await cluster.pods_on(name) for name in sorted(to_drain & {*snapshot.nodes})}
    gangs = {name: gangs_of(its, {}) for name, its in pods.items()}
    assessed = forecast.judged(gangs)
    plans = []
    foreseen = forecast.copied()
    for name, found in sorted(forecast.nodes().items()):
        if name not in shown and (options.nodes or selector):
            continue
        made = await _node_plan(cluster, found, foreseen, pods)
        if made is not None:
            plans.append(made)
    if options.output not in {None, "wide"}:
        return [msgspec.to_builtins(one) for one in plans]
    modes = ", ".join(f"{p.name} {p.mode}" for p in policy.policies[1:])
    modes = f"{policy.mode} (pools: {modes})" if modes else policy.mode
    lines = [f"{source}, mode {modes}; {count(assessed.selected, 'node')} selected"]
    if not in_force:
        lines.append(_BY_DEFAULTS)
    elif Mode.SHADOW in policy.modes:
        lines.append(_IN_SHADOW)
    for line in assessed.lines:
        standing = f": {line.usage}, no further automatic quarantines" if line.usage else ""
        lines.append(f"budget: {line.clause}{standing}")
    times = TimeFormat(snapshot.now, absolute=options.output == "wide")
    if (breaker := assessed.breaker.refusal) is not None:
        # Its sentence stands with the nodes that it holds.
        until = f" {times.until(breaker.until)}" if breaker.until is not None else ""
        lines.append(f"the breaker is open{until} ({breaker.reason})")
    lines += operators.pause_lines(snapshot.pauses.values(), times)
    if not plans:
        # A label that was mistyped must not look like a fleet that is well.
        none = f"no node that the policy selects has the labels {selector}"
        return "\n".join([*lines, "gpuward would do nothing" if shown or not selector else none])
    lines += ["", plan_table.table(plans)]
    for one in plans:
        if details := plan_table.details(one, wide=options.output == "wide"):
            lines += ["", printable(one.node), *command.labelled("", details)]
    return "\n".join(lines)


async def _snapshot(cluster: Cluster, policy: Policy) -> FleetSnapshot:
    nodes = {n.name: n for n in await cluster.nodes(policy.node_selector)}
    sessions = {s.name: s for s in await cluster.sessions()}
    # People may quarantine nodes that the policy does not select.
    for name in {s.spec.node_name for s in sessions.values() if observation.is_open(s)} - set(
        nodes
    ):
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
        device_taints=await tainted_devices.by_node(cluster, policy),
        observing_since=0.0,
    )


async def _maintenance_leases(cluster: Cluster) -> dict[str, LeaseView]:
    """The Leases by node. Prints a line if they cannot be listed or decoded."""
    try:
        found = await cluster.everything(drain_reads.LEASES, {})
        return exclusions.leases_by_node(
            msgspec.convert(one, LeaseView, strict=False) for one in found
        )
    except CommandError as error:
        if not error.forbidden:
            raise
        cluster.say(f"unknown whether node maintenance holds a node: {error}")
    except msgspec.ValidationError as error:
        cluster.say(f"unknown whether node maintenance holds a node: invalid Lease: {error}")
    return {}


async def _node_plan(
    cluster: Cluster,
    found: NodeForecast,
    snapshot: FleetSnapshot,
    pods: Mapping[str, tuple[PodView, ...]],
) -> NodePlan | None:
    """Return the plan of one node, None if nothing happens; `snapshot` is the forecast fleet."""
    name, session = found.node, found.after
    node = snapshot.nodes.get(name)
    believed = node is not None and not cause_context(node, snapshot).stale
    health = snapshot.healths.get(name) if believed else None
    people = operators.part_of_people(
        node, session, snapshot.pauses.values(), snapshot.now, health
    )
    name_of_policy = snapshot.policy_of(node).shown_name or msgspec.UNSET
    step = _next_step(found, snapshot)
    step = msgspec.structs.replace(step, people=people, policy=name_of_policy)
    if session is None:
        reason = _asking(snapshot, name)
        if not reason and not found.not_quarantined:
            return None
        because = f"{step.because}: kubectl gpuward why {name}"
        return msgspec.structs.replace(step, reason=reason, because=because)
    made = msgspec.structs.replace(step, reason=quarantine.most_severe_reason(session.spec.causes))
    if "drain" not in {made.would, made.then} or node is None:
        return made
    result = await _probe(cluster, snapshot, session, pods.get(name, ()))
    outcomes = result.memory.outcomes.values()
    return msgspec.structs.replace(
        made,
        repair=_repair(snapshot, session),
        evictable=sum(outcome.kind is EvictionKind.ACCEPTED for outcome in outcomes),
        blocked=tuple(
            f"{b.pdb or ', '.join(b.pods.names)}: {b.why}; {b.remedy}" for b in result.blocked
        ),
        left=len(result.left_by_policy),
    )


def _asking(snapshot: FleetSnapshot, name: str) -> str:
    """The reason of a fault that asks for a session, on a node without one."""
    node = snapshot.nodes.get(name)
    if node is None:
        return ""
    policy = snapshot.policy_of(node)
    taints = snapshot.device_taints.get(name, {})
    incidents = external.external_of(node, policy, snapshot.now, {}, taints).incidents
    asking = actionable(snapshot.healths.get(name), incidents, policy)
    return asking[0].reason if asking else ""


def _repair(snapshot: FleetSnapshot, session: QuarantineView) -> str:
    """The step that would be asked for after the drain, as a sentence; "" where none would."""
    node = snapshot.nodes.get(session.spec.node_name)
    causes = open_causes(session, cause_context(node, snapshot)) if node is not None else ()
    if node is None or not any(cause.source != "Human" for cause in causes):
        return ""
    others = (
        other
        for other in snapshot.quarantines.values()
        if other.spec.node_name == node.name and other.name != session.name
    )
    health, policy = snapshot.healths.get(node.name), snapshot.policy_of(node)
    found = ladder.rungs(session, others, causes, health, policy, snapshot.now)
    first = next((rung for rung in found if rung.state == ladder.NEXT), None)
    if first is None:
        return "repair: no step of the ladder is left for it" if found else ""
    how = "asked" if policy.repair.mode == "Auto" else "proposed to you, then asked"
    return f"repair: {first.step} would be {how} of {first.adapter} once it is drained"


def _next_step(found: NodeForecast, snapshot: FleetSnapshot) -> NodePlan:
    """What is done, what after a wait, and why not more; `snapshot` is the fleet as foreseen."""
    session, decision = found.after, found.decision
    policy = snapshot.policy_of(snapshot.nodes.get(found.node))
    taint = _TAINTS[policy.parts]
    if session is not None and isolation.may_isolate(session, policy):
        taint = f"isolate its GPUs, else {taint}"
    why, code = decision.because, decision.blocked_by or ""

    def step(would: str, because: str, blocked_by: str = "", then: str = "") -> NodePlan:
        return NodePlan(
            metadata={"name": found.node}, would=would, then=then, because=because,
            blocked_by=blocked_by,
        )  # fmt: skip

    match found.asks:
        case SetRepairCondition() | WriteRepairObject() as asks:
            return step(f"ask for {asks.step}", decision.message)
        case CreateTestJob():
            return step("test under load", decision.message)
    if session is None:
        return step("remove taint and cordon" if found.not_quarantined else "nothing", why, code)
    phase = session.status.phase or Phase.PENDING
    if not observation.is_open(session):
        return step("release" if phase == Phase.RELEASED else f"end, {phase}", why)
    if phase == Phase.PENDING:
        return step("wait", why, code)
    node = snapshot.nodes.get(found.node)
    drains = node is not None and drains_now(session, node, snapshot)
    if phase in {Phase.MARKED, Phase.DRAINING} and drains:
        if decision.evicting is Evicting.GO:
            return step("drain", "")
        return step(f"{taint}, wait" if found.quarantined else "wait", why, code, then="drain")
    if found.quarantined:
        # The forecast session has its taint already.
        return step(taint, _UNDRAINED if phase == Phase.MARKED else decision.message)
    before = found.before.status.phase if found.before is not None else ""
    would = f"stay {phase}" if phase == before else f"go on to {phase}"
    return step(would, decision.message, code)


async def _probe(
    cluster: Cluster,
    snapshot: FleetSnapshot,
    session: QuarantineView,
    pods: tuple[PodView, ...],
) -> DrainPlan:
    """What the drain would come to now, with the API server's answer for each pod."""
    pdbs = await cluster.once("PDBs", cluster.pdbs)
    asking = causes_in_effect(session, snapshot)
    health = snapshot.healths.get(session.spec.node_name)
    policy = snapshot.policy_of(snapshot.nodes.get(session.spec.node_name))
    look = DrainInput(
        node=session.spec.node_name,
        session=session.name,
        pods=pods,
        pdbs=pdbs,
        owners={
            ds.metadata.uid: OwnerView(
                api_version="apps/v1", kind="DaemonSet", metadata=ds.metadata
            )
            for ds in await cluster.once("DaemonSets", cluster.daemon_sets)
        },
        no_room=await _no_room(cluster, snapshot, session, pods),
        severity=worst(asking),
        dry_run=True,
        scope=drain_scope.in_effect(session, asking, health, policy).scope,
        accused=drain_scope.accused_gpus(session, health),
    )
    memory = DrainMemory()
    first = plan_drain(look, policy, memory, snapshot.now)
    by_uid = {pod.metadata.uid: pod for pod in pods}
    for eviction in first.evict:
        pod = by_uid[eviction.uid]
        answer = await cluster.send(requests.request(eviction))
        outcome = classify(answer.code, {}, answer.body, pod, matching(pod, pdbs), snapshot.now)
        if outcome.kind is EvictionKind.MISSING_PERMISSION:
            raise CommandError(
                f"not allowed: {outcome.message}, which a dry run needs too; "
                f"ask for the ClusterRole {command.PLANNER}",
                forbidden=True,
            )
        memory = answered(memory, eviction, outcome)
    return plan_drain(look, policy, memory, snapshot.now)


async def _no_room(
    cluster: Cluster,
    snapshot: FleetSnapshot,
    session: QuarantineView,
    pods: tuple[PodView, ...],
) -> frozenset[str]:
    """UIDs of a Degraded node's GPU pods that would be kept, because they fit nowhere else."""
    waits = waits_for_room(session, causes_in_effect(session, snapshot))
    if not waits or not any(map(node_room.asks_for_room, pods)):
        return frozenset()
    free = node_room.free_gpus(
        snapshot.nodes.values(), await cluster.once("requested", cluster.gpus_requested)
    )
    return node_room.without_room(pods, session.spec.node_name, free)
