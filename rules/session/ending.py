"""How a session ends: a test under load off first, then the record, the mark off last, so that a
crash between resumes here.

An ended session whose mark is still on its node is found again by the orphan rule of
`rules.session.absent`: the taint goes last, and nothing has to be remembered.
"""

from __future__ import annotations

from rules.api.mark import MarkState, annotations_left, cordon_stays, read_note
from rules.api.quarantine import Phase, QuarantineStatus
from rules.api.sentences import ended
from rules.api.writes import Decision, Write
from rules.session import status as st
from rules.session.case import Case, is_fresh, touched, unmark
from rules.session.override import EVIDENCE_SEEN, seen_when_ended
from rules.session.repair.endings import closed_repair, last_requests, with_left
from rules.session.validation.load_test import closed_test, off_first


def end(
    case: Case,
    phase: Phase,
    why: str,
    by: str = st.BY_GPUWARD,
    evidence: dict[str, object] | None = None,
) -> Decision:
    """End the session; where our mark is on its node, on a fresh read only."""
    node = case.seen.node
    carries, note = False, None
    if node is not None and phase is not Phase.NODE_GONE:
        note = read_note(node)
        # A mark without a readable note is ours: nobody else had the node when it went on.
        unread = case.phase is not Phase.PENDING and case.mark is MarkState.UNRECORDED
        carries = unread or (note is not None and note.session == case.session.name)
    if carries and not is_fresh(case.node):
        return Decision(step="ReadNode", because="a mark is to come off", needs_fresh_node=True)
    requests = last_requests(case, phase)
    if isinstance(requests, Decision):
        return requests
    left = cordon_stays(case.node) if carries else ""
    # Once the mark was whole, a missing note is a person's doing, and what it recorded is lost.
    lost = node is not None and case.phase is not Phase.PENDING and not case.shadow
    annotations = annotations_left(case.node) if lost and phase is not Phase.NODE_GONE else ()
    sentence = ended(str(phase), why, left, annotations)
    begun = touched(case.status, evidence=evidence) if evidence else _with_override(case, by)
    if carries and note is not None:
        # Whoever ended it came between the mark and its record.
        begun = st.with_mark_found(begun, note.at, case.session.metadata.created_at, case.now)
    status = st.enter(begun, phase, sentence, case.now, by)
    for kind in ("Blocked", "Paused", "NeedsHuman", "NodeUnreachable", "Storm", st.PROPOSED):
        status = st.with_condition(status, kind, case.now)
    status = with_left(status, requests, case.now)
    status = closed_test(case, closed_repair(case, status, phase), "the session ended first")
    test_off, after = off_first(case)
    before: tuple[Write, ...] = (*test_off, *requests.writes)
    unmarks = (unmark(case.node, case.session.name),) if carries else ()
    return case.decision(str(phase), status, because=why, before=before, after=(*unmarks, *after))


def _with_override(case: Case, by: str) -> QuarantineStatus:
    """The status with the record of what a person who ends the session saw."""
    if by != st.BY_PERSON and case.session.spec.release is None:
        return case.status
    seen = seen_when_ended(case.session, case.seen.health)
    return touched(case.status, evidence={**case.status.evidence, EVIDENCE_SEEN: seen})
