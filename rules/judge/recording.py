"""Record findings and recovery actions in incidents.

Only these functions open incidents or add members, so bounds, grouping and the rule about past
faults hold for every check. The bridges above a GPU are kept after it left the bus, because a
bridge's line may be read later.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from rules.catalog import reason, reasons
from rules.catalog.reason import Action, ClosesKind, ReasonClass, Severity
from rules.catalog.signals import Signal
from rules.catalog.xid import CONTAINED_XID, RECOVERY_ACTION_XID
from rules.judge import burst, expected_gpus, topology
from rules.judge.burst import Surroundings
from rules.judge.incident import (
    NO_NEED,
    PAST_CLOCK_S,
    Finding,
    GpuId,
    Incident,
    IncidentPhase,
    Scope,
    capped,
    clipped,
    closed,
    find_home,
    joined,
    opened,
    with_conclusion,
    with_evidence,
    without_gpu,
)
from rules.judge.observation import PciFunction, SourceName
from rules.judge.state import MAX_GPUS, Judging, NodeState, find_gpu, identify
from rules.judge.topology import Interconnect
from rules.text import pci_address

CONTAINMENT: Final = "PcieContainment"
_MAX_BRIDGES: Final = 16
"""More levels of PCIe switches than any host has."""


def learn_bridges(state: NodeState, functions: Sequence[PciFunction]) -> NodeState:
    """Return the state with the bridges above each GPU that this node's workloads can use."""
    bridges = dict(state.bridges)
    ours = expected_gpus.gpu_addresses(functions, state.excluded)
    for function in functions:
        address = pci_address.plain_address(function.address)
        if address not in ours:
            bridges.pop(address, None)  # now passed to a virtual machine or excluded
        elif address in bridges or len(bridges) < MAX_GPUS:
            bridges[address] = function.upstream[-_MAX_BRIDGES:] or bridges.get(address, ())
    return state if bridges == state.bridges else replace(state, bridges=bridges)


def gpus_below(state: NodeState, bridge: str) -> tuple[str, ...]:
    """Return the addresses of the GPUs below this bridge; none if the paths are unknown."""
    return tuple(sorted(gpu for gpu, above in state.bridges.items() if bridge.lower() in above))


def about_gpus_below(
    state: NodeState, finding: Finding, bridge: str, *, each: bool
) -> tuple[Finding, ...]:
    """Return a bridge's finding as findings of the GPUs below it; empty without GPUs.

    With several GPUs it concerns `each` of them, or else the node.
    """
    below = gpus_below(state, bridge)
    if len(below) > 1 and not each:
        return (replace(finding, scope=Scope.NODE),)
    return tuple(replace(finding, gpu_id=GpuId(pci=gpu), scope=Scope.GPU) for gpu in below)


def _same_loss(state: NodeState, finding: Finding) -> Incident | None:
    """Return the active incident that a lost GPU shares with its cause, in either order.

    The cause is the containment of its port or a security fault. A finding that needs current data
    never joins an assessed incident.
    """
    lost = finding.member.lost
    if not lost and finding.row.reason != CONTAINMENT and finding.xid != burst.SECURITY_FAULT_XID:
        return None
    gpu_id, waits = finding.gpu_id, finding.lookback or finding.needs_present
    for incident in state.incidents:
        if not incident.active or not incident.concerns(gpu_id):
            continue
        if waits and incident.phase is not IncidentPhase.PRESENT:
            continue
        cut_off = incident.has_reason(CONTAINMENT) or burst.SECURITY_FAULT_XID in incident.xids
        if cut_off if lost else incident.lost:
            return incident
    return None


BEFORE_START: Final = "BeforeStart"
SUPERSEDED: Final = "Superseded"

_NONE_READ: Final = 2
"""A flag needs a second read. Source: gpuward, as for other flags."""

CONTAINED_ERROR: Final = "Xid 94"
_SEVERE: Final = (ReasonClass.DECISIVE, ReasonClass.NEEDS_CONTEXT)


def surroundings(state: NodeState) -> Surroundings:
    """Return the facts about this node that change a row."""
    without_nvlink = state.topology is not None and topology.interconnect(state.topology) in (
        Interconnect.PCIE,
        Interconnect.SINGLE,
    )
    return Surroundings(
        branch=state.branch,
        virtual=state.virtualization != "none",
        nvlink=not without_nvlink,
    )


def settle(on: Judging, incident: Incident) -> Incident:
    """Return the incident with its phase and row by the current state of the node."""
    return burst.settled(incident, on.now, surroundings(on.state), on.thresholds)


