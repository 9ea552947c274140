"""Decide which sessions may quarantine their node now, within budget, rates and breaker.

The remediator calls `judge_fleet` once per cycle with the entire snapshot. Every session gets a
`Permit`. All input comes from API objects, so a restart and a second replica get the same result.
Releases are never blocked here.
"""

from bisect import insort
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from rules.api import quarantine_taint
from rules.api.nodes import NodeView, QuarantineView
from rules.api.quarantine import Mode, Phase
from rules.api.writes import EmitEvent
from rules.catalog.reason import Severity, severity_rank
from rules.catalog.why_not import Refusal, WhyNot
from rules.drain import node_room
from rules.drain.gangs import Gang
from rules.fleet import nvlink_domain, quarantined_turns
from rules.fleet.breaker import (
    Breaker,
    FleetFinding,
    asked_by_detectors,
    counted,
    judge_breaker,
    reason_keys,
    used_reasons,
    used_up,
)
from rules.fleet.budget import BudgetBook, BudgetLine, control_plane, isolated_share
from rules.fleet.memory import FleetMemory, SessionFacts
from rules.fleet.nvlink_domain import DomainFaults
from rules.session import exclusions, observation
from rules.session.causes import (
    cause_context,
    causes_now,
    drains_now,
    has_human,
    needs_no_health_status,
    worst,
)
from rules.session.observation import FleetSnapshot, Permit, Unjudged
from rules.text import printable

