"""Close incidents: after silence, a reset, a reboot, a good state, a reported repair, or when the
GPU has left the node.

Evidence of a repair closes an incident only when a later poll finds the GPU healthy. Without data
an incident stays open.
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
"""States that are not compared over a reboot: a good GPU after a reboot closes them."""
NOT_CONFIRMED: Final = "NotConfirmed"
GPU_LEFT: Final = "GPULeft"
LINKS_DOWN: Final = "NVLinkDown"


def note_reset(
    on: Judging, gpu_id: GpuId = NO_GPU_ID, since: float | None = None, slack_s: float = 0.0
) -> Judging:
    """Record evidence of a reset of one GPU, or of all if none is named.

    Counters start again and pending work is done. `since` is the time of a reset in the past,
    which does not repair later faults. `slack_s` is how far its clock may be behind if it is known
    to follow everything that an earlier agent saw.
    """
    everything = not any(gpu_id)
    hit = find_gpu(on.state, *gpu_id) if not everything else None
    gpus = {
        key: replace(
            view,
            reset_pending=False,
            reset_at=max(view.reset_at, on.now if since is None else since),
            counters={},
            checks=without_link_polls(view),
        )
        if everything or view is hit
        else view
        for key, view in on.state.gpus.items()
    }

    def with_reset(incident: Incident) -> Incident:
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

    return on.replace(gpus=gpus, incidents=tuple(map(with_reset, on.state.incidents)))


def without_link_polls(view: GpuView) -> Checks:
    """Return the checks without polls of links before a reset: links that retrain are not down."""
    return {
        key: memory for key, memory in view.checks.items() if memory.raised or key != LINKS_DOWN
    }


def note_reboot(state: NodeState) -> NodeState:
    """Record that the node rebooted since the active incidents were seen.

    All current readings in this state must be from the new boot.
    """
    return replace(
        state,
        incidents=tuple(
            replace(incident, rebooted=True) if incident.active else incident
            for incident in state.incidents
        ),
    )


def close_what_ended(on: Judging) -> Judging:
    """Apply time and evidence to every active incident, and close those that ended."""
    if not any(incident.active for incident in on.state.incidents):
        return on
    incidents = tuple(
        _aged(on, incident) if incident.active else incident for incident in on.state.incidents
    )
    # Unchanged incidents stay the same object, so later steps skip them.
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
        return _confirmed(on, incident)
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
    """Return whether its GPU left the node, after a reboot or a reported repair, and none is
    missing. Such an incident would otherwise never close.

    Within the boot of the fault the line proves that the GPU was here, whatever the count is.
    """
    repaired = incident.first_seen < on.state.node.repaired_at
    over = repaired or (incident.rebooted and incident.row.closes_on.kind is not ClosesKind.HUMAN)
    if not over or recording.rests(on.state, incident):
        return False
    return present_of(on.state, incident, since=0.0) is Present.LEFT


def _confirmed(on: Judging, incident: Incident) -> Incident:
    """Return an incident that needs current data: confirmed, closed, or still waiting.

    Good data does not close a fault that this agent saw: after many faults a GPU reads good.
    """
    if recording.rests(on.state, incident):
        return recording.settle(on, incident)
    # GPUs may be removed while they are released: only later polls count.
    rested_until = on.state.stood_down_until if incident.lost else 0.0
    since = max(incident.present_since, rested_until)
    present = present_of(on.state, incident, since=since)
    if present is Present.GOOD and not incident.cut and since < incident.last_seen <= on.now:
        # A poll before the fault does not clear it: the line may be a few seconds old.
        present = present_of(on.state, incident, since=incident.last_seen)
    if incident.cut and SourceName.KERNEL_LOG in on.state.restored_sources:
        present = Present.UNKNOWN  # the rest of it is in a log that is not read yet
    if present is Present.GOOD and _only_pci_data(on.state, incident):
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


def _only_pci_data(state: NodeState, incident: Incident) -> bool:
    """Return whether only the PCI bus shows that the GPU of a past fault is good.

    Faulty GPUs often still answer there. After a reset or reboot it is enough.
    """
    repaired = incident.rebooted or incident.reset_at is not None
    of_the_past = not incident.present_since and not incident.cut
    return state.view_source is None and of_the_past and not repaired


def _no_data(on: Judging, incident: Incident) -> bool:
    """Return whether to stop waiting for the data source that reads the GPUs."""
    source = on.state.view_source
    reported = on.state.source(source) if source else SourceState.ABSENT
    grace_over = on.now >= grace_end(on.state, incident)
    released = reported is SourceState.RELEASED and not incident.lost  # a lost GPU waits for it
    return grace_over or released or reported in (SourceState.DOWN, SourceState.ABSENT)


def grace_end(state: NodeState, incident: Incident) -> float:
    """Return when to stop waiting for current data; a lost GPU waits from the stand-down's end."""
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
    """Close what an operator reported as repaired, unless current data shows it bad."""
    if incident.first_seen >= on.state.node.repaired_at:
        return incident
    present = present_of(on.state, incident, since=0.0)
    if present is Present.GOOD or (present is Present.UNKNOWN and on.state.view_source is None):
        return closed(incident, on.now, ClosesKind.HUMAN)
    return incident
