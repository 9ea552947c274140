"""Xid 13 and 31: a program's fault, until the same GPU repeats it at the same place.

`judge.facts.kernel` calls for each line; lines are counted in bursts. A burst is judged with those
before it a moment after it began, once the other GPUs have printed their lines, too. What another
GPU of the node shows as well never speaks against the hardware.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from rules.catalog.reason import BY_HUMAN, SILENCE_3M, Action, Level, Severity
from rules.catalog.xid import PLACED_XID, REPEATING_XIDS, reason_for_xid
from rules.judge.incident import Finding, Named, with_conclusion
from rules.judge.observation import SourceName
from rules.judge.recording import record
from rules.judge.state import MAX_BURSTS, Burst, Judging, replace_incident
from rules.kernel_log.record import KernelLine

_MAX_PLACES: Final = 2
"""More than one place says nothing about any of them."""
_HOUR_S: Final = 3600


def count_repeat(on: Judging, line: KernelLine, who: Named, at: float) -> Judging:
    """Add a line to its burst; three minutes of silence begin a new one.

    The line with the place and the one with the process are not always the same line.
    """
    xid = line.xid
    if xid not in REPEATING_XIDS or not any(who):
        return on
    oldest = at - on.thresholds["RepeatWindow"].value
    kept = [burst for burst in on.state.bursts if burst.last_at >= oldest]
    place = () if line.gpc is None or line.tpc is None else ((line.gpc, line.tpc),)
    for position, burst in enumerate(kept):
        near = abs(at - burst.last_at) < SILENCE_3M.silence_s
        if burst.xid == xid and burst.is_on(*who) and near:
            places = tuple(dict.fromkeys((*burst.places, *place)))[:_MAX_PLACES]
            last_at = max(burst.last_at, at)
            kept[position] = replace(burst, places=places, last_at=last_at)
            return on.then(replace(on.state, bursts=tuple(kept)))
    due_at = on.now + on.thresholds["ContextDelay"].value
    begun = Burst(
        xid=xid, gpu=who.uuid, pci=who.pci, first_at=at, last_at=at, places=place, due_at=due_at
    )
    return on.then(replace(on.state, bursts=(*kept, begun)[-MAX_BURSTS:]))


def judge_repeats(on: Judging) -> Judging:
    """Judge the bursts that are due; the ledger counts them, since it outlives the agent."""
    delay_s = on.thresholds["ContextDelay"].value
    # A clock that went back waits no longer.
    due = [
        burst
        for burst in on.state.bursts
        if burst.due_at is not None and not 0 < burst.due_at - on.now <= delay_s
    ]
    if not due:
        return on
    bursts = tuple(replace(b, due_at=None) if b in due else b for b in on.state.bursts)
    on = on.then(replace(on.state, bursts=bursts))
    for burst in due:
        if what := _place_of(burst):
            who, family = Named(burst.gpu, burst.pci), f"Xid {burst.xid}"
            on = on.note(who, what, burst.first_at, "RepeatWindow", family=family)
    for burst in due:
        if evidence := _against_its_place(on, burst):
            on = _raise(on, burst, evidence)
    return on


def _place_of(burst: Burst) -> str:
    """What its repetition would speak against; empty for a burst all over the chip, or of
    nowhere.
    """
    if burst.xid != PLACED_XID:
        return f"Xid {burst.xid}"
    if len(burst.places) != 1:
        return ""
    gpc, tpc = burst.places[0]
    return f"Xid {burst.xid} at GPC {gpc}, TPC {tpc}"


def _against_its_place(on: Judging, burst: Burst) -> str:
    """What speaks against the GPU: enough bursts at one place, which no other GPU shows."""
    what, window_s = _place_of(burst), on.thresholds["RepeatWindow"].value
    since = max(on.now - window_s, on.state.node.repaired_at)
    seen = on.times((burst.gpu, burst.pci), what, "RepeatWindow")
    elsewhere = any(
        owner not in (burst.gpu, burst.pci)
        and name.startswith(f"Xid {burst.xid}")
        and on.times((owner,), name, "RepeatWindow")
        for owner, name in on.state.ledger
    ) or any(
        other.xid == burst.xid and other.first_at > since and not other.is_on(burst.gpu, burst.pci)
        for other in on.state.bursts
    )
    if not what or seen < on.thresholds["RepeatBursts"].value or elsewhere:
        return ""
    return (
        f"{what}: {seen} bursts within {round(window_s / _HOUR_S)} h, on no other GPU of this node"
    )


def _raise(on: Judging, burst: Burst, evidence: str) -> Judging:
    """Degraded, Report: whatever repeats, these two never do more by themselves."""
    row = replace(
        reason_for_xid(burst.xid, driver=on.state.branch),
        severity=Severity.DEGRADED,
        level=Level.REPORT,
        action=Action.RUN_DIAGNOSTICS,
        closes_on=BY_HUMAN,
    )
    finding = Finding(
        at=burst.last_at,
        row=row,
        gpu=burst.gpu,
        pci=burst.pci,
        xid=burst.xid,
        source=SourceName.KERNEL_LOG,
        counts=False,
    )
    before = {incident.id: incident for incident in on.state.incidents}
    on = record(on, finding)
    for incident in on.state.incidents:
        was = before.get(incident.id)
        if was is not incident and (was is None or was.row.severity is Severity.INFO):
            on = on.then(replace_incident(on.state, with_conclusion(incident, evidence)))
    return on
