"""Which faults a person's word covers: those of the sessions they ended, as they saw them.

Called wherever a session could be opened, or an incident become a cause of one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Final

import msgspec

from rules.api.health import IncidentStatus
from rules.api.nodes import HealthView, QuarantineView
from rules.api.timestamps import format_time, parse_time
from rules.policy.policy import Policy
from rules.session.causes import EVIDENCE_SAID, ended_by_person
from rules.session.observation import is_open
from rules.session.people.seen import (
    MAX_FAULTS,
    SeenFault,
    alike_in,
    as_it_came,
    beyond,
    read_seen,
)

EVIDENCE_SEEN: Final = "seenWhenEnded"
"""In `status.evidence`: the faults of the causes, as they were when a person ended the session."""


def covered_until(
    incidents: Iterable[IncidentStatus],
    sessions: Iterable[QuarantineView],
    policy: Policy,
    now: float,
) -> Mapping[str, float]:
    """Those of the incidents that a person's word covers, by id, and until when: `cancelExpiry`
    after the end of the session that it was said of.
    """
    words = _words(sessions, policy, now)
    until: dict[str, float] = {}
    for incident in incidents if words else ():
        about = [(expires, alike_in(said, incident)) for expires, said in words]
        for moment in (now, *sorted({expires for expires, said in about if said})):
            if beyond((s for expires, said in about if expires > moment for s in said), incident):
                if moment > now:
                    until[incident.id] = moment
                break
    return until


def since_word(incident: IncidentStatus, sessions: Iterable[QuarantineView]) -> str:
    """What came to the incident since a person ended a session for it, a clause; "" where nothing
    did, or nobody ended one.
    """
    ended = [s for s in sessions if not is_open(s) and ended_by_person(s)]
    about = [s for s in ended if any(seen.id == incident.id for seen in seen_of(s))]
    what = beyond([seen for s in ended for seen in seen_of(s)], incident) if about else ""
    return f"after a person ended {max(about, key=_ended_at).name}, {what}" if what else ""


def said_evidence(
    session: QuarantineView,
    health: HealthView | None,
    siblings: Iterable[QuarantineView],
    policy: Policy,
    now: float,
) -> dict[str, object]:
    """What a person had said of the session's faults before it was opened, for its evidence.

    It is open for what came since: once that is gone, what the person left on the node holds it
    no longer, for as long as their word counts. Empty where nobody said anything, or that is on
    record; or where a word that was over when the session was opened is made to last longer.
    """
    if session.status.evidence.get(EVIDENCE_SAID):
        return {}
    earlier = (s for s in siblings if s.metadata.created_at < session.metadata.created_at)
    said = [
        msgspec.structs.replace(seen, until=format_time(expires))
        for expires, seen_then in _words(earlier, policy, now)
        for seen in seen_then
    ]
    ids = {cause.incident for cause in session.spec.causes} & {seen.id for seen in said}
    if not ids or (session.status.phase and not _came_since(session, ids, health, said)):
        return {}
    # The others matter where they became parts of these.
    first = sorted(dict.fromkeys(said), key=lambda seen: seen.id not in ids)
    return {EVIDENCE_SAID: [msgspec.to_builtins(seen) for seen in first[:MAX_FAULTS]]}


def _came_since(
    session: QuarantineView,
    ids: Set[str],
    health: HealthView | None,
    said: Sequence[SeenFault],
) -> bool:
    """Whether the session is against the word: for more than what it was said of."""
    causes = (
        IncidentStatus(id=cause.incident, reason=cause.reason, severity=cause.severity)
        for cause in session.spec.causes
    )
    now = (i for i in (health.status.incidents if health is not None else ()) if i.active)
    return any(beyond(said, each) for each in (*causes, *now) if each.id in ids)


def seen_of(session: QuarantineView) -> tuple[SeenFault, ...]:
    """The faults that a person spoke of when they ended the session. The severity that a cause
    had when it came was seen as well, whatever an agent that just started said at the end.
    """
    at_end = {s.id: s for s in read_seen(session.status.evidence.get(EVIDENCE_SEEN))}
    found = []
    for cause in session.spec.causes:
        if not cause.incident:
            continue
        seen = at_end.get(cause.incident, SeenFault(id=cause.incident))
        if seen.reason:
            found.append(as_it_came(seen, cause))
        found.append(seen)
    return tuple(found)


def _words(
    sessions: Iterable[QuarantineView], policy: Policy, now: float
) -> list[tuple[float, tuple[SeenFault, ...]]]:
    """What persons said, and until when that counts."""
    words = []
    for session in sessions:
        expires = requests_until(session, policy)
        if now < expires:
            words.append((expires, seen_of(session)))
    return words


def requests_until(session: QuarantineView, policy: Policy) -> float:
    """Until when what a person said by ending the session counts, in seconds since the epoch; 0
    where no person ended it.
    """
    if is_open(session) or not ended_by_person(session) or not _ended_at(session):
        return 0.0
    return _ended_at(session) + policy.release.cancel_expiry_s


def _ended_at(session: QuarantineView) -> float:
    return parse_time(session.status.phase_since) or 0.0
