"""The circuit breaker: pause new quarantines if too many nodes fail at once or in a similar way.

All input comes from GPUQuarantine objects (creation times, timelines, evidence), so it survives a
restart. The breaker pauses new quarantines and evictions only; releases continue. When it closes,
waiting sessions are assessed again.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from math import log
from operator import itemgetter
from typing import Final, NamedTuple

from rules.api import messages
from rules.api.nodes import QuarantineView
from rules.api.quarantine import Mode
from rules.catalog.why_not import Refusal, WhyNot
from rules.fleet import common_cause
from rules.fleet.common_cause import Found, Shared
from rules.fleet.memory import FleetMemory, ReasonKey, SessionFacts
from rules.policy.policy import Policy
from rules.session import observation
from rules.session.observation import FleetSnapshot
from rules.text.printable import count

_LEAST_SPECIFIC: Final = 1000
_SIGNIFICANT: Final = log(0.05)
"""A common value that is more likely by chance is not significant."""
_SEVERAL: Final = 2
"""The fewest nodes that can have something in common."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetFinding:
    """A common cause of several nodes."""

    reason: str
    shared: str
    """What they share; the name stays while more nodes join."""
    nodes: tuple[str, ...]
    at: float
    message: str
    going_on: int = 0
    """On how many of the nodes a session with this reason is open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """Whether new quarantines are paused, why, and until when."""

    refusal: Refusal | None = None
    """Why new sessions wait; None while the breaker is closed."""
    findings: tuple[FleetFinding, ...] = ()
    """Common causes, including nodes that an operator confirmed, which do not open the breaker."""

    @property
    def open(self) -> bool:
        """Whether new quarantines are paused."""
        return self.refusal is not None

    def refusal_for(self, session: QuarantineView) -> Refusal | None:
        """Return why this session waits, with its own common cause if it has one."""
        refusal = self.refusal
        if refusal is None or (finding := self._finding_of(session)) is None:
            return refusal
        why = f"{finding.message}. {_THEN}"
        return replace(refusal, reason=WhyNot.CORRELATED_CAUSE, why=why)

    def _finding_of(self, session: QuarantineView) -> FleetFinding | None:
        reasons = {cause.reason for cause in session.spec.causes if cause.source != "Human"}
        for finding in self.findings:
            if finding.reason in reasons and session.spec.node_name in finding.nodes:
                return finding
        return None


def asked_by_detectors(
    snapshot: FleetSnapshot, memory: FleetMemory, mode: Mode
) -> tuple[SessionFacts, ...]:
    """Return the sessions of detectors in this mode, oldest first."""
    found = [
        (facts.wanted_at, name, facts)
        for name, session in snapshot.counted.items()
        if ((facts := memory.facts(session)).may_be_storm or facts.confirmed)
        and snapshot.mode_of(session) == mode
    ]
    found.sort(key=itemgetter(0, 1))
    return tuple(facts for _, _, facts in found)


def counted(asked: Iterable[SessionFacts]) -> tuple[SessionFacts, ...]:
    """Return the sessions that count for the breaker: those that no operator confirmed."""
    return tuple(facts for facts in asked if facts.may_be_storm)


def judge_breaker(
    snapshot: FleetSnapshot, memory: FleetMemory, asked: tuple[SessionFacts, ...]
) -> Breaker:
    """Return the state of the breaker; `asked` is the result of `asked_by_detectors`."""
    sessions = counted(asked)
    findings = correlated_findings(snapshot, sessions, memory)
    cooldown_s = snapshot.policy.budget.cooldown_s
    excesses = [
        *(
            _Excess(0, finding.at, WhyNot.CORRELATED_CAUSE, finding.message)
            for finding in findings
        ),
        *_per_reason(snapshot, sessions, memory),
        *_too_many(snapshot.policy, sessions),
    ]
    live = [excess for excess in excesses if snapshot.now < excess.at + cooldown_s]
    if not live:
        return Breaker()
    until = max(excess.at for excess in live) + cooldown_s
    first = min(live, key=lambda excess: (excess.rank, -excess.at))
    if len(asked) > len(sessions):
        findings = correlated_findings(snapshot, asked, memory)
    return Breaker(
        refusal=Refusal(
            reason=first.reason,
            why=f"{first.what}. {_THEN}",
            until=until,
        ),
        findings=tuple(one for one in findings if snapshot.now < one.at + cooldown_s),
    )


_THEN: Final = (
    "New quarantines are paused until budget.cooldown is over. Then nodes that still fail are "
    "quarantined within the budget, unless a GPUWardPause covers them"
)
"""What happens to the waiting nodes, and how to prevent it."""


class _Excess(NamedTuple):
    """What opens the breaker, and since when; the lowest rank is reported."""

    rank: int
    at: float
    reason: WhyNot
    what: str


def _too_many(policy: Policy, sessions: Sequence[SessionFacts]) -> list[_Excess]:
    """Return the latest node that exceeded `maxNew`."""
    rate = policy.budget.max_new
    if len(sessions) <= rate.count:
        return []
    times = [facts.wanted_at for facts in _once_per_node(sessions, rate.window_s)]
    late = [
        at
        for position, at in enumerate(times)
        if position >= rate.count and at - times[position - rate.count] < rate.window_s
    ]
    if not late:
        return []
    message = (
        f"more than {count(rate.count, 'node')} requested a quarantine within {rate.window_s}"
    )
    return [_Excess(2, late[-1], WhyNot.MAX_NEW, message)]


def _once_per_node(sessions: Iterable[SessionFacts], window_s: float) -> list[SessionFacts]:
    """Return the sessions in order, at most one of each node per window."""
    last: dict[str, float] = {}
    kept = []
    for facts in sessions:
        before = last.get(facts.node)
        if before is None or facts.wanted_at - before >= window_s:
            last[facts.node] = facts.wanted_at
            kept.append(facts)
    return kept


def reason_keys(
    session: QuarantineView, snapshot: FleetSnapshot, memory: FleetMemory
) -> tuple[ReasonKey, ...]:
    """Return (reason, driver, agent version, rules version) for each reason of the session."""
    return memory.keys(session, snapshot.healths.get(session.spec.node_name))


def used_reasons(
    snapshot: FleetSnapshot, sessions: Iterable[SessionFacts], memory: FleetMemory
) -> dict[ReasonKey, set[str]]:
    """Return the nodes that each reason quarantined within `perReason.window`."""
    window_s = snapshot.policy.budget.per_reason.window_s
    used: dict[ReasonKey, set[str]] = {}
    for facts in sessions:
        at = facts.tainted_at
        if at is not None and snapshot.now - at < window_s:
            for key in reason_keys(facts.session, snapshot, memory):
                used.setdefault(key, set()).add(facts.node)
    return used


def used_up(used: Mapping[ReasonKey, Set[str]], key: ReasonKey, node: str, count: int) -> bool:
    """Return whether the reason reached its limit of nodes; its own nodes count once."""
    nodes = used.get(key, frozenset())
    return node not in nodes and len(nodes) >= count


def _per_reason(
    snapshot: FleetSnapshot, sessions: tuple[SessionFacts, ...], memory: FleetMemory
) -> list[_Excess]:
    """Return since when a node waits because of the limit of its reason."""
    rate = snapshot.policy.budget.per_reason
    if len(sessions) < rate.count:
        return []
    used = used_reasons(snapshot, sessions, memory)
    first: dict[tuple[str, ReasonKey], float] = {}
    excesses = []
    for facts in sessions:
        if facts.tainted_at is not None or snapshot.now - facts.wanted_at >= rate.window_s:
            continue
        for key in reason_keys(facts.session, snapshot, memory):
            at = first.setdefault((facts.node, key), facts.created_at)
            if observation.is_open(facts.session) and used_up(used, key, facts.node, rate.count):
                message = (
                    f"{key[0]} quarantined {count(rate.count, 'node')} within {rate.window_s}"
                )
                excesses.append(_Excess(1, at, WhyNot.PER_REASON, message))
    return excesses


def correlated_findings(
    snapshot: FleetSnapshot, sessions: Sequence[SessionFacts], memory: FleetMemory
) -> tuple[FleetFinding, ...]:
    """Return one finding per reason of several nodes that share something within a window."""
    rate = snapshot.policy.budget.max_new
    several = max(_SEVERAL, rate.count)
    if len(sessions) < several:
        return ()
    labels = common_cause.keys_for(snapshot.policy.budget.per)
    groups: defaultdict[tuple[str, int, str], list[SessionFacts]] = defaultdict(list)
    for facts in sessions:
        node, health = snapshot.nodes.get(facts.node), snapshot.healths.get(facts.node)
        for rank, shared in enumerate(memory.shared(facts.session, node, health, labels)):
            if shared:
                for reason in facts.reasons:
                    groups[(reason, rank, shared)].append(facts)
        # External causes share at least the detector.
        for reason in facts.external:
            groups[(reason, _LEAST_SPECIFIC, "detector=External")].append(facts)
    found: defaultdict[str, list[_Burst]] = defaultdict(list)
    for reason, rank, shared in sorted(groups):
        once = _once_per_node(groups[reason, rank, shared], rate.window_s)
        burst = _last_burst(once, several, rate.window_s)
        if burst is not None:
            key, _, value = shared.partition("=")
            found[reason].append(_Burst(rank, (key, value), burst))
    return tuple(_finding(reason, found[reason], memory) for reason in sorted(found))


class _Burst(NamedTuple):
    """Sessions of nodes with one shared value."""

    rank: int
    shared: Shared
    sessions: list[SessionFacts]


def _finding(reason: str, bursts: list[_Burst], memory: FleetMemory) -> FleetFinding:
    """Return the finding with the shared value that is least likely by chance.

    An instance type of the entire fleet explains nothing, a driver of few nodes does. If no value
    is significant, it is the one that most nodes share. The breaker counts from the latest session
    of all shared values.
    """
    fleet, groups = len(memory.census.selected), memory.census.labels.groups
    hits = {one.shared: {facts.node for facts in one.sessions} for one in bursts}
    ranks = {one.shared[0]: one.rank for one in bursts}
    faulty = len(set().union(*hits.values()))

    def order(found: Found) -> tuple[float, int, int]:
        odds = found.odds if found.odds < _SIGNIFICANT else 0.0
        return odds, -found.hit, ranks[found.alike.key]

    candidates = common_cause.found_alike(hits, faulty, groups, fleet, _SEVERAL)
    best = min(
        (one for one in candidates if one.odds < _SIGNIFICANT or len(one.alike.values) == 1),
        key=order,
    )
    nodes = common_cause.nodes_of(best.alike, hits)
    going_on = {
        facts.node
        for one in bursts
        for facts in one.sessions
        if observation.is_open(facts.session)
    }
    return FleetFinding(
        reason=reason,
        shared=best.alike.name,
        nodes=nodes,
        at=max(one.sessions[-1].wanted_at for one in bursts),
        message=f"{reason} on {_who(best, nodes, fleet)}",
        going_on=len(going_on.intersection(nodes)),
    )


def _who(found: Found, nodes: tuple[str, ...], fleet: int) -> str:
    """Return the nodes and what they share, a clause."""
    if len(found.alike.values) > 1:
        return found.alike.among(len(nodes), found.group)
    of = f"{found.group} of {fleet} do, " if len(nodes) <= found.group < fleet else ""
    return f"{len(nodes)} nodes that share {found.alike.name} ({of}{messages.name_list(nodes)})"


def _last_burst(
    members: list[SessionFacts], several: int, window_s: float
) -> list[SessionFacts] | None:
    """Return the latest sessions on at least `several` nodes within one window."""
    times = [member.wanted_at for member in members]
    for end in range(len(members) - 1, several - 2, -1):
        run = members[bisect_right(times, times[end] - window_s) : end + 1]
        if len(run) >= several and len({member.node for member in run}) >= several:
            return run
    return None
