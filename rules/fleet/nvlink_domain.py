"""Find the node at fault when an NVLink error reaches many nodes of one NVLink domain.

A bad link disturbs its peers: one GPU reports the link (Xid 149) and the other GPUs of the domain
report remote errors (Xid 144 to 148 and 150). In the public case (GB200 NVL72, 505 link recoveries
before) Xid 145 appeared on the other 63 GPUs of 16 nodes, and the provider evicted the one node.

- A node **accuses itself** by Xid 149, or by a link that is down, did not recover or makes errors.
- A node with remote errors alone is a **witness**: its session waits and ends with the errors.
- Witnesses without an accused node, or several accused nodes, point at a switch or a cable: then
  the **domain** is at fault, no node is quarantined automatically, and an operator decides.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from rules.api import messages, timestamps
from rules.api.names import LABEL_NVLINK_DOMAIN
from rules.api.nodes import HealthView
from rules.catalog.why_not import Refusal, WhyNot
from rules.catalog.xid import reason_for_xid
from rules.fleet.breaker import FleetFinding
from rules.fleet.memory import FleetMemory, SessionFacts
from rules.session import observation
from rules.session.observation import FleetSnapshot
from rules.text.printable import count

SAME_FAULT_S: Final = 60.0
"""Events of one domain within this time belong together. In the public case the provider had the
last report and its decision within 35 s."""
COLLECT_S: Final = 10.0
"""How long a witness waits for the report of the node at fault before it stands alone."""


class Blame(IntEnum):
    """How much an NVLink error points at its own node, from least to most."""

    REMOTE = 0
    """The error is at the other end of a link."""
    HISTORY = 1
    """A link of the node makes errors for longer."""
    OWN_LINK = 2
    """A link of the node is bad."""


_PROVES: Final[Mapping[str, Blame]] = {
    **{reason_for_xid(n).reason: Blame.REMOTE for n in (144, 145, 146, 147, 148, 150)},
    "NVLinkErrorRate": Blame.HISTORY,
    **dict.fromkeys(
        (
            reason_for_xid(149).reason,
            "NVLinkDown",
            "NVLinkRecoveryFailed",
            "NVLinkDetectFailed",
        ),
        Blame.OWN_LINK,
    ),
}


@dataclass(frozen=True, slots=True)
class _Report:
    """NVLink errors of one node, from `since` to `until`."""

    node: str
    proves: Blame
    since: float
    until: float

    def belongs_to(self, at: float) -> bool:
        return self.since - SAME_FAULT_S <= at <= self.until + SAME_FAULT_S


@dataclass(frozen=True, slots=True)
class DomainFaults:
    """What NVLink errors mean for the sessions of each domain; empty without such errors."""

    refusals: Mapping[str, Refusal] = field(default_factory=dict)
    """Why a Pending session waits, by its name."""
    explained: frozenset[str] = frozenset()
    """Sessions, ended ones too, whose faults another node or the domain explains: the circuit
    breaker and the rates do not count them."""
    findings: tuple[FleetFinding, ...] = ()


def domain_faults(snapshot: FleetSnapshot, memory: FleetMemory) -> DomainFaults:
    """Return the sessions that NVLink errors of other nodes explain, and the domains at fault."""
    by_domain: defaultdict[str, list[SessionFacts]] = defaultdict(list)
    modes = {"", *snapshot.policy.modes}
    for session in snapshot.counted.values():
        facts = memory.facts(session)
        if (
            session.status.mode in modes
            and facts.may_be_storm
            and _proves(facts.reasons) is not None
            and (domain := _domain_of(facts.node, snapshot))
        ):
            by_domain[domain].append(facts)
    if not by_domain:
        return DomainFaults()
    reports: defaultdict[str, list[_Report]] = defaultdict(list)
    for name, health in snapshot.healths.items():
        if (domain := _domain_of(name, snapshot)) in by_domain:
            reports[domain] += _reports_of(name, health, snapshot.now)
    refusals: dict[str, Refusal] = {}
    explained: set[str] = set()
    findings: list[FleetFinding] = []
    for domain, sessions in sorted(by_domain.items()):
        reports[domain] += map(_report_of, sessions)
        at_fault = []
        for facts in sessions:
            refusal = _refusal(domain, facts, reports[domain], snapshot.now)
            if refusal is None:
                continue
            if refusal.until is None:
                explained.add(facts.session.name)
            if refusal.reason is WhyNot.NVLINK_DOMAIN and refusal.permanent:
                at_fault.append(facts)
            if observation.is_open(facts.session) and facts.tainted_at is None:
                refusals[facts.session.name] = refusal
        if any(facts.session.name in refusals for facts in at_fault):
            why = refusals[next(f.session.name for f in at_fault if f.session.name in refusals)]
            findings.append(_finding(domain, at_fault, why))
    return DomainFaults(refusals, frozenset(explained), tuple(findings))


def _domain_of(node: str, snapshot: FleetSnapshot) -> str:
    view = snapshot.nodes.get(node)
    return view.labels.get(LABEL_NVLINK_DOMAIN, "") if view is not None else ""


def _proves(reasons: Sequence[str]) -> Blame | None:
    """Return what the strongest reason proves; None if the node has other faults, too."""
    found = [_PROVES.get(reason) for reason in reasons]
    known = [proves for proves in found if proves is not None]
    return max(known) if known and len(known) == len(found) else None


def _report_of(facts: SessionFacts) -> _Report:
    proves = _proves(facts.reasons) or Blame.REMOTE
    return _Report(facts.node, proves, facts.wanted_at, facts.wanted_at)


def _reports_of(node: str, health: HealthView, now: float) -> Iterator[_Report]:
    """Return the node's NVLink incidents, those that are only reported and closed ones too."""
    for incident in health.status.incidents:
        proves = _PROVES.get(incident.reason)
        since = timestamps.parse_time(incident.first_seen)
        if proves is None or since is None:
            continue
        last = timestamps.parse_time(incident.closed_at) or now
        yield _Report(node, proves, since, last if proves is Blame.HISTORY else since)


