"""From when healthy time counts, and why not from when the causes closed: in `status.evidence`, so
that every later look says the same. Pure.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from rules.api.quarantine import QuarantineStatus
from rules.api.sentences import settled_clause
from rules.api.timestamps import format_time, utc
from rules.catalog.why_not import Refusal, WhyNot
from rules.session import status as st
from rules.session.case import Case, touched

EVIDENCE_ANEW: Final = "healthyTimeAnew"
"""Why healthy time began anew, of the beginning that counts now: how it was until then."""
EVIDENCE_UNJUDGED: Final = "unjudgedBoot"
"""The node rebooted and no verdict of that boot was seen yet: which causes closed nobody knows."""
EVIDENCE_UNSEEN: Final = "unseen"
"""Why the node could not be seen at the last look: healthy time begins anew with sight. An older
release wrote `true`."""
AWAY: Final = "no remediator led"
_REBOOTED: Final = "the node ran another boot"
_NOT_SEEN: Final = "the node could not be seen"


def rebooted(status: QuarantineStatus) -> QuarantineStatus:
    """`status` of a node that booted a moment ago."""
    return _kept(status, {EVIDENCE_ANEW: _REBOOTED, EVIDENCE_UNJUDGED: True})


def first_counted(status: QuarantineStatus) -> QuarantineStatus:
    """`status` whose causes closed a moment ago, by a verdict or the policy."""
    return _kept(status, dict.fromkeys((EVIDENCE_ANEW, EVIDENCE_UNJUDGED, EVIDENCE_UNSEEN)))


def anew(status: QuarantineStatus, stored: QuarantineStatus, now: float) -> QuarantineStatus:
    """`status` whose healthy time begins now, with sight: why not earlier is in the evidence of
    `stored`, or else nobody looked.
    """
    kept = stored.evidence.get(EVIDENCE_UNSEEN)
    why = kept if isinstance(kept, str) else _NOT_SEEN if was_unseen(stored) else AWAY
    return touched(_kept(status, {EVIDENCE_ANEW: why[:200]}), phase_since=format_time(now))


def judged(status: QuarantineStatus) -> QuarantineStatus:
    """`status` of a node whose verdict of this boot was seen."""
    return _kept(status, {EVIDENCE_UNJUDGED: None})


def why_anew(status: QuarantineStatus) -> str:
    """How it was until its healthy time began; "" where it began with the last cause's end."""
    said = status.evidence.get(EVIDENCE_ANEW)
    return said[:200] if isinstance(said, str) else ""


def unseen(halt: Refusal | None, blind: str) -> Refusal:
    """Why a node that cannot be seen is not released. An owner at work comes first: its agent lets
    go of the driver for it, so waiting helps, and what is to be seen to is the owner's work.
    """
    if halt is not None and halt.reason is WhyNot.STAND_DOWN:
        return replace(halt, why=f"{halt.why}; meanwhile {blind}")
    return Refusal(reason=WhyNot.VERDICT_STALE, why=blind)


def in_sight(status: QuarantineStatus, unseen: Refusal | None) -> QuarantineStatus:
    """`status` that remembers why the node could not be seen; None: it can."""
    return _kept(status, {EVIDENCE_UNSEEN: None if unseen is None else unseen.why[:200]})


def was_unseen(stored: QuarantineStatus) -> bool:
    """Whether nobody could see the node at the last look."""
    return bool(stored.evidence.get(EVIDENCE_UNSEEN)) or (
        st.blocked_by(stored) == WhyNot.VERDICT_STALE
    )


def is_unjudged(case: Case, status: QuarantineStatus) -> bool:
    """Whether nobody knows which of its causes closed: it booted, and no verdict came since."""
    return bool(case.blind and case.causes and status.evidence.get(EVIDENCE_UNJUDGED))


def known_clause(case: Case, status: QuarantineStatus) -> str:
    """What is known of its causes."""
    if is_unjudged(case, status):
        closed = "whether its causes closed is not known before a verdict of that boot"
        return f"the node rebooted at {utc(case.phase_since)}, and {closed}"
    return settled_clause(case.reported)


def _kept(status: QuarantineStatus, said: dict[str, object]) -> QuarantineStatus:
    # None and not left out: the status is written as a merge patch.
    changed = {key: value for key, value in said.items() if status.evidence.get(key) != value}
    return touched(status, evidence={**status.evidence, **changed}) if changed else status
