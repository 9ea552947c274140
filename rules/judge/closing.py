"""What ends an incident: silence, a reset, a reboot, a state, an operator, the past being past, or
a GPU that has left the node for good.

`judge` calls `close_what_ended` after every observation; the judges note evidence with
`mark_reset` and `mark_reboot`. Evidence alone closes nothing: the present must agree, seen
after the evidence, and where nothing can see the present, nothing is closed by it.
"""

from typing import Final

from msgspec.structs import replace

from rules.catalog.reason import ClosesKind, Severity
from rules.catalog.signals import Signal
from rules.judge import burst, recording
from rules.judge.incident import (
    NO_GPU_ID,
    GpuId,
    Incident,
    IncidentPhase,
    closed,
    held_still,
    without_gpu,
)
from rules.judge.observation import SourceName, SourceState
from rules.judge.present import Present, gpu_now, present_of
from rules.judge.state import (
    MAX_GPUS,
    START_GRACE_S,
    Checks,
    GpuView,
    Judging,
    NodeState,
    find_gpu,
)

_GPU_STATES: Final = frozenset({Signal.PRESENCE, Signal.RECOVERY_ACTION})
"""What nothing compares with an earlier boot's: a sound GPU of the new one ends it."""
NOT_CONFIRMED: Final = "NotConfirmed"
GPU_LEFT: Final = "GPULeft"
LINKS_DOWN: Final = "NVLinkDown"


def note_reset(
    on: Judging, gpu_id: GpuId = NO_GPU_ID, since: float | None = None, slack_s: float = 0.0
) -> Judging:
    """Note evidence of a reset of one GPU, or of all where none is named.

    What was counted before it is no base for a rate any more, and what waited for it is done.
    `since` is when it happened, if that is past: a later fault is not repaired by it. Its clock
    may be behind by `slack_s` where it is known to come after all that an earlier agent saw.
    """
    everything = not any(gpu_id)
    hit = find_gpu(on.state, *gpu_id) if not everything else None
    gpus = {
        key: replace(
            view,
            reset_pending=False,
            reset_at=max(view.reset_at, on.now if since is None else since),
            counters={},
            checks=without_looks(view),
        )
        if everything or view is hit
        else view
        for key, view in on.state.gpus.items()
    }

    def mark(incident: Incident) -> Incident:
        about = everything or incident.concerns(gpu_id)
        slack = slack_s if incident.last_seen < on.state.started_at else 0.0
        if not incident.active or not about:
            return incident
        if since is not None and incident.last_seen > since + slack:
            return incident
        if everything or len(incident.gpus or incident.pci) == 1:
            return replace(incident, reset_at=on.now)
        key = gpu_id.uuid or gpu_id.pci
        others = tuple(known for known in incident.resets if known[0] != key)
        return replace(incident, resets=(*others, (key, on.now))[-MAX_GPUS:])

    return on.replace(gpus=gpus, incidents=tuple(map(mark, on.state.incidents)))


def without_looks(view: GpuView) -> Checks:
    """Links that train again were not down: looks at them from before a reset do not count."""
    return {
        key: memory for key, memory in view.checks.items() if memory.raised or key != LINKS_DOWN
    }


def note_reboot(state: NodeState) -> NodeState:
    """Note that the node runs another boot than the one the active incidents were seen in.

    Whatever this state has read of the present was read in the new boot.
    """
    return replace(
        state,
        incidents=tuple(
            replace(incident, rebooted=True) if incident.active else incident
            for incident in state.incidents
        ),
    )


def close_what_ended(on: Judging) -> Judging:
    """Let time and evidence do their work on every active incident."""
    if not any(incident.active for incident in on.state.incidents):
        return on
    incidents = tuple(
        _aged(on, incident) if incident.active else incident for incident in on.state.incidents
    )
    # As long as nothing ages the incidents are the same object, and nobody looks at them again.
    pairs = list(zip(incidents, on.state.incidents, strict=True))
    if all(new is old for new, old in pairs):
        return on
    left = [new for new, old in pairs if old.active and new.closed_by == GPU_LEFT]
    gpus = {
        key: view
        for key, view in on.state.gpus.items()
        if view.enumerated or not any(incident.concerns(view.gpu_id) for incident in left)
    }
    return on.replace(incidents=incidents, gpus=gpus)


def _aged(on: Judging, incident: Incident) -> Incident:
    if incident.held_at is not None:
        repaired = on.state.node.repaired_at > incident.held_at
        if repaired or not held_still(incident, on.now, on.thresholds):
            return closed(incident, on.now, ClosesKind.STATE)
    if _has_left(on, incident):
        return closed(incident, on.now, GPU_LEFT)
    if incident.phase is IncidentPhase.PRESENT:
        return _confronted(on, incident)
    if incident.phase is IncidentPhase.CONTEXT:
        incident = recording.settle(on, incident)
        if incident.phase is IncidentPhase.CONTEXT:
            return incident
    ends = incident.row.closes_on
    if incident.row.severity is Severity.INFO and ends.kind is ClosesKind.SILENCE:
        over_at = incident.touched_at + ends.silence_s
        return closed(incident, over_at, ends.kind) if on.now >= over_at else incident
    if ends.kind in (ClosesKind.RESET, ClosesKind.REBOOT):
        return _reset_or_rebooted(on, incident)
    if ends.kind is ClosesKind.HUMAN:
        return _repaired(on, incident)
    if incident.rebooted and ends.signal in _GPU_STATES:
        present = present_of(on.state, incident, since=0.0)
        return closed(incident, on.now, ClosesKind.REBOOT) if present is Present.GOOD else incident
    return incident


