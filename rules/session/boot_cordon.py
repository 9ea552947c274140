"""A cordon that is lost right after a reboot: put back once per boot, and said aloud.

The GPU driver's own manager, which starts with the driver container at each boot, uncordons its
node where automatic driver upgrade is off. Called by `rules.session.decide` before it takes a lost
cordon for a person's word. That it was put back is recorded in the mark, by the patch that does
it: no crash and no change of leader makes it twice.
"""

from __future__ import annotations

from typing import Final

from rules.api.mark import MarkState, read_note
from rules.api.quarantine import Mode, Phase, QuarantineStatus, TimelineEntry
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
JOINING_S: Final = 300.0
"""A node that became Ready this soon after its object was made runs its first boot. A kubelet
registers first and is Ready with its network, which takes seconds to a few minutes.
"""
NEW_BOOT: Final = st.NEW_BOOT
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
    back_at = _kubelet_back_at(case)
    return back_at is None or back_at <= seen_at or case.now - back_at <= BOOT_WORK_S


def put_back(case: Case) -> Decision | None:
    """Cordon the node again, once in this boot; None where the loss is not the boot's doing."""
    if case.mark is not MarkState.UNCORDONED or not _of_the_boot(case):
        return None
    status = case.status
    noted = _lost_since_boot(case.status)
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
    "The node's cordon was taken off right after a reboot, as a GPU driver manager does, so it is "
    "put back once; uncordon it again to end the quarantine."
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
    siblings = (other.status for other in case.seen.siblings)
    if any(other.boot_id == boot and _lost_since_boot(other) for other in siblings):
        # An earlier session in this boot had the one.
        return False
    if _lost_since_boot(case.status):
        return True
    began = _boot_began(case)
    return began is not None and case.now - began <= BOOT_WORK_S


def _boot_began(case: Case) -> float | None:
    """When the running boot began, or a later moment when it certainly ran; None: nobody knows.

    A session that was opened in this boot has not seen it begin. Then it began when the kubelet
    came back, and not after the session was there: so a kubelet that was away for a moment makes
    no young boot of an old one.
    """
    booked = _latest(case.status, {NEW_BOOT})
    if booked is not None:
        return parse_time(booked.at)
    back_at = _kubelet_back_at(case)
    if back_at is None or case.session.spec.boot_id != case.node.boot_id:
        return back_at
    if back_at - case.node.metadata.created_at < JOINING_S:
        # It has just joined: this is no reboot, and who uncordons a new node is heard.
        return None
    return min(back_at, case.session.metadata.created_at)


def _kubelet_back_at(case: Case) -> float | None:
    ready = case.node.condition("Ready")
    if ready is None or ready.status == "Unknown":
        return None
    return parse_time(ready.last_transition_time or "")


def _lost_since_boot(status: QuarantineStatus) -> bool:
    latest = _latest(status, {NEW_BOOT, _LOST})
    return latest is not None and latest.step == _LOST


def _latest(status: QuarantineStatus, steps: set[str]) -> TimelineEntry | None:
    """The last of these steps since the session was opened, or taken up again."""
    for entry in reversed(status.timeline):
        if entry.step in steps:
            return entry
        if entry.step == Phase.PENDING:
            return None
    return None
