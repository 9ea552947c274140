"""The state machine of the assessment: take one observation, return the new state and changes.

The agent's loop calls `judge` for everything its data sources report and sends a `Tick` when
`next_deadline` is due. `judge` accepts any content, reads no clock and keeps its state bounded.
"""

from enum import StrEnum

import msgspec
from msgspec.structs import replace

from rules.catalog.reason import ClosesKind, Severity
from rules.catalog.signals import Signal
from rules.catalog.thresholds import Thresholds
from rules.judge import closing, memory, patterns, present, recording, topology
from rules.judge import observation as facts
from rules.judge.facts import dcgm, kernel, readings, sources
from rules.judge.facts.presence import (
    answered_poll,
    count_gpus,
    lost_poll,
    take_functions,
    take_inventory,
)
from rules.judge.incident import Incident, IncidentPhase
from rules.judge.memory import Gauge, Latch
from rules.judge.observation import SourceName, SourceState
from rules.judge.state import START_GRACE_S, Judging, NodeState, identify


class ChangeKind(StrEnum):
    """The kind of a change."""

    OPENED = "Opened"
    RAISED = "Raised"
    LOWERED = "Lowered"
    CLOSED = "Closed"
    SOURCE = "Source"
    STAND_DOWN = "StandDown"
    STAND_DOWN_EXPIRED = "StandDownExpired"
    STAND_DOWN_ENDED = "StandDownEnded"


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One change; `incident` is set for the first four kinds, `source` for Source."""

    kind: ChangeKind
    incident: Incident | None = None
    source: SourceName | None = None
    state: SourceState | None = None
    reason: str = ""


def changes_between(old: NodeState, new: NodeState) -> tuple[Change, ...]:
    """Return the changes that are logged and reported as Events."""
    if old is new:
        return ()
    found: list[Change] = []
    if old.incidents is not new.incidents:
        found += _incidents(old, new)
    if old.sources is not new.sources:
        found += [
            Change(kind=ChangeKind.SOURCE, source=name, state=view.state, reason=view.reason)
            for name, view in new.sources.items()
            if (before := old.sources.get(name)) is None
            or (before.state, before.reason) != (view.state, view.reason)
        ]
    return (*found, *_stand_down(old, new))


def _incidents(old: NodeState, new: NodeState) -> list[Change]:
    before = {incident.id: incident for incident in old.incidents}
    found = []
    for incident in new.incidents:
        was = before.get(incident.id)
        if was is incident:
            continue
        kind = None
        if was is None:
            kind = ChangeKind.OPENED
        elif was.active and not incident.active:
            kind = ChangeKind.CLOSED
        elif incident.row.severity > was.row.severity or incident.row.level > was.row.level:
            kind = ChangeKind.RAISED
        elif incident.row.severity < was.row.severity or incident.row.level < was.row.level:
            kind = ChangeKind.LOWERED
        if kind is not None:
            found.append(Change(kind=kind, incident=incident, reason=incident.row.reason))
    return found


def _stand_down(old: NodeState, new: NodeState) -> tuple[Change, ...]:
    was, now = old.stand_down, new.stand_down
    if was == now:
        return ()
    if now is None:
        return (Change(kind=ChangeKind.STAND_DOWN_ENDED, reason=was.reason if was else ""),)
    if now.expired:
        return (Change(kind=ChangeKind.STAND_DOWN_EXPIRED, reason=now.reason),)
    return (Change(kind=ChangeKind.STAND_DOWN, reason=now.reason),)


def judge(
    state: NodeState, observation: facts.Observation, now: float, thresholds: Thresholds
) -> tuple[NodeState, tuple[Change, ...]]:
    """Return the state and changes after one observation at `now` (wall seconds)."""
    on = Judging(state, now, thresholds)
    on = _let_time_pass(sources.settle_driver(_take(on, observation)))
    if on.state.incidents is not state.incidents or _gpus_changed(state, on.state):
        on = patterns.merge_common(on)
    on = patterns.add_up(state, on)
    return on.state, changes_between(state, on.state)


def _gpus_changed(before: NodeState, now: NodeState) -> bool:
    """Whether the known GPUs may have changed, and with them how many are half of them."""
    return (
        before.gpus.keys() != now.gpus.keys()
        or before.functions is not now.functions
        or before.learned != now.learned
        or before.node is not now.node
        or before.excluded != now.excluded
    )


def next_deadline(state: NodeState) -> float | None:
    """Return when time alone changes the state next; None when nothing is due."""
    deadlines = [burst.due_at for burst in state.repeats]
    deadlines += [
        at
        for incident in state.incidents
        if incident.active and (at := _deadline(state, incident)) is not None
    ]
    deadlines += [finding.at + sources.PRINTED_WITHIN_S for finding in state.unprinted]
    if state.restored_sources:
        deadlines.append(state.started_at + START_GRACE_S)
    if state.stand_down is not None and not state.stand_down.expired:
        deadlines.append(state.stand_down.since + sources.LONGEST_STAND_DOWN_S)
    return min(deadlines, default=None)


def wants_reread(state: NodeState) -> bool:
    """Whether something was read once and needs a second read to confirm it."""
    return memory.unconfirmed(state.missing) or any(
        (view.action_seen is not None and view.action_seen != view.action)
        or any(
            isinstance(flag, Latch) and memory.unconfirmed(flag) for flag in view.checks.values()
        )
        or memory.unconfirmed(view.lost)
        for view in state.gpus.values()
    )


def needs_another_poll(state: NodeState) -> bool:
    """Whether another poll may soon change the health status; for commands that poll and exit.

    In addition to `wants_reread`: noisy readings with a bad last value, and GPUs that are expected
    but not listed by the driver.
    """
    if wants_reread(state) or any(
        i.active and i.phase is IncidentPhase.CONTEXT for i in state.incidents
    ):
        return True
    if any(
        memory.unconfirmed(check) for view in state.gpus.values() for check in view.checks.values()
    ):
        return True
    view = state.view_source
    if view is None or state.source(view) is not facts.SourceState.UP or state.missing.raised:
        return False
    accounted = sum(view.enumerated or view.lost.raised for view in state.gpus.values())
    return accounted < state.expected.count


def _deadline(state: NodeState, incident: Incident) -> float | None:
    if incident.phase is IncidentPhase.CONTEXT or incident.held_at is not None:
        return incident.due_at
    if incident.phase is IncidentPhase.PRESENT:
        waits = incident.row.severity is Severity.INFO and not recording.rests(state, incident)
        return closing.grace_end(state, incident) if waits else None
    ends = incident.row.closes_on
    if incident.row.severity is Severity.INFO and ends.kind is ClosesKind.SILENCE:
        return incident.touched_at + ends.silence_s
    return None


def _take(on: Judging, seen: facts.Observation) -> Judging:
    match seen:
        case facts.KernelLineSeen():
            return kernel.judge_line(on.then(_boot(on.state, seen.boot_id)), seen)
        case facts.KernelRead():
            return on.then(_read_up_to(_boot(on.state, seen.boot_id), seen.boot_id, seen.sequence))
        case facts.KernelGap():
            if seen.boot_id:
                on = on.then(_read_up_to(on.state, seen.boot_id, seen.sequence))
            return on.replace(records_lost_at=on.now)
        case facts.SourceChanged():
            return sources.change_source(on, seen)
        case facts.Inventory():
            return count_gpus(take_inventory(on, seen))
        case facts.TopologySeen():
            known = None if _rebuilt_on_purpose(on.state, seen) else on.state.topology
            return on.replace(topology=topology.better(seen, known))
        case facts.Readings():
            return _readings(on, seen)
        case facts.GpuEvent():
            return sources.judge_event(on, seen)
        case facts.CallFailed():
            return sources.judge_failed_call(on, seen)
        case facts.PciSeen():
            return take_functions(on, seen)
        case facts.DcgmSeen():
            return count_gpus(dcgm.judge_page(on, seen))
        case facts.NodeSeen():
            return sources.take_node(on, seen)
        case facts.HostSeen():
            return sources.take_host(on, seen)
        case facts.PodResourcesSeen():
            return on.replace(pod_resources=seen)
    return on


def _rebuilt_on_purpose(state: NodeState, seen: facts.TopologySeen) -> bool:
    """Whether GPUs or links that this topology lacks were removed on purpose.

    Either no GPU is missing, or an operator reported the repair of the links.
    """
    if state.topology is None:
        return False
    fewer = not set(seen.gpus).issuperset(state.topology.gpus)
    repaired = any(
        i.active and i.row.reason == closing.LINKS_DOWN and i.first_seen < state.node.repaired_at
        for i in state.incidents
    )
    return repaired or (fewer and present.none_missing(state))


def _let_time_pass(on: Judging) -> Judging:
    on = sources.judge_unprinted(kernel.judge_repeats(on))
    on = sources.expire_restored(on)
    on = sources.expire_stand_down(on)
    return closing.close_what_ended(on)


def _readings(on: Judging, seen: facts.Readings) -> Judging:
    """Take a poll of a GPU and its presence; only some polls read the presence."""
    on = readings.judge_readings(on, seen)
    presence = seen.values.get(Signal.PRESENCE)
    if presence is None:
        return on
    gpu_id = identify(on.state, seen.gpu, seen.pci)
    if presence == "lost":
        return lost_poll(on, gpu_id, "NVML: the GPU is lost", reported_lost=True)
    if presence == "missing":
        return lost_poll(on, gpu_id, "NVML: the GPU cannot be opened", reported_lost=False)
    on = answered_poll(on, gpu_id)
    asks = "NVML: the GPU requires a reset" if presence == "reset_required" else ""
    return sources.reset_required(on, gpu_id, asks)


def _boot(state: NodeState, boot_id: str) -> NodeState:
    """Take the boot ID of an observation; another one than before means a reboot."""
    known = state.node.boot_id
    if not boot_id or boot_id == known:
        return state
    state = replace(state, node=replace(state.node, boot_id=boot_id))
    if not known:
        return state
    gpus = {
        key: replace(
            view,
            enumerated=False,
            answered_at=0.0,
            read_at=0.0,
            values={},
            action=None,
            action_seen=None,
            reset_pending=False,
            lost=Gauge(),
            lost_since=0.0,
            reported_at=0.0,
            unavailable_at=0.0,
            checks={},
            counters={},
        )
        for key, view in state.gpus.items()
    }
    state = replace(state, gpus=gpus, pci_at=0.0, inventory_at=0.0)
    state = replace(state, checks={}, services={}, ports={})
    return closing.note_reboot(state)


def _read_up_to(state: NodeState, boot_id: str, sequence: int) -> NodeState:
    if sequence < 0 or (boot_id == state.cursor_boot and sequence <= state.cursor_seq):
        return state
    return replace(state, cursor_boot=boot_id, cursor_seq=sequence)
