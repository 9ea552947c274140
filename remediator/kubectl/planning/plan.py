"""`kubectl gpuward plan`: what would happen now if the policy enforced, node by node.

Reads the live cluster, judges it with the remediator's own rules and asks the API server with one
dry-run eviction per pod. It writes nothing: dry runs do not add up, so each pod answers for
itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from remediator.kubectl.cluster import Cluster
from remediator.kubectl.command import CommandError
from remediator.kubectl.look import existing_node
from remediator.kubectl.planning.probe import probe
from remediator.view.people import part_of_people, pause_lines
from remediator.view.text import columns, count, document, labelled
from rules.api.nodes import ObjectMeta, QuarantineView
from rules.api.pods import PodView
from rules.api.quarantine import Mode, Phase, QuarantineStatus
from rules.api.selectors import parse_selector
from rules.api.sentences import some
from rules.api.writes import CreateSession
from rules.catalog.why_not import WhyNot
from rules.drain.daemon_sets import untolerating
from rules.drain.eviction import EvictionKind
from rules.drain.gangs import gangs_of
from rules.fleet.budget import BudgetLine
from rules.fleet.turns import budget_book, judge_fleet, over_budget
from rules.policy.policy import Policy
from rules.session.case import Case
from rules.session.causes import (
    actionable,
    drains_now,
    has_human,
    open_causes,
    sight_of,
)
from rules.session.decide import decide
from rules.session.halts import halt_of, unreachable
from rules.session.observation import Permit, is_open, observe, sessions_by_node
from rules.session.repair.rungs import NEXT, rungs
from rules.session.snapshot import FleetSnapshot
from rules.text.printable import printable

SHOWN_BLOCKS = 3
READ_ONE_BY_ONE = 20
"""Nodes whose pods are read node by node; of more all pods are listed once."""
IN_DRAIN = {str(Phase.DRAINING), str(Phase.MARKED), str(Phase.PENDING)}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlan:
    """One node: what would be done, why not more, and what its pods answer."""

    node: str
    would: str
    reason: str
    then: str = ""
    """What comes after a wait; the answers of its pods are about that."""
    because: str = ""
    evictable: int = 0
    blocked: tuple[str, ...] = ()
    left: int = 0
    untolerating: tuple[str, ...] = ()
    over_budget: str = ""
    """Which budget it exceeds; only what a person asked for does."""
    repair: str = ""
    """Where the repair ladder would begin after the drain."""
    people: tuple[str, ...] = ()
    """What people decided about the node: held, paused, opted out."""


async def plan(
    cluster: Cluster,
    policy: Policy,
    source: str,
    *,
    nodes: Sequence[str],
    selector: str,
    form: str,
) -> str:
    """The plan as text, or as JSON or YAML: of all nodes, of some, of those with some labels.

    `source` says where the policy is from.
    """
    snapshot = await _snapshot(cluster, msgspec.structs.replace(policy, mode=Mode.ENFORCE))
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
    found, passed_over = _with_wanted(snapshot)
    sessions = [s for s in found.values() if is_open(s)]
    wanted = [s for s in sessions if s.spec.node_name in shown or not (nodes or selector)]
    both = dict(snapshot.quarantines) | {s.name: s for s in sessions}
    pods = await _pods(cluster, snapshot, sessions)
    gangs = {name: gangs_of(found, {}) for name, found in pods.items()}
    judged = replace(snapshot, quarantines=both, gangs=gangs)
    verdict = judge_fleet(judged)
    over = _over_budget(judged, sessions)
    planned = [one for one in passed_over if one.node in shown]
    for session in sorted(wanted, key=lambda s: (s.spec.node_name, s.name)):
        permit = verdict.permits.get(session.name, Permit())
        made = await _node_plan(cluster, snapshot, session, permit, pods)
        people = _people(snapshot, made.node, session)
        planned.append(replace(made, over_budget=over.get(session.name, ""), people=people))
    planned.sort(key=lambda one: one.node)
    if form in {"json", "yaml"}:
        return document([msgspec.to_builtins(one) for one in planned], form)
    lines = [f"{source}, mode {policy.mode}; {count(verdict.selected, 'node')} selected"]
    if policy.mode == Mode.SHADOW:
        lines.append("this is what Enforce would do; in Shadow nothing is done")
    lines += [_budget_line(line) for line in verdict.lines]
    lines += pause_lines(snapshot.pauses.values(), snapshot.now)
    if not planned:
        return "\n".join([*lines, "nothing would be done"])
    return "\n".join([*lines, "", _table(planned), *_details(planned, wide=form == "wide")])


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


def _people(snapshot: FleetSnapshot, name: str, session: QuarantineView | None) -> tuple[str, ...]:
    return part_of_people(
        snapshot.nodes.get(name), session, snapshot.pauses.values(), snapshot.now
    )


def _budget_line(line: BudgetLine) -> str:
    standing = f": {line.standing}, no detector takes another" if line.standing else ""
    return f"budget: {line.clause}{standing}"


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


def _table(planned: Sequence[NodePlan]) -> str:
    rows = [
        [
            p.node, f"{p.would}, then {p.then}" if p.then else p.would, p.reason,
            ", ".join(p.people), str(p.evictable), str(len(p.blocked)), str(p.left),
        ]
        for p in planned
    ]  # fmt: skip
    return columns(["NODE", "WOULD", "REASON", "PEOPLE", "EVICT", "BLOCKED", "LEFT"], rows)


def _details(planned: Sequence[NodePlan], *, wide: bool) -> list[str]:
    """Under the table, node by node: why it waits, what blocks it, what could not come back."""
    lines: list[str] = []
    for one in planned:
        said = [text for text in (one.over_budget, one.because) if text]
        blocked = one.blocked if wide else one.blocked[:SHOWN_BLOCKS]
        said += [f"blocked: {text}" for text in blocked]
        if len(one.blocked) > len(blocked):
            said.append(f"and {len(one.blocked) - len(blocked)} more blocks: -o wide")
        if one.repair:
            said.append(one.repair)
        if one.untolerating:
            said.append(f"could not come back: {some(one.untolerating)} (no toleration)")
        if said:
            lines += ["", printable(one.node), *labelled("", said)]
    return lines


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
        observing_since=0.0,
    )


def _with_wanted(
    snapshot: FleetSnapshot,
) -> tuple[dict[str, QuarantineView], list[NodePlan]]:
    """The sessions there are, Shadow ones left out, and those that would be opened now; then the
    nodes whose fault asks for one and that get none.
    """
    found = {
        name: session
        for name, session in snapshot.quarantines.items()
        if session.status.mode != Mode.SHADOW
    }
    passed_over = []
    by_node = sessions_by_node(found)
    for name in snapshot.nodes:
        if any(is_open(session) for session in by_node.get(name, ())):
            continue
        seen = observe(snapshot, name, permit=Permit(), sessions=by_node)
        decision = decide(None, seen, snapshot.now, snapshot.policy)
        for write in decision.writes:
            if isinstance(write, CreateSession):
                found[write.name] = _imagined(write, snapshot)
        asking = actionable(seen.health, seen.external.incidents, snapshot.policy)
        if asking and not decision.writes and not decision.needs_fresh_node:
            passed_over.append(
                NodePlan(
                    node=name,
                    would="nothing",
                    reason=asking[0].reason,
                    because=f"{decision.because}: kubectl gpuward why {name}",
                    people=_people(snapshot, name, None),
                )
            )
    return found, passed_over


def _imagined(write: CreateSession, snapshot: FleetSnapshot) -> QuarantineView:
    meta = ObjectMeta(name=write.name, uid=write.name, creation_timestamp="")
    status = QuarantineStatus(mode=str(snapshot.policy.mode), phase=str(Phase.PENDING))
    return QuarantineView(metadata=meta, spec=write.spec, status=status)


def _repair(snapshot: FleetSnapshot, session: QuarantineView) -> str:
    """The step that would be asked for after the drain, as a sentence; "" where none would."""
    node = snapshot.nodes.get(session.spec.node_name)
    causes = open_causes(session, sight_of(node, snapshot)) if node is not None else ()
    if node is None or not any(cause.source != "Human" for cause in causes):
        return ""
    others = (
        other
        for other in snapshot.quarantines.values()
        if other.spec.node_name == node.name and other.name != session.name
    )
    health = snapshot.healths.get(node.name)
    found = rungs(session, others, causes, health, snapshot.policy, snapshot.now, snapshot.records)
    first = next((rung for rung in found if rung.state == NEXT), None)
    if first is None:
        return "repair: no step of the ladder is left for it" if found else ""
    how = "asked" if snapshot.policy.repair.mode == "Auto" else "proposed to you, then asked"
    return f"repair: {first.step} would be {how} of {first.adapter} once it is drained"


async def _node_plan(
    cluster: Cluster,
    snapshot: FleetSnapshot,
    session: QuarantineView,
    permit: Permit,
    pods: Mapping[str, tuple[PodView, ...]],
) -> NodePlan:
    name = session.spec.node_name
    phase = session.status.phase or Phase.PENDING
    reason = session.spec.causes[0].reason if session.spec.causes else ""
    node = snapshot.nodes.get(name)
    if node is None or (session.spec.node_uid and session.spec.node_uid != node.uid):
        why = "there is no such node any more" if node is None else "it is another node by now"
        return NodePlan(node=name, would="end, NodeGone", reason=reason, because=why)
    if session.spec.release is not None:
        return NodePlan(node=name, would="release", reason=reason)
    waits = _held_up(snapshot, session, permit)
    if phase == Phase.PENDING and not permit.start:
        because = waits or permit.why
        if not waits and permit.refusal is not None and permit.refusal.reason is WhyNot.WAITING:
            because = (
                session.status.message or f"held up, by what says: kubectl gpuward why {name}"
            )
        return NodePlan(node=name, would="wait", reason=reason, because=because)
    drains = phase in IN_DRAIN and drains_now(session, node, snapshot)
    if not drains:
        would = "cordon and taint" if phase == Phase.PENDING else f"stay {phase}"
        return NodePlan(node=name, would=would, reason=reason, because=session.status.message)
    marking = phase == Phase.PENDING and waits
    result = await probe(cluster, snapshot, session, pods[name])
    accepted = sum(
        outcome.kind is EvictionKind.ACCEPTED for outcome in result.memory.outcomes.values()
    )
    daemon_sets = await cluster.daemon_sets()
    return NodePlan(
        node=name,
        would="cordon and taint, wait" if marking else "wait" if waits else "drain",
        then="drain" if waits else "",
        reason=reason,
        repair=_repair(snapshot, session),
        because=waits,
        evictable=accepted,
        blocked=tuple(
            f"{b.pdb or ', '.join(b.pods)}: {b.why}; {b.remedy}" for b in result.blocked
        ),
        left=len(result.left_by_policy),
        untolerating=untolerating(node, daemon_sets),
    )


def _held_up(snapshot: FleetSnapshot, session: QuarantineView, permit: Permit) -> str:
    """Why nothing is evicted now although the session may go on, in a clause: a person's word, an
    owner at work, a silent kubelet, or the drains of others; "" where nothing is.
    """
    by_node = sessions_by_node(snapshot.quarantines)
    name = session.spec.node_name
    seen = observe(snapshot, name, permit=permit, sessions=by_node, session=session)
    case = Case(session=session, seen=seen, now=snapshot.now, policy=snapshot.policy)
    if (halt := halt_of(case)) is not None:
        return halt.why
    if unreachable(case):
        return "its kubelet is silent, nothing is evicted or forced until it is back"
    in_turn = session.status.phase in {Phase.MARKED, Phase.DRAINING}
    return permit.why if in_turn and permit.refusal is not None and not permit.drain else ""
