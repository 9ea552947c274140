"""The state machine of judgement: one observation in, the new state and its changes out.

The agent's loop calls `judge` for everything its senses report and sends a `Tick` when
`next_deadline` is due. It never raises for what an observation contains, never reads a clock
and never forgets to bound what it keeps.
"""

from __future__ import annotations

from dataclasses import replace

from rules.catalog.reason import ClosesKind, Severity
from rules.catalog.signals import Signal
from rules.catalog.thresholds import Rules
from rules.judge.adding_up import add_up
from rules.judge.change import Change, changes_between
from rules.judge.closing import close_what_ended, grace_end, mark_reboot
from rules.judge.facts.aer import judge_aer
from rules.judge.facts.common import merge_common
from rules.judge.facts.compare import end_comparison
from rules.judge.facts.dcgm import judge_page
from rules.judge.facts.events import judge_event, mature_events, name_unavailable
from rules.judge.facts.kernel import judge_line
from rules.judge.facts.presence import (
    answered_poll,
    count_gpus,
    expected_of,
    lost_poll,
    take_functions,
    take_inventory,
)
from rules.judge.facts.readings import judge_readings
from rules.judge.facts.repeats import judge_repeats, take_workload
from rules.judge.facts.sources import (
    LONGEST_STAND_DOWN_S,
    change_source,
    expire_restored,
    expire_stand_down,
    judge_failed_call,
    reset_required,
    settle_driver,
    take_host,
    take_node,
)
from rules.judge.gauge import Gauge
from rules.judge.incident import Incident, IncidentPhase
from rules.judge.observation import (
    AerSeen,
    CallFailed,
    DcgmSeen,
    DevNodesSeen,
    GpuEvent,
    HostSeen,
    Inventory,
    KernelGap,
    KernelLineSeen,
    KernelRead,
    NodeSeen,
    Observation,
    PciSeen,
    Readings,
    SourceChanged,
    SourceState,
    TopologySeen,
    WorkloadSeen,
)
from rules.judge.recording import rests
from rules.judge.state import START_GRACE_S, NodeState
from rules.judge.topology import better


def judge(
    state: NodeState, observation: Observation, now: float, rules: Rules
) -> tuple[NodeState, tuple[Change, ...]]:
    """Take one observation at `now` (wall seconds)."""
    new = settle_driver(_take(state, observation, now, rules), now)
    new = _let_time_pass(new, now, rules)
    if new.incidents is not state.incidents:
        new = merge_common(new, now, rules)
    new = add_up(state, new, now, rules)
    return new, changes_between(state, new)


def next_deadline(state: NodeState) -> float | None:
    """When time alone will change something; None when nothing waits."""
    deadlines = [pending.due_at for pending in state.pending_events]
    deadlines += [burst.due_at for burst in state.bursts if burst.due_at is not None]
    deadlines += [
        at
        for incident in state.incidents
        if incident.active and (at := _deadline(state, incident)) is not None
    ]
    if state.restored_sources:
        deadlines.append(state.started_at + START_GRACE_S)
    if state.stand_down is not None and not state.stand_down.expired:
        deadlines.append(state.stand_down.since + LONGEST_STAND_DOWN_S)
    return min(deadlines, default=None)


def wants_reread(state: NodeState) -> bool:
    """Whether something was seen once and waits for its confirming re-read."""
    return _unconfirmed(state.missing) or any(
        (view.action_seen is not None and view.action_seen != view.action)
        or any(latch.seen and not latch.raised for latch in view.latches.values())
        or _unconfirmed(view.lost)
        for view in state.gpus.values()
    )


def wants_another_look(state: NodeState) -> bool:
    """Whether looking once more, soon, may change the verdict: for one who does not stay.

    Beyond `wants_reread`: noisy readings that were bad last, and GPUs that the bus or people
    count and the driver does not.
    """
    if wants_reread(state) or any(
        i.active and i.phase is IncidentPhase.CONTEXT for i in state.incidents
    ):
        return True
    if any(_unconfirmed(gauge) for view in state.gpus.values() for gauge in view.gauges.values()):
        return True
    view = state.view_source
    if view is None or state.source(view) is not SourceState.UP or state.missing.raised:
        return False
    accounted = sum(view.enumerated or view.lost.raised for view in state.gpus.values())
    return accounted < expected_of(state).count


