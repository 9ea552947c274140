"""Xid 13 and 31: a program's fault, until the same GPU repeats it for different programs.

Lines are counted in bursts (`judge.facts.kernel` calls for each), the workload of a burst is told
later or never (`take_workload`), and a burst is judged with those before it a moment after it
began or its workload became known (`judge.facts.repeats`). What is not known never speaks against
the hardware: a crash-looping pod is not bad hardware.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from rules.catalog.reason import BY_HUMAN, SILENCE_3M, Action, Level, Severity
from rules.catalog.thresholds import Thresholds
from rules.catalog.xid import PLACED_XID, REPEATING_XIDS, reason_for_xid
from rules.judge.incident import Finding, Named, with_conclusion
from rules.judge.ledger import Ledger, noted, total, whose
from rules.judge.observation import SourceName, SourceState, WorkloadSeen
from rules.judge.recording import record
from rules.judge.state import MAX_BURSTS, Burst, Judging, identify, replace_incident
from rules.judge.workload import Workload, programs_among
from rules.kernel_log.record import KernelLine

_NO_WORKLOADS: Final = (SourceState.ABSENT, SourceState.DOWN)
_MAX_PLACES: Final = 2
"""More than one place says nothing about any of them."""
_MAX_WORKLOADS: Final = 4
_NAMED: Final = 3
_HOUR_S: Final = 3600


def count_repeat(on: Judging, line: KernelLine, who: Named, at: float) -> Judging:
    """Add a line to its burst, whoever's it is; three minutes of silence begin a new one.

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


def take_workload(on: Judging, seen: WorkloadSeen) -> Judging:
    """Note whose process a line named, in the burst of that line."""
    line = seen.record.line
    who = identify(on.state, line.gpu_uuid or "", line.pci or "")
    bursts = list(on.state.bursts)
    for position, burst in enumerate(bursts):
        mine = burst.xid == line.xid and burst.is_on(*who)
        if (
            mine
            and burst.first_at <= seen.record.at <= burst.last_at
            and seen.workload not in burst.workloads
        ):
            workloads = (*burst.workloads, seen.workload)[:_MAX_WORKLOADS]
            due_at = on.now + on.thresholds["ContextDelay"].value
            bursts[position] = replace(burst, workloads=workloads, due_at=due_at)
            return on.then(replace(on.state, bursts=tuple(bursts)))
    return on


def judge_repeats(on: Judging) -> Judging:
    """Judge the bursts that are due: by then the other GPUs have printed their lines, too."""
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
    # What a person repaired is counted anew.
    counted = [burst for burst in bursts if burst.first_at >= on.state.node.repaired_at]
    blind = on.state.source(SourceName.WORKLOADS) in _NO_WORKLOADS
    if blind:
        on = on.then(replace(on.state, ledger=_with_bursts(on.state.ledger, due, on.thresholds)))
    for burst in due:
        evidence = _against_hardware(counted, burst, on.thresholds)
        if not evidence and blind:
            evidence = _against_its_place(on, burst)
        if evidence:
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


def _with_bursts(ledger: Ledger, due: Sequence[Burst], thresholds: Thresholds) -> Ledger:
    """Note bursts that nobody can name a workload of: the ledger outlives the agent."""
    for burst in due:
        if what := _place_of(burst):
            owner, window_s = whose(burst.gpu, burst.pci), thresholds["RepeatWindow"].value
            family = f"Xid {burst.xid}"
            ledger = noted(ledger, owner, what, burst.first_at, window_s, family=family)
    return ledger


def _against_its_place(on: Judging, burst: Burst) -> str:
    """Where nobody can tell whose it is, the place alone counts, and no other GPU may show it."""
    what, window_s = _place_of(burst), on.thresholds["RepeatWindow"].value
    since = max(on.now - window_s, on.state.node.repaired_at)
    seen = total(on.state.ledger, (burst.gpu, burst.pci), what, since, on.now)
    elsewhere = any(
        owner not in (burst.gpu, burst.pci)
        and name.startswith(f"Xid {burst.xid}")
        and total(on.state.ledger, (owner,), name, since, on.now)
        for owner, name in on.state.ledger
    ) or any(
        other.xid == burst.xid and other.first_at > since and not other.is_on(burst.gpu, burst.pci)
        for other in on.state.bursts
    )
    if not what or seen < on.thresholds["RepeatBursts"].value or elsewhere:
        return ""
    return (
        f"{what}: {seen} bursts within {round(window_s / _HOUR_S)} h, on no other GPU of this "
        "node; whose programs they were is not known"
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
        source=SourceName.WORKLOADS,
        counts=False,
    )
    before = {incident.id: incident for incident in on.state.incidents}
    on = record(on, finding)
    for incident in on.state.incidents:
        was = before.get(incident.id)
        if was is not incident and (was is None or was.row.severity is Severity.INFO):
            on = on.then(replace_incident(on.state, with_conclusion(incident, evidence)))
    return on


def _against_hardware(bursts: Sequence[Burst], burst: Burst, thresholds: Thresholds) -> str:
    """What speaks against the GPU of `burst`; empty where a program may explain it all.

    Enough bursts, of enough programs, of which no other GPU shows it; 13 at one place. A burst
    without a known workload may be anybody's, one with several programs is nobody's.
    """
    alike = [other for other in bursts if other.xid == burst.xid]
    here = [other for other in alike if other.is_on(burst.gpu, burst.pci)]
    place = ""
    if burst.xid == PLACED_XID:
        here, place = _at_one_place(here)
    needed = thresholds["RepeatWorkloads"].value
    named = [other.workloads for other in here if programs_among(other.workloads) == 1]
    workloads = tuple(dict.fromkeys(one for several in named for one in several))
    if len(here) < thresholds["RepeatBursts"].value or programs_among(workloads) < needed:
        return ""
    involved = {one for other in here for one in other.workloads}
    elsewhere = [other for other in alike if not other.is_on(burst.gpu, burst.pci)]
    if any(_may_show(other, involved) for other in elsewhere):
        return ""
    hours = round(thresholds["RepeatWindow"].value / _HOUR_S)
    more = f" and {len(workloads) - _NAMED} more" if len(workloads) > _NAMED else ""
    names = ", ".join(sorted(one.name for one in workloads)[:_NAMED])
    return (
        f"Xid {burst.xid}: {len(here)} bursts within {hours} h{place}, "
        f"of different workloads ({names}{more}) that show it on no other GPU of this node"
    )


def _may_show(burst: Burst, workloads: set[Workload]) -> bool:
    """Whether a burst may be one of these workloads'; an unknown one may be anybody's."""
    return not burst.workloads or any(
        mine.may_be(theirs) for mine in burst.workloads for theirs in workloads
    )


def _at_one_place(bursts: Sequence[Burst]) -> tuple[list[Burst], str]:
    """The bursts whose only place is the one that most bursts name, and that place in words.

    A program that goes wrong does so wherever it runs: a burst of several places is its.
    """
    places = [burst.places[0] for burst in bursts if len(burst.places) == 1]
    if not places:
        return [], ""
    most = max(sorted(set(places)), key=places.count)
    gpc, tpc = most
    return [b for b in bursts if b.places == (most,)], f", all at GPC {gpc}, TPC {tpc}"