def record(on: Judging, finding: Finding) -> Judging:
    """Record a finding in the incident that it belongs to, else in a new one.

    A finding older than the agent's start waits for current data; of severity Info it is recorded
    as closed.
    """
    finding = replace(finding, gpu_id=identify(on.state, *finding.gpu_id))
    if on.state.standing_down and finding.member.lost:
        finding = replace(finding, needs_present=True)  # assessed when the GPUs are back
    if finding.lookback and finding.sequence is None and _is_known(on.state, finding):
        return on
    on = _tallied(on, finding)
    home = find_home(_not_repaired(on.state, finding), finding, on.thresholds)
    if home is not None and _would_be_proof(home, finding):
        home = None
    home = home or _same_loss(on.state, finding)
    if home is not None:
        merged = joined(home, finding, on.now)
        waits = finding.lookback or finding.needs_present or rests(on.state, home)
        if home.phase is IncidentPhase.PRESENT and not waits:
            merged = replace(merged, phase=IncidentPhase.CONTEXT, opened_at=on.now)
        return on.with_incident(settle(on, merged))
    fresh = opened(finding, on.state.node.boot_id or on.state.cursor_boot, on.now)
    if any(known.id == fresh.id for known in on.state.incidents):
        return on
    if finding.lookback or finding.needs_present:
        since = 0.0 if finding.lookback else on.now
        fresh = replace(fresh, phase=IncidentPhase.PRESENT, present_since=since)
    fresh = settle(on, fresh)
    if finding.lookback and finding.row.severity is Severity.INFO:
        fresh = closed(fresh, finding.at, BEFORE_START)
    kept, gone = capped((*on.state.incidents, fresh))
    return on.replace(incidents=kept, dropped=on.state.dropped + gone)


def _not_repaired(state: NodeState, finding: Finding) -> Iterable[Incident]:
    """Return the incidents that a finding may join.

    An Xid after a repair that an operator reported must not join a repaired incident.
    """
    repaired_at = state.node.repaired_at
    live = finding.xid is not None and not finding.lookback and not finding.needs_present
    if not live or not 0 < repaired_at <= finding.at:
        return state.incidents
    return (
        each
        for each in state.incidents
        if each.first_seen >= repaired_at or each.row.closes_on.kind is not ClosesKind.HUMAN
    )


def _tallied(on: Judging, finding: Finding) -> Judging:
    """Count contained memory errors, which matter when they repeat; a burst counts once."""
    if finding.xid != CONTAINED_XID or finding.lookback:
        return on
    apart_s = on.thresholds["IncidentGrouping"].value
    return on.note(finding.gpu_id, CONTAINED_ERROR, finding.at, "BudgetWindow", apart_s=apart_s)


def rests(state: NodeState, incident: Incident) -> bool:
    """Return whether this lost GPU waits because the GPUs are released on request."""
    return state.standing_down and incident.lost


def take_answer(
    on: Judging,
    gpu_id: GpuId,
    value: int,
    *,
    finding: Finding,
) -> Judging:
    """Apply the driver's recovery action `value`; the latest value wins.

    It applies to the newest Xid incident of that GPU that is recent or severe. Without one,
    `finding` becomes an incident of its own.
    """
    gpu_id = identify(on.state, *gpu_id)
    view = find_gpu(on.state, *gpu_id)
    if view is not None and not finding.lookback:
        on = on.with_gpu(replace(view, action=value, action_seen=None))
    around = surroundings(on.state)
    if value == reasons.NO_ACTION:
        return _no_action(on, gpu_id, finding)
    asked = _asked(on, gpu_id, finding)
    if asked is None:
        row = burst.row_for_action(value, around)
        old = _own(on.state, gpu_id)
        if old is not None and old.row.reason != row.reason:
            on = on.with_incident(closed(old, finding.at, SUPERSEDED))
        return record(on, replace(finding, row=row, gpu_id=gpu_id))
    if asked.answer == value:
        return on.with_incident(replace(asked, last_seen=max(asked.last_seen, finding.at)))
    if asked.answer is not None and len(asked.gpus) > 1:
        lighter = reason.strength(burst.row_for_action(value, around)) < reason.strength(
            burst.row_for_action(asked.answer, around)
        )
        if lighter:
            return on  # one of several GPUs needs less than another
    answered = with_evidence(replace(asked, answer=value), finding.evidence)
    answered = replace(
        answered,
        last_seen=max(asked.last_seen, finding.at),
        sources=tuple(dict.fromkeys((*asked.sources, finding.source))),
    )
    if asked.phase is IncidentPhase.PRESENT and not finding.lookback:
        answered = replace(answered, phase=IncidentPhase.CONTEXT, opened_at=on.now)
    return on.with_incident(settle(on, answered))


