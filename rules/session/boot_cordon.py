"""A cordon that is lost right after a reboot: put back once per boot, and said aloud.

The GPU driver's own manager, which starts with the driver container at each boot, uncordons its
node where automatic driver upgrade is off. Called by `rules.session.decide` before it takes a lost
cordon for a person's word. That it was put back is recorded in the mark, by the patch that does
it: no crash and no change of leader makes it twice.
"""

from __future__ import annotations

from typing import Final

from rules.api.mark import MarkState, read_note
from rules.api.quarantine import Mode, TimelineEntry
from rules.api.timestamps import parse_time
from rules.api.writes import Decision, EmitEvent
from rules.session import status as st
from rules.session.case import Case
from rules.session.halts import halt_of
from rules.session.phases import in_phase, mark_write

BOOT_WORK_S: Final = 600.0
"""How long after a new boot a lost cordon counts as its doing. The driver container starts with
the kubelet; pulling its image and waiting for its init containers takes minutes, not an hour.
"""
NEW_BOOT: Final = "NewBoot"
"""Timeline step: the moment a new boot was seen."""
_LOST: Final = "CordonLost"


def boot_unbooked(case: Case) -> bool:
    """Whether the node runs another boot than the session knows of."""
    boot, known = case.node.boot_id, case.status.boot_id
    return bool(boot) and bool(known) and boot != known


def awaits_booking(case: Case) -> bool:
    """A lost cordon on a boot that was not booked yet, and is not known to be older than that."""
    if case.mark is not MarkState.UNCORDONED or not boot_unbooked(case):
        return False
    seen_at = case.seen.last_active_at
    if seen_at is None or case.now - seen_at <= BOOT_WORK_S:
        return True
    # Nobody looked for longer than that: the kubelet says since when it is back, if it was away.
    ready = case.node.condition("Ready")
    back_at = parse_time(ready.last_transition_time or "") if ready is not None else None
    return back_at is None or back_at <= seen_at or case.now - back_at <= BOOT_WORK_S


def put_back(case: Case) -> Decision | None:
    """Cordon the node again, once in this boot; None where the loss is not the boot's doing."""
    if case.mark is not MarkState.UNCORDONED or not _of_the_boot(case):
        return None
    status = case.status
    noted = _lost_since_boot(case)
    if not noted:
        status = st.noted(status, _LOST, _SENTENCE, case.now)
    if case.policy.mode == Mode.SHADOW or halt_of(case) is not None:
        # Nothing is put on the node now; that it was lost to the boot is remembered.
        return in_phase(case) if noted else case.decision(_LOST, status, because=_SENTENCE)
    return case.decision(
        "CordonAgain",
        status,
        because=_SENTENCE,
        before=(mark_write(case, case.status.phase, boot=case.node.boot_id),),
        after=(_told(case),),
    )


_SENTENCE: Final = (
    "The node's cordon was taken off right after a reboot, as a GPU driver manager does, so it is put "
    "back once; uncordon it again to end the quarantine."
)


def _told(case: Case) -> EmitEvent:
    return EmitEvent(
        node=case.node.name,
        node_uid=case.node.uid,
        kind="Warning",
        reason="QuarantineCordonRestored",
        message=_SENTENCE,
        at=case.now,
        key=f"{case.session.metadata.uid}/CordonRestored/{case.node.boot_id}",
    )


def _of_the_boot(case: Case) -> bool:
    note = read_note(case.node)
    boot = case.node.boot_id
    if note is None or not boot or boot_unbooked(case) or note.restored_boot == boot:
        return False
    booked = _last(case, NEW_BOOT)
    booked_at = parse_time(booked.at) if booked is not None else None
    if booked_at is None:
        return False
    return case.now - booked_at <= BOOT_WORK_S or _lost_since_boot(case)


def _lost_since_boot(case: Case) -> bool:
    steps = [e.step for e in case.status.timeline if e.step in {NEW_BOOT, _LOST}]
    return bool(steps) and steps[-1] == _LOST


def _last(case: Case, step: str) -> TimelineEntry | None:
    return next((e for e in reversed(case.status.timeline) if e.step == step), None)
