"""Cache results of the fleet rules, so that a judgement costs only what changed.

The remediator passes the same `FleetMemory` to every `rules.fleet.turns.judge_fleet`. All content
comes from the snapshot, so the result is the same without it.
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
"""How many removed names may stay in the cache before it is cleaned."""


class Remembered(Generic[T]):
    """A cache by name; a value is valid while its source objects are identical."""

    def __init__(self, compute: Callable[..., T]) -> None:
        self._compute = compute
        self._kept: dict[str, tuple[tuple[object, ...], T]] = {}

    def of(self, name: str, *sources: object) -> T:
        """Return the cached value of `name`, or compute it from `sources`."""
        known = self._kept.get(name)
        if known is not None and all(map(is_, known[0], sources)):
            return known[1]
        value = self._compute(*sources)
        self._kept[name] = sources, value
        return value

    def keep(self, names: Collection[str]) -> None:
        """Drop other names once there are many."""
        if len(self._kept) > 2 * len(names) + _SPARE:
            self._kept = {name: kept for name, kept in self._kept.items() if name in names}


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFacts:
    """The properties of one session that the fleet rules need."""

    session: QuarantineView
    node: str
    created_at: float
    wanted_at: float
    tainted_at: float | None
    """When it tainted its node, by its timeline; None if it did not."""
    reasons: tuple[str, ...]
    """Reasons of detectors, sorted."""
    external: tuple[str, ...]
    """Reasons of external causes, sorted."""
    may_be_storm: bool
    """It has only causes of detectors, and did not join another session."""
    confirmed: bool
    """A detector's session that an operator confirmed: it does not open the breaker."""


ReasonKey = tuple[str, str, str, str]
"""A reason, and the driver, agent and rules versions of its health status."""


class FleetMemory:
    """The caches of one process."""

    def __init__(self) -> None:
        self.census = NodeCensus()
        self._facts = Remembered(_facts_of)
        self._keys = Remembered(_keys_of)
        self._shared = Remembered(_shared_by)

    def facts(self, session: QuarantineView) -> SessionFacts:
        """Return the facts of one session."""
        return self._facts.of(session.metadata.name, session)

    def keys(self, session: QuarantineView, health: HealthView | None) -> tuple[ReasonKey, ...]:
        """Return the keys for each reason of the session."""
        return self._keys.of(session.metadata.name, self.facts(session), health)

    def shared(
        self,
        session: QuarantineView,
        node: NodeView | None,
        health: HealthView | None,
        labels: tuple[str, ...],
    ) -> tuple[str, ...]:
        """Return what the session's node may share with others: labels, then versions; "" for
        none.
        """
        return self._shared.of(session.metadata.name, session, node, health, labels)

    def keep(self, sessions: Collection[str]) -> None:
        """Drop other sessions from time to time."""
        for kept in (self._facts, self._keys, self._shared):
            kept.keep(sessions)


def tainted_at(session: QuarantineView) -> float | None:
    """Return when the session tainted its node, by its timeline; None if it did not."""
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
        # The driver at the fault: the node may have another one now.
        labels[LABEL_DRIVER] = driver
    found = [
        "=".join(one) if one is not None else ""
        for one in common_cause.shared_labels(labels, keys)
    ]
    found.append(f"agent={agent} rules={rules}" if agent else "")
    return tuple(found)


def _versions_of(session: QuarantineView, health: HealthView | None) -> tuple[str, str, str]:
    """Return the driver, agent and rules versions of a session's health status."""
    evidence = session.status.evidence
    keys = ("driverVersion", "agentVersion", "rulesVersion")
    if any(evidence.get(key) for key in keys):
        driver, agent, rules = (str(evidence.get(key, "")) for key in keys)
        return driver, agent, rules
    if health is None:
        return "", "", ""
    status = health.status
    return status.driver_version, status.agent_version, status.rules_version