def _unconfirmed(gauge: Gauge) -> bool:
    return gauge.bad[-1:] == (True,) and not gauge.raised


def _deadline(state: NodeState, incident: Incident) -> float | None:
    if incident.phase is IncidentPhase.CONTEXT or incident.held_at is not None:
        return incident.due_at
    if incident.phase is IncidentPhase.PRESENT:
        waits = incident.row.severity is Severity.INFO and not rests(state, incident)
        return grace_end(state, incident) if waits else None
    ends = incident.row.closes_on
    if incident.row.severity is Severity.INFO and ends.kind is ClosesKind.SILENCE:
        return incident.touched_at + ends.silence_s
    return None


def _take(state: NodeState, seen: Observation, now: float, rules: Rules) -> NodeState:
    match seen:
        case KernelLineSeen():
            return judge_line(_boot(state, seen.boot_id), seen, now, rules)
        case WorkloadSeen():
            return take_workload(state, seen, now, rules)
        case KernelRead():
            return _read_up_to(_boot(state, seen.boot_id), seen.boot_id, seen.sequence)
        case KernelGap():
            return _read_up_to(state, seen.boot_id, seen.sequence) if seen.boot_id else state
        case SourceChanged():
            return end_comparison(change_source(state, seen, now), now)
        case Inventory():
            return count_gpus(take_inventory(state, seen, now), now, rules)
        case TopologySeen():
            return replace(state, topology=better(seen, state.topology))
        case Readings():
            return _readings(state, seen, now, rules)
        case GpuEvent():
            return judge_event(state, seen, now, rules)
        case CallFailed():
            return judge_failed_call(state, seen, now, rules)
        case PciSeen():
            return take_functions(state, seen, now, rules)
        case AerSeen():
            return judge_aer(state, seen, now, rules)
        case DevNodesSeen():
            return replace(state, minors=seen.minors[:256])
        case DcgmSeen():
            return count_gpus(judge_page(state, seen, now, rules), now, rules)
        case NodeSeen():
            return take_node(state, seen, now)
        case HostSeen():
            return take_host(state, seen, now, rules)
    return state


def _let_time_pass(state: NodeState, now: float, rules: Rules) -> NodeState:
    state = name_unavailable(mature_events(state, now, rules), now)
    state = judge_repeats(state, now, rules)
    state = expire_restored(state, now)
    state = expire_stand_down(state, now)
    return close_what_ended(state, now, rules)


def _readings(state: NodeState, seen: Readings, now: float, rules: Rules) -> NodeState:
    """A poll with the presence it found: lost and reset required are states of the whole GPU.

    Only some polls look for it; the others say nothing about presence.
    """
    state = judge_readings(state, seen, now, rules)
    presence = seen.values.get(Signal.PRESENCE)
    if presence is None:
        return state
    if presence == "lost":
        return lost_poll(state, seen.gpu, seen.pci, "NVML: the GPU is lost", now, rules)
    state = answered_poll(state, seen.gpu, seen.pci, now, rules)
    return reset_required(
        state,
        seen.gpu,
        seen.pci,
        "NVML: the GPU requires a reset",
        now,
        rules,
        bad=presence == "reset_required",
    )


def _boot(state: NodeState, boot_id: str) -> NodeState:
    """Take the boot that an observation names: another one than before is a reboot."""
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
            told_at=0.0,
            unavailable_at=0.0,
            gauges={},
            latches={},
            counters={},
            aer=None,
            aer_base=None,
        )
        for key, view in state.gpus.items()
    }
    state = replace(state, gpus=gpus, pending_events=(), pci_at=0.0, inventory_at=0.0)
    state = replace(state, host={}, tasks={}, services={})
    return mark_reboot(state)


def _read_up_to(state: NodeState, boot_id: str, sequence: int) -> NodeState:
    if sequence < 0 or (boot_id == state.cursor_boot and sequence <= state.cursor_seq):
        return state
    return replace(state, cursor_boot=boot_id, cursor_seq=sequence)
