"""What the agent kept of its node for a session: recorded by its digest, and awaited before it is
lost.

A reboot takes the kernel log with it and a replacement the GPU. So a step that does either waits
for the agent's GPUEvidence for a minute after the drain; then it goes on without and says so.
Called by `rules.session.phases` and `rules.session.repair.beginning`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rules.api.evidence.wire import EvidenceView
from rules.api.metadata import ObjectMeta
from rules.api.nodes import QuarantineView
from rules.api.quarantine import Phase, QuarantineStatus
from rules.api.timestamps import parse_time
from rules.api.writes import DeleteEvidence
from rules.repair.ladder import ENDS_BOOT, Step
from rules.session import status as st
from rules.session.case import Case, touched
from rules.session.history import KEEP_S

WAIT_S: Final = 60.0
"""How long after the drain a step waits for it: an agent that lives takes seconds."""
WITHOUT: Final = "WithoutEvidence"
"""Timeline entry of a step that went on without."""
_KEY: Final = "gpuEvidence"
"""In `status.evidence`: digest and time of the GPUEvidence."""
_NOTED: Final = "Evidence"
"""Timeline entry of what is on record."""
_FIRST_LOOK_S: Final = 5.0
"""An agent that can ask its GPUs keeps it within 2 to 4 s (`agent/publish/evidence.py`)."""
_EARLY_S: Final = 900.0
"""An agent that has not kept any this long after the mark has given up."""


def recorded(status: QuarantineStatus) -> str:
    """The digest on record; "" where there is none."""
    kept = status.evidence.get(_KEY)
    found = kept.get("sha256") if isinstance(kept, dict) else None
    return found if isinstance(found, str) else ""


def wanted_of(session: QuarantineView, now: float) -> bool:
    """Whether the edge should look for the session's evidence now."""
    status = session.status
    if status.mode != "Enforce" or recorded(status) or status.phase not in _MARKED:
        return False
    starts = (parse_time(status.phase_since), _at(status, Phase.MARKED))
    return any(at is not None and now - at <= _EARLY_S for at in starts)


def may_come(session: QuarantineView, now: float) -> bool:
    """Whether its agent may keep evidence still: the mark is to come, or came lately."""
    status = session.status
    if status.mode == "Shadow" or recorded(status):
        return False
    return status.phase in {"", Phase.PENDING} or wanted_of(session, now)


def look_again_s(session: QuarantineView, now: float) -> float | None:
    """In how many seconds the edge should look again for evidence that is wanted: soon after the
    mark, then after ever twice as long, so that it is on record when it is about as old again, and
    a storm costs four looks a node. None where the usual looks at the session will do.
    """
    marked_at = _at(session.status, Phase.MARKED)
    if marked_at is None or not wanted_of(session, now):
        return None
    look_s = _FIRST_LOOK_S
    while marked_at + look_s <= now:
        look_s *= 2
    return marked_at + look_s - now if look_s <= WAIT_S else None


_MARKED: Final = frozenset(
    {Phase.MARKED, Phase.DRAINING, Phase.QUARANTINED, Phase.REPAIRING, Phase.VALIDATING}
)


def with_evidence(case: Case, status: QuarantineStatus) -> QuarantineStatus:
    """`status` with the digest of what the agent kept, once there is something that can be
    believed.
    """
    kept = case.seen.evidence
    if kept is None or case.shadow or recorded(status) or not _is_of(kept, case):
        return status
    sha256 = kept.says("sha256")
    noted = st.noted(status, _NOTED, f"kept as GPUEvidence, SHA-256 {sha256}", case.now)
    record = {"sha256": sha256, "takenAt": kept.says("takenAt")[:40]}
    return touched(noted, evidence={**noted.evidence, _KEY: record})


def _is_of(kept: EvidenceView, case: Case) -> bool:
    """Whether it is this session's on this node, and as it was written: names can be guessed."""
    name = case.session.name
    return (
        kept.metadata.name == name
        and kept.says("session") == name
        and kept.says("nodeName") == case.node.name
        and kept.says("nodeUID") in {"", case.node.uid}
        and kept.whole
    )


def awaited_until(case: Case, step: Step) -> float | None:
    """Until when the step waits for the evidence; None when it need not."""
    status = with_evidence(case, case.status)
    if step not in ENDS_BOOT or recorded(status):
        return None
    marked_at, without_at = _at(status, Phase.MARKED), _at(status, WITHOUT)
    if without_at is not None and without_at >= (marked_at or 0.0):
        # One minute for the session: the next step waits for nothing that did not come.
        return None
    drained_at = _at(status, Phase.QUARANTINED) or case.phase_since
    until = drained_at + WAIT_S
    return until if case.now < until else None


def noted_without(case: Case, status: QuarantineStatus, step: Step) -> QuarantineStatus:
    """`status` that says so where the step goes on without."""
    if step not in ENDS_BOOT or recorded(status):
        return status
    why = f"{step} goes on without evidence: no GPUEvidence {case.session.name} is to be had"
    return st.noted(status, WITHOUT, why, case.now)


def _at(status: QuarantineStatus, step: str) -> float | None:
    """When that last happened, as far as the session's timeline remembers."""
    return next((parse_time(e.at) for e in reversed(status.timeline) if e.step == step), None)


def outlived_evidence(
    kept: Iterable[ObjectMeta], sessions: Iterable[str], now: float
) -> tuple[DeleteEvidence, ...]:
    """Evidence that history no longer keeps: of a session that is gone, and older than `keep`."""
    there = set(sessions)
    return tuple(
        DeleteEvidence(name=meta.name, uid=meta.uid)
        for meta in kept
        if meta.name not in there and now - meta.created_at > KEEP_S
    )