def _has_left(on: Judging, incident: Incident) -> bool:
    """Whether its GPU is not here any more, after a reboot or by an operator's word, and none is
    missing: what waits for that GPU to look sound would wait for ever.

    Within the boot of the fault its line proves that the GPU was here, whatever the count says.
    """
    repaired = incident.first_seen < on.state.node.repaired_at
    over = repaired or (incident.rebooted and incident.row.closes_on.kind is not ClosesKind.HUMAN)
    if not over or recording.rests(on.state, incident):
        return False
    return present_of(on.state, incident, since=0.0) is Present.LEFT


def _confronted(on: Judging, incident: Incident) -> Incident:
    """What proves nothing alone: the present accuses, acquits or is not observed yet.

    It cannot acquit of what was seen live: many a fault leaves a GPU that looks sound.
    """
    if recording.rests(on.state, incident):
        return recording.settle(on, incident)
    # What rested is judged by looks from after the stand-down: in it cards are taken out.
    rested_until = on.state.stood_down_until if incident.lost else 0.0
    since = max(incident.present_since, rested_until)
    present = present_of(on.state, incident, since=since)
    if present is Present.GOOD and not incident.cut and since < incident.last_seen <= on.now:
        # A check from before a fault cannot acquit of it: the line may be of the last seconds.
        present = present_of(on.state, incident, since=incident.last_seen)
    if incident.cut and SourceName.KERNEL_LOG in on.state.restored_sources:
        present = Present.UNKNOWN  # the rest of it stands in a log that is still to be read
    if present is Present.GOOD and _only_on_the_bus(on.state, incident):
        present = Present.UNKNOWN
    sick = present in (Present.BAD, Present.LEFT)
    if sick or (present is Present.GOOD and incident.cut):
        live = replace(
            incident,
            phase=IncidentPhase.CONTEXT,
            opened_at=on.now,
            touched_at=on.now,
            held_at=None,
        )
        return recording.settle(on, live)
    by = NOT_CONFIRMED if incident.present_since else recording.BEFORE_START
    if present is Present.GOOD:
        return closed(incident, on.now, by)
    if not _no_data(on, incident):
        return recording.settle(on, incident)
    row = burst.unconfirmed(
        burst.judged_row(
            incident.members, incident.answer, recording.surroundings(on.state), on.thresholds
        )
    )
    if row.severity is Severity.INFO:
        return closed(incident, on.now, by)
    return replace(incident, row=row)


def _only_on_the_bus(state: NodeState, incident: Incident) -> bool:
    """Whether all that acquits of a fault of the past is an address on the PCI bus.

    Many a GPU that is unfit for work answers there; after a reset or reboot that is enough.
    """
    repaired = incident.rebooted or incident.reset_at is not None
    of_the_past = not incident.present_since and not incident.cut
    return state.view_source is None and of_the_past and not repaired


def _no_data(on: Judging, incident: Incident) -> bool:
    """Whether waiting longer for the collector that sees the GPUs makes no sense."""
    source = on.state.view_source
    spoken = on.state.source(source) if source else SourceState.ABSENT
    grace_over = on.now >= grace_end(on.state, incident)
    approved = spoken is SourceState.RELEASED and not incident.lost  # else comes back soon
    return grace_over or approved or spoken in (SourceState.DOWN, SourceState.ABSENT)


def grace_end(state: NodeState, incident: Incident) -> float:
    """Until when the present may take to be seen; what rested waits from the stand-down's end."""
    stood_down_until = state.stood_down_until if incident.lost else 0.0
    return max(state.started_at, incident.present_since, stood_down_until) + START_GRACE_S


def _reset_or_rebooted(on: Judging, incident: Incident) -> Incident:
    if incident.rebooted and present_of(on.state, incident, since=0.0) is Present.GOOD:
        return closed(incident, on.now, ClosesKind.REBOOT)
    if incident.row.closes_on.kind is ClosesKind.REBOOT:
        return incident
    for key, at in incident.resets:
        view = find_gpu(on.state, key, key)
        if view is not None and gpu_now(on.state, view, at) is Present.GOOD:
            left = without_gpu(incident, view.gpu_id)
            if left is None:
                return closed(incident, on.now, ClosesKind.RESET)
            incident = replace(left, resets=tuple(r for r in left.resets if r[0] != key))
    if incident.reset_at is None:
        return incident
    if present_of(on.state, incident, since=incident.reset_at) is Present.GOOD:
        return closed(incident, on.now, ClosesKind.RESET)
    return incident


def _repaired(on: Judging, incident: Incident) -> Incident:
    """An operator says it is repaired: believed unless the present contradicts."""
    if incident.first_seen >= on.state.node.repaired_at:
        return incident
    present = present_of(on.state, incident, since=0.0)
    if present is Present.GOOD or (present is Present.UNKNOWN and on.state.view_source is None):
        return closed(incident, on.now, ClosesKind.HUMAN)
    return incident
