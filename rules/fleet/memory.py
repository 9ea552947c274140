"""What the fleet rules worked out before and that still holds: a judgement costs what changed.

A process that judges again and again hands the same `FleetMemory` to
`rules.fleet.turns.judge_fleet`; whoever judges once makes a new one. It holds nothing that the
snapshot does not say: with a memory or without, the assessment is the same.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from operator import is_
from typing import Final, Generic, TypeVar

from rules.api import timestamps
from rules.api.names import LABEL_DRIVER
from rules.api.nodes import HealthView, NodeView, QuarantineView
from rules.fleet import common_cause
from rules.fleet.budget import NodeCensus
from rules.session import history
from rules.session.causes import has_human
from rules.session.external import SOURCE as EXTERNAL
from rules.session.history import wanted_at

T = TypeVar("T")

_SPARE: Final = 64
"""So many names that are gone may stay remembered before they are looked for."""


class Remembered(Generic[T]):
    """Values by name, each good while the very objects that it was worked out from are the
    same.
    """

    def __init__(self, work_out: Callable[..., T]) -> None:
        self._work_out = work_out
        self._kept: dict[str, tuple[tuple[object, ...], T]] = {}

    def of(self, name: str, *sources: object) -> T:
        """The value of `name`, worked out from `sources` unless it was."""
        known = self._kept.get(name)
        if known is not None and all(map(is_, known[0], sources)):
            return known[1]
        value = self._work_out(*sources)
        self._kept[name] = sources, value
        return value

    def keep(self, names: Collection[str]) -> None:
        """Forget the others, once there are many."""
        if len(self._kept) > 2 * len(names) + _SPARE:
            self._kept = {name: kept for name, kept in self._kept.items() if name in names}


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFacts:
    """What the fleet rules ask of one session, whatever else there is."""

    session: QuarantineView
    node: str
    created_at: float
    wanted_at: float
    tainted_at: float | None
    """When it took its node, by its timeline; None when it never did."""
    reasons: tuple[str, ...]
    """Those of detectors, sorted."""
    external: tuple[str, ...]
    """Those of what others say, sorted."""
    may_be_storm: bool
    """It is a detector's, by itself: what an operator confirmed or another session took over is
    not.
    """
    confirmed: bool
    """A detector's and an operator's: no storm any more, and still of the cause that it shares."""


ReasonKey = tuple[str, str, str, str]
"""A reason, and driver, agent and rules version behind the assessment that gives it."""


class FleetMemory:
    """Of one process, or of one judgement."""

    def __init__(self) -> None:
        self.census = NodeCensus()
        self._facts = Remembered(_facts_of)
        self._keys = Remembered(_keys_of)
        self._shared = Remembered(_shared_by)

    def facts(self, session: QuarantineView) -> SessionFacts:
        """Of one session as it is now."""
        return self._facts.of(session.metadata.name, session)

    def keys(self, session: QuarantineView, health: HealthView | None) -> tuple[ReasonKey, ...]:
        """For each reason of the session."""
        return self._keys.of(session.metadata.name, self.facts(session), health)

    def shared(
        self,
        session: QuarantineView,
        node: NodeView | None,
        health: HealthView | None,
        labels: tuple[str, ...],
    ) -> tuple[str, ...]:
        """What the session's node may have in common with others: the labels, then the versions;
        "" where it has none.
        """
        return self._shared.of(session.metadata.name, session, node, health, labels)

    def keep(self, sessions: Collection[str]) -> None:
        """Forget the sessions that are not among these, now and then."""
        for kept in (self._facts, self._keys, self._shared):
            kept.keep(sessions)


def tainted_at(session: QuarantineView) -> float | None:
    """When the session took its node, by its timeline; None when it never did."""
    for entry in session.status.timeline:
        if entry.step == "Marked":
            return timestamps.parse_time(entry.at)
    return None


def _facts_of(session: QuarantineView) -> SessionFacts:
    causes = session.spec.causes
    human = has_human(session)
    reasons = tuple(sorted({c.reason for c in causes if c.source != "Human"}))
    return SessionFacts(
        session=session,
        node=session.spec.node_name,
        created_at=session.metadata.created_at,
        wanted_at=wanted_at(session),
        tainted_at=tainted_at(session),
        reasons=reasons,
        external=tuple(sorted({c.reason for c in causes if c.source == EXTERNAL})),
        may_be_storm=bool(causes) and not human and not history.joined(session),
        confirmed=bool(reasons) and human and not history.joined(session),
    )


def _keys_of(facts: SessionFacts, health: HealthView | None) -> tuple[ReasonKey, ...]:
    versions = _versions_of(facts.session, health)
    return tuple((reason, *versions) for reason in facts.reasons)


def _shared_by(
    session: QuarantineView,
    node: NodeView | None,
    health: HealthView | None,
    keys: tuple[str, ...],
) -> tuple[str, ...]:
    driver, agent, rules = _versions_of(session, health)
    labels = dict(node.labels) if node is not None else {}
    if driver:
        # The one that failed: the node may have been given another since.
        labels[LABEL_DRIVER] = driver
    found = [
        "=".join(one) if one is not None else ""
        for one in common_cause.shared_labels(labels, keys)
    ]
    found.append(f"agent={agent} rules={rules}" if agent else "")
    return tuple(found)


def _versions_of(session: QuarantineView, health: HealthView | None) -> tuple[str, str, str]:
    """Driver, agent and rules version behind a session's assessment."""
    evidence = session.status.evidence
    keys = ("driverVersion", "agentVersion", "rulesVersion")
    if any(evidence.get(key) for key in keys):
        driver, agent, rules = (str(evidence.get(key, "")) for key in keys)
        return driver, agent, rules
    if health is None:
        return "", "", ""
    status = health.status
    return status.driver_version, status.agent_version, status.rules_version
