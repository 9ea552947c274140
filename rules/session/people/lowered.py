"""A level that a person took down: it stays down for the faults that they saw then."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rules.api.health import IncidentStatus
from rules.api.nodes import HealthView, QuarantineView
from rules.catalog.reason import level_rank
from rules.session.causes import active_ids
from rules.session.people.seen import SeenFault, as_it_came, beyond, read_seen, seen_now

EVIDENCE_LEVEL: Final = "level"
"""In `status.evidence`: the deepest level that the session has had."""
EVIDENCE_KNOWN: Final = "knownWhenLowered"
"""In `status.evidence`: the faults that were active when a person took the level down."""


def lowered_by_person(session: QuarantineView) -> bool:
    """Whether the level is below what the session had: only people take it down."""
    had = session.status.evidence.get(EVIDENCE_LEVEL)
    return isinstance(had, str) and level_rank(session.spec.level) < level_rank(had)


def level_evidence(
    session: QuarantineView, health: HealthView | None, external: Iterable[IncidentStatus] = ()
) -> dict[str, object]:
    """The evidence of a session with what is remembered of its level."""
    evidence = dict(session.status.evidence)
    if not lowered_by_person(session):
        if evidence.get(EVIDENCE_KNOWN) is not None:
            # A merge patch would keep what is only left out.
            evidence[EVIDENCE_KNOWN] = None
        return {**evidence, EVIDENCE_LEVEL: session.spec.level}
    if not isinstance(evidence.get(EVIDENCE_KNOWN), list):
        others = active_ids(None, external)
        evidence[EVIDENCE_KNOWN] = [*seen_now(health, active_ids(health)), *sorted(others)]
    return evidence


def known_when_lowered(session: QuarantineView, incident: IncidentStatus) -> bool:
    """Whether a person who took the level down knew of the incident as it is now: it was a
    cause, or active without room among the causes. What was not recorded yet, they knew.
    """
    if not lowered_by_person(session):
        return False
    kept = session.status.evidence.get(EVIDENCE_KNOWN)
    if not isinstance(kept, list):
        return True
    recorded = {each.id: each for each in read_seen(kept)}
    # An agent that just started said less of what it had said before.
    as_they_came = (
        as_it_came(recorded.get(cause.incident, SeenFault(id=cause.incident)), cause)
        for cause in session.spec.causes
        if cause.incident
    )
    return not beyond((*recorded.values(), *as_they_came), incident)