STARTED: Final = frozenset({"Marked", "Draining", "Quarantined", "Repairing", "Validating"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetAssessment:
    """A permit for every open session, and the counts behind it."""

    permits: Mapping[str, Permit] = field(default_factory=dict)
    """By session name."""
    breaker: Breaker = field(default_factory=Breaker)
    lines: tuple[BudgetLine, ...] = ()
    events: tuple[EmitEvent, ...] = ()
    selected: int = 0
    """How many nodes the policy selects. An alert fires at 0."""


def judge_fleet(snapshot: FleetSnapshot, memory: FleetMemory | None = None) -> FleetAssessment:
    """Return a permit for every open session. `memory` caches results of earlier calls."""
    memory = memory or FleetMemory()
    memory.keep(snapshot.counted)
    selected, book = budget_book(snapshot, memory)
    lines = book.lines()
    opened = [s for s in snapshot.counted.values() if observation.is_open(s)]
    domains = nvlink_domain.domain_faults(snapshot, memory)
    permits = dict(quarantined_turns.drain_permits(opened, snapshot))
    permits |= quarantined_turns.repair_permits(opened, snapshot)
    mode, *others = snapshot.policy.modes
    # What a pool in Shadow would do takes no place from nodes that are quarantined.
    apart = {s.name for s in opened if others and snapshot.mode_of(s) in others}
    rest = [session for session in opened if session.name not in apart]
    found, breaker = _quarantine_permits(rest, mode, book, domains, snapshot, memory)
    breaker = replace(breaker, findings=(*breaker.findings, *domains.findings))
    permits |= found
    for other in others:
        played = [session for session in opened if session.name in apart]
        _, book = budget_book(snapshot, memory, other)
        permits |= _quarantine_permits(played, other, book, domains, snapshot, memory)[0]
    return FleetAssessment(
        permits=permits,
        breaker=breaker,
        lines=lines,
        events=tuple(finding_event(finding, snapshot) for finding in breaker.findings),
        selected=len(selected),
    )


def _quarantine_permits(
    opened: list[QuarantineView],
    mode: Mode,
    book: BudgetBook,
    domains: DomainFaults,
    snapshot: FleetSnapshot,
    memory: FleetMemory,
) -> tuple[Mapping[str, Permit], Breaker]:
    """Return the permits to quarantine of the sessions in this mode, and its breaker."""
    asked = tuple(
        facts
        for facts in asked_by_detectors(snapshot, memory, mode)
        if facts.session.name not in domains.explained
    )
    breaker = judge_breaker(snapshot, memory, asked)
    turns = _Turns(snapshot, opened, counted(asked), book, breaker, memory, domains.refusals)
    order = _in_order(opened, snapshot, memory)
    return {session.name: turns.judge(session) for session in order}, breaker


def budget_book(
    snapshot: FleetSnapshot, memory: FleetMemory | None = None, mode: Mode | None = None
) -> tuple[Mapping[str, NodeView], BudgetBook]:
    """Return the nodes that the policy selects, and how many of them are unavailable. `mode`:
    Enforce if any policy has it.
    """
    policy = snapshot.policy
    mode = mode or policy.modes[0]
    census = (memory or FleetMemory()).census
    census.update(snapshot.nodes, policy)
    taken = dict.fromkeys(snapshot.reserved, 1.0)
    for session in snapshot.counted.values():
        node = snapshot.nodes.get(session.spec.node_name)
        # Sessions in Shadow count in a Shadow budget only.
        if (
            node is not None
            and observation.is_open(session)
            and session.status.phase in STARTED
            and session.status.mode == mode
        ):
            # The largest share counts, until a second session of the node is merged.
            share = isolated_share(session, node)
            taken[node.name] = max(share, taken.get(node.name, 0.0))
    return census.selected, census.book(taken, policy, snapshot.now)


def over_budget(node: str, selected: Mapping[str, NodeView], book: BudgetBook) -> str:
    """Return which budgets one more unavailable node exceeds, a clause; "" for none.

    An operator's request ignores budgets, so the command line shows this.
    """
    if node not in selected:
        return ""
    return " and ".join(line.clause for line in book.would_exceed(selected[node]))


def _in_order(
    opened: list[QuarantineView], snapshot: FleetSnapshot, memory: FleetMemory
) -> list[QuarantineView]:
    """Return the Pending sessions in order: tainted nodes first, then Fatal before Degraded, gangs
    together, the oldest first.

    A node may be tainted before its session records it, and counts in every limit already.
    """
    pending = [s for s in opened if s.status.phase in {"", "Pending"}]
    first: dict[str, float] = {}
    for session in opened:
        for gang in snapshot.gangs.get(session.spec.node_name, ()):
            created = memory.facts(session).wanted_at
            first[gang.key] = min(first.get(gang.key, created), created)

    def order(session: QuarantineView) -> tuple[bool, int, float, str, float, str]:
        created = memory.facts(session).wanted_at
        gangs = snapshot.gangs.get(session.spec.node_name, ())
        key = min((g.key for g in gangs), key=lambda k: (first[k], k), default="")
        severity = severity_rank(worst(session.spec.causes))
        waits = not _takes(session, snapshot)
        return waits, -severity, first.get(key, created), key, created, session.name

    return sorted(pending, key=order)


def _takes(session: QuarantineView, snapshot: FleetSnapshot) -> bool:
    """Return whether the session's taint is on its node, or its write is in flight."""
    node = snapshot.nodes.get(session.spec.node_name)
    if node is None or node.name in snapshot.reserved:
        return node is not None
    note = quarantine_taint.read_note(node)
    return note is not None and note.session == session.name


class _Turns:
    """Gives sessions their turn in order, and counts each one."""

    def __init__(
        self,
        snapshot: FleetSnapshot,
        opened: Iterable[QuarantineView],
        sessions: Iterable[SessionFacts],
        book: BudgetBook,
        breaker: Breaker,
        memory: FleetMemory,
        explained: Mapping[str, Refusal],
    ) -> None:
        self._explained = explained
        self._snapshot = snapshot
        self._memory = memory
        self._book = book
        self._breaker = breaker
        self._selected: Mapping[str, NodeView] = memory.census.selected
        self._used = used_reasons(snapshot, sessions, memory)
        window_s = snapshot.policy.budget.max_new.window_s
        self._new: dict[str, list[float]] = {}
        """When each node was quarantined within `maxNew.window`, oldest first."""
        for facts in sessions:
            at = facts.tainted_at
            if at is not None and snapshot.now - at < window_s:
                insort(self._new.setdefault(facts.node, []), at)
        pending = [s for s in opened if s.status.phase in {"", Phase.PENDING}]
        self._gang_needs = self._count_gang_needs(pending)
        self._unread = {
            session.spec.node_name
            for session in pending
            if session.spec.node_name not in snapshot.gangs
            and (node := snapshot.nodes.get(session.spec.node_name)) is not None
            and drains_now(session, node, snapshot)
        }

    def judge(self, session: QuarantineView) -> Permit:
        """Return whether the session may quarantine its node now."""
        node = self._snapshot.nodes.get(session.spec.node_name)
        if node is None:
            return _no(WhyNot.NODE_GONE, "there is no such node")
        if not self._may_act(session, node):
            return _no(WhyNot.WAITING, "a pause, an owner, its policy or its assessment delays it")
        in_shadow = self._snapshot.policy_of(node).mode == Mode.SHADOW
        if node.name in self._snapshot.taint_refused and not in_shadow:
            # A refused taint takes no place in the budget.
            return Permit(unjudged=Unjudged.TAINT_REFUSED)
        if has_human(session):
            self._book.take(node)
            return Permit(start=True, unjudged=None)
        if (explained := self._explained.get(session.name)) is not None:
            return Permit.refused(explained)
        permit = self._refused(node)
        if permit is None and (storm := self._breaker.refusal_for(session)) is not None:
            permit = Permit.refused(storm, storm=True)
        permit = permit or self._limits(session, node)
        if permit is not None:
            return permit
        self._give(session, node)
        return Permit(start=True, unjudged=None)

    def _may_act(self, session: QuarantineView, node: NodeView) -> bool:
        """Return whether the session could act if it got a turn."""
        snapshot = self._snapshot
        shadow = snapshot.policy_of(node).mode == Mode.SHADOW
        if exclusions.kept_off(node, snapshot) or (shadow and session.status.mode == Mode.ENFORCE):
            return False
        causes = causes_now(session, node, snapshot)
        return bool(causes) and (
            not cause_context(node, snapshot).stale or needs_no_health_status(causes)
        )

    def _refused(self, node: NodeView) -> Permit | None:
        if node.name not in self._selected:
            return _no(WhyNot.NOT_SELECTED, "the policy does not select the node")
        decides = f'an operator decides with kubectl gpuward quarantine {node.name} --reason "..."'
        if control_plane(node):
            return _no(WhyNot.CONTROL_PLANE, f"it is a control-plane node, {decides}")
        if alone := self._memory.census.alone(node):
            return _no(WhyNot.ONLY_NODE_OF_POOL, f"{alone}, {decides}")
        return None

    def _limits(self, session: QuarantineView, node: NodeView) -> Permit | None:
        budget = self._snapshot.policy.budget
        for key in reason_keys(session, self._snapshot, self._memory):
            if used_up(self._used, key, node.name, budget.per_reason.count):
                return _no(
                    WhyNot.PER_REASON,
                    f"{key[0]} quarantined {printable.count(budget.per_reason.count, 'node')} "
                    f"within {budget.per_reason.window_s}; if the fault is real, run kubectl "
                    f'gpuward quarantine {node.name} --reason "..."',
                )
        new = self._new_at(node.name)
        if len(new) >= budget.max_new.count:
            until = new[-budget.max_new.count] + budget.max_new.window_s
            return _no(
                WhyNot.MAX_NEW,
                f"{printable.count(budget.max_new.count, 'node was', 'nodes were')} quarantined "
                f"within {budget.max_new.window_s}",
                until,
            )
        if self._book.is_gone(node):
            return self._overtaken(node)
        line = self._book.tightest(node)
        if line.room < 1:
            return _no(WhyNot.BUDGET, line.clause)
        return self._gang_fits(session, node, line)

    def _new_at(self, name: str) -> list[float]:
        """Return the quarantine times that count for this node: all of its own, and the last one
        of every other node.
        """
        others = (times[-1] for node, times in self._new.items() if node != name)
        return sorted([*others, *self._new.get(name, ())])

    def _overtaken(self, node: NodeView) -> Permit | None:
        """Return why a taint in flight exceeds the budget, if other nodes became unavailable."""
        if node.name not in self._snapshot.reserved or node_room.is_unavailable(node):
            return None
        for line in map(self._book.line, self._book.keys_of(node)):
            if line.unavailable > line.limit:
                return _no(WhyNot.BUDGET, line.clause)
        return None

    def _gang_fits(
        self, session: QuarantineView, node: NodeView, line: BudgetLine
    ) -> Permit | None:
        """Return whether the budget has room for all bad nodes of a Degraded gang."""
        if worst(session.spec.causes) == Severity.FATAL:
            return None
        gangs = self._snapshot.gangs.get(node.name, ())
        if self._gangs_unread(session, bool(gangs)):
            return Permit(unjudged=Unjudged.GANGS_OF_OTHERS)
        for gang in gangs:
            need = len(self._gang_needs.get(gang.key, set()))
            if not gang.topology_aware and need > line.room:
                return _no(
                    WhyNot.GANG_BUDGET,
                    f"gang {gang.key} has {need} bad nodes and the budget has room for "
                    f"{line.room}, so none of them is taken yet",
                )
        return None

    def _gangs_unread(self, session: QuarantineView, in_gang: bool) -> bool:
        """Return whether the gangs of this node, or of possible gang members, are not read yet."""
        snapshot = self._snapshot
        node = snapshot.nodes.get(session.spec.node_name)
        if node is None or not drains_now(session, node, snapshot):
            return False
        asked = self._unread if in_gang else {session.spec.node_name}
        since = session.metadata.created_at
        return any(
            quarantined_turns.unread_until(one, since, snapshot) is not None for one in asked
        )

    def _count_gang_needs(self, pending: Iterable[QuarantineView]) -> dict[str, set[str]]:
        """Return the available nodes with a Pending session, by gang."""
        needs: defaultdict[str, set[str]] = defaultdict(set)
        for session in pending:
            node = self._snapshot.nodes.get(session.spec.node_name)
            if node is None or self._book.is_gone(node):
                continue
            gangs: tuple[Gang, ...] = self._snapshot.gangs.get(node.name, ())
            for gang in gangs:
                needs[gang.key].add(node.name)
        return dict(needs)

    def _give(self, session: QuarantineView, node: NodeView) -> None:
        self._book.take(node)
        self._new.setdefault(node.name, []).append(self._snapshot.now)
        for key in reason_keys(session, self._snapshot, self._memory):
            self._used.setdefault(key, set()).add(node.name)
        for gang in self._snapshot.gangs.get(node.name, ()):
            self._gang_needs.get(gang.key, set()).discard(node.name)


def _no(reason: WhyNot, why: str, until: float | None = None) -> Permit:
    return Permit.refused(Refusal(reason=reason, why=why, until=until))


def finding_event(finding: FleetFinding, snapshot: FleetSnapshot) -> EmitEvent:
    """Return one Event on the Deployment per finding; its key stays while the finding grows."""
    return EmitEvent(
        node="",
        node_uid="",
        kind="Warning",
        reason=WhyNot.CORRELATED_CAUSE,
        message=finding.message,
        at=snapshot.now,
        key=f"{finding.reason}/{finding.shared}/{finding.at - finding.at % 3600:.0f}",
        namespace=snapshot.own_namespace,
    )