def note_no_need(on: Judging, gpu_id: GpuId) -> Judging:
    """Take a poll without a recovery action.

    The second one after an Xid that depends on the recovery action settles that Xid.
    """
    around = surroundings(on.state)
    for incident in on.state.incidents:
        waits = (
            incident.active
            and incident.answer is None
            and incident.phase is not IncidentPhase.PRESENT
        )
        if not waits or not incident.concerns(gpu_id) or not burst.asks_driver(incident, around):
            continue
        if len(incident.gpus) > 1:
            continue  # another of its GPUs may still need a recovery action
        read = replace(incident, unasked=incident.unasked + 1)
        if read.unasked >= _NONE_READ:
            read = with_conclusion(replace(read, answer=reasons.NO_ACTION), NO_NEED)
            read = settle(on, read)
        on = on.with_incident(read)
    return on


def _would_be_proof(home: Incident, finding: Finding) -> bool:
    """Return whether a finding that needs current data would join an assessed burst."""
    judged = home.phase is not IncidentPhase.PRESENT and not home.has_reason(finding.row.reason)
    return finding.needs_present and judged


def _is_known(state: NodeState, finding: Finding) -> bool:
    """Return whether a past line without a record number is in an incident already.

    A closed incident covers only the lines that it kept, and none after its end, because the fault
    may come back soon after a repair.
    """
    line = clipped(finding.evidence)
    record_only = finding.row.severity is Severity.INFO
    return any(
        incident.concerns(finding.gpu_id)
        and incident.first_seen - PAST_CLOCK_S <= finding.at <= incident.last_seen + PAST_CLOCK_S
        and (
            (line in incident.evidence and (record_only or not _ended_before(incident, finding)))
            or (incident.has_reason(finding.row.reason) and (record_only or incident.active))
        )
        for incident in state.incidents
    )


def _ended_before(incident: Incident, finding: Finding) -> bool:
    return not incident.active and incident.closed_at < finding.at


def _no_action(on: Judging, gpu_id: GpuId, finding: Finding) -> Judging:
    """Close what only the driver's recovery action kept open."""

    def kept_open_by_it(incident: Incident) -> bool:
        later = finding.lookback and finding.at < incident.last_seen
        return incident.row.closes_on.signal == Signal.RECOVERY_ACTION and not later

    return close_for(on, gpu_id, kept_open_by_it, ClosesKind.STATE, finding.at)


def finding_for_action(
    state: NodeState, value: int, at: float, source: SourceName, evidence: str
) -> Finding:
    """Return the recovery action as a finding."""
    row = burst.row_for_action(value, surroundings(state))
    scope = Scope.DOMAIN if row.action is Action.RECOVER_IMEX_DOMAIN else Scope.GPU
    return Finding(at=at, row=row, source=source, evidence=evidence, scope=scope)


def _asked(on: Judging, gpu_id: GpuId, finding: Finding) -> Incident | None:
    """Return the newest Xid incident of the GPU to which this recovery action applies.

    A recovery action from the past does not apply to later faults.
    """
    gap, at = on.thresholds["ContextDelay"].value, finding.at
    about = [
        incident
        for incident in on.state.incidents
        if incident.active
        and incident.concerns(gpu_id)
        and not (finding.lookback and at < incident.first_seen - gap)
        and (any(xid != RECOVERY_ACTION_XID for xid in incident.xids) or incident.lost)
        and (
            abs(at - incident.last_seen) <= gap
            or any(member.row.klass in _SEVERE for member in incident.members)
        )
    ]
    return max(about, key=lambda i: (reason.strength(i.row), i.last_seen), default=None)


def _own(state: NodeState, gpu_id: GpuId) -> Incident | None:
    for incident in state.incidents:
        if (
            incident.active
            and incident.concerns(gpu_id)
            and incident.row.reason in reasons.RECOVERY_REASONS
        ):
            return incident
    return None


def close_where(on: Judging, wanted: Callable[[Incident], bool], by: str) -> Judging:
    """Close every active incident that `wanted` picks."""
    if not any(incident.active and wanted(incident) for incident in on.state.incidents):
        return on
    incidents = tuple(
        closed(incident, on.now, by) if incident.active and wanted(incident) else incident
        for incident in on.state.incidents
    )
    return on.replace(incidents=incidents)


def close_for(
    on: Judging,
    gpu_id: GpuId,
    wanted: Callable[[Incident], bool],
    by: str,
    at: float | None = None,
) -> Judging:
    """Close what `wanted` picks for one GPU; an incident with other GPUs continues without it."""

    def leave(incident: Incident) -> Incident:
        if not incident.active or not incident.concerns(gpu_id) or not wanted(incident):
            return incident
        return without_gpu(incident, gpu_id) or closed(incident, on.now if at is None else at, by)

    incidents = tuple(map(leave, on.state.incidents))
    same = all(new is old for new, old in zip(incidents, on.state.incidents, strict=True))
    return on if same else on.replace(incidents=incidents)