def _refusal(
    domain: str, facts: SessionFacts, reports: Sequence[_Report], now: float
) -> Refusal | None:
    """Return why the session's node is not quarantined; None if its own link is at fault, or if no
    other node of the domain has errors.
    """
    near = [one for one in reports if one.belongs_to(facts.wanted_at)]
    strongest = max(one.proves for one in near)
    accused = {one.node for one in near if one.proves is strongest is not Blame.REMOTE}
    if accused == {facts.node}:
        return None
    if len(accused) == 1:
        why = f"NVLink errors of domain {domain[:63]} come from node {min(accused)}"
        return Refusal(reason=WhyNot.NVLINK_WITNESS, why=why)
    if accused:
        why = f"{count(len(accused), 'node')} of NVLink domain {domain[:63]} report a bad link"
        named = f"{why} ({messages.name_list(accused)})"
        return Refusal(reason=WhyNot.NVLINK_DOMAIN, why=named, permanent=True)
    until = facts.wanted_at + COLLECT_S
    if now < until:
        why = f"the node at fault in NVLink domain {domain[:63]} may still report"
        return Refusal(reason=WhyNot.NVLINK_DOMAIN, why=why, until=until)
    nodes = {one.node for one in near}
    if len(nodes) == 1:
        return None
    why = f"{count(len(nodes), 'node')} of NVLink domain {domain[:63]} have errors of remote links"
    return Refusal(reason=WhyNot.NVLINK_DOMAIN, why=f"{why}, none has a bad link", permanent=True)


def _finding(domain: str, sessions: Sequence[SessionFacts], why: Refusal) -> FleetFinding:
    return FleetFinding(
        reason=WhyNot.NVLINK_DOMAIN,
        shared=f"{LABEL_NVLINK_DOMAIN}={domain}",
        nodes=tuple(sorted({facts.node for facts in sessions})),
        at=max(facts.wanted_at for facts in sessions),
        message=messages.sentence(why.why).removesuffix("."),
        going_on=len({f.node for f in sessions if observation.is_open(f.session)}),
    )
