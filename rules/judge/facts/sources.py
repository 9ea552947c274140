"""Take changes of data sources, failed calls, driver events, release requests and host facts.

The loss of a data source is never a GPU failure and opens no incident.
"""

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from rules.api import names
from rules.api.health import MigInstance
from rules.catalog import reasons
from rules.catalog.thresholds import Threshold
from rules.catalog.xid import RECOVERY_ACTION_XID, reason_for_xid
from rules.judge import closing, recording
from rules.judge import observation as facts
from rules.judge.facts import host, network, presence, standing
from rules.judge.facts.standing import Check, CheckResult
from rules.judge.incident import Finding, GpuId
from rules.judge.memory import Latch
from rules.judge.state import (
    START_GRACE_S,
    Judging,
    NodeState,
    SourceView,
    StandDown,
    find_gpu,
    identify,
)

PRINTED_WITHIN_S: Final = 30.0
"""The line of an event is read by then: syslog(2) is read every 15 s. Source: gpuward."""
_MAX_UNPRINTED: Final = 64
RECORDS_LOST_S: Final = 120.0
"""How long after a loss of kernel records other sources of Xids count: an exporter's page is as
late as its collection interval, 30 s by default, and two polls. Source: dcgm-exporter."""

LONGEST_STAND_DOWN_S: Final = 2 * 3600.0
"""The longest release of the GPUs on request. Source: gpuward."""

STARTING: Final = "Starting"
DRIVER_ABSENT: Final = "DriverAbsent"

# NVML return codes. Source: NVML reference.
CODE_LOST: Final = 15
CODE_RESET_REQUIRED: Final = 16

_CODE_NAMES: Final = {
    11: "NVML_ERROR_IRQ_ISSUE",
    14: "NVML_ERROR_CORRUPTED_INFOROM",
    CODE_LOST: "NVML_ERROR_GPU_IS_LOST",
    CODE_RESET_REQUIRED: "NVML_ERROR_RESET_REQUIRED",
}
_REASON_OF_CODE: Final = {11: "GPUIRQIssue", 14: "InfoRomCorrupt"}
"""The reason of a code for a GPU that still answers."""

_DRIVER_CODES: Final = {
    4: "NoAccess",
    9: DRIVER_ABSENT,
    12: DRIVER_ABSENT,
    17: "NoAccess",
    18: "DriverMismatch",
    999: DRIVER_ABSENT,
}
"""The reason of a code for the driver."""

_INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"


def change_source(on: Judging, seen: facts.SourceChanged) -> Judging:
    """Take the state that a collector reports.

    A collector that starts after an agent restart keeps its restored state for a grace period, so
    that a rollout of the agent turns no node to Unknown.
    """
    old = on.state.sources.get(seen.source)
    if (
        old is not None
        and seen.state is facts.SourceState.DOWN
        and seen.reason == STARTING
        and seen.source in on.state.restored_sources
        and on.now < on.state.started_at + START_GRACE_S
    ):
        return on
    back = seen.source is facts.SourceName.NVML and seen.state is facts.SourceState.UP
    if back and old is not None and old.state is not facts.SourceState.UP:
        # The driver may have been restarted: links that retrain were not down.
        gpus = {
            key: replace(v, checks=closing.without_link_polls(v))
            for key, v in on.state.gpus.items()
        }
        on = on.replace(gpus=gpus)
    since = old.since if old is not None and old.state is seen.state else on.now
    view = SourceView(state=seen.state, reason=seen.reason, since=since)
    return on.replace(
        sources={**on.state.sources, seen.source: view},
        restored_sources=on.state.restored_sources - {seen.source},
    )


def settle_driver(on: Judging) -> Judging:
    """Set NVML without a driver to Absent on a node without GPUs, else to Down.

    The node has no GPU if the PCI bus was scanned, shows no NVIDIA device, and none is expected.
    """
    view = on.state.sources.get(facts.SourceName.NVML)
    if view is None or view.reason != DRIVER_ABSENT:
        return on
    none_here = on.state.pci_at > 0 and not on.state.functions and not on.state.expected.count
    state = facts.SourceState.ABSENT if none_here else facts.SourceState.DOWN
    if view.state is state:
        return on
    settled = SourceView(state=state, reason=DRIVER_ABSENT, since=on.now)
    return on.replace(sources={**on.state.sources, facts.SourceName.NVML: settled})


def expire_restored(on: Judging) -> Judging:
    """Set collectors that did not report within the grace period to Down."""
    if not on.state.restored_sources or on.now < on.state.started_at + START_GRACE_S:
        return on
    down = SourceView(state=facts.SourceState.DOWN, reason=STARTING, since=on.now)
    sources = {
        name: down
        if name in on.state.restored_sources and view.state is facts.SourceState.UP
        else view
        for name, view in on.state.sources.items()
    }
    return on.replace(sources=sources, restored_sources=frozenset())


def judge_failed_call(on: Judging, seen: facts.CallFailed) -> Judging:
    """Take a failed NVML call; its code is about the driver, the GPU or a field."""
    if seen.of_driver and seen.code in _DRIVER_CODES:
        down = facts.SourceChanged(
            at=seen.at,
            source=facts.SourceName.NVML,
            state=facts.SourceState.DOWN,
            reason=_DRIVER_CODES[seen.code],
        )
        return change_source(on, down)
    if not (seen.gpu or seen.pci):
        return on
    gpu_id = identify(on.state, seen.gpu, seen.pci)
    name = _CODE_NAMES.get(seen.code, "NVML_ERROR")
    evidence = f"{seen.call} answered {name} ({seen.code})"
    if seen.code == CODE_LOST:
        return presence.lost_poll(on, gpu_id, evidence, reported_lost=True)
    if seen.code == CODE_RESET_REQUIRED:
        return reset_required(on, gpu_id, evidence)
    reason = _REASON_OF_CODE.get(seen.code)
    if reason is None:
        return on
    finding = Finding(
        at=seen.at,
        row=reasons.REASONS[reason],
        gpu_id=gpu_id,
        source=facts.SourceName.NVML,
        evidence=evidence,
    )
    return recording.record(on, replace(finding, counts=not standing.is_known(on.state, finding)))


_XID_OF_EVENT: Final = {
    facts.EventKind.DOUBLE_BIT_ECC: 48,
    facts.EventKind.SINGLE_BIT_STORM: 92,
    facts.EventKind.DRAM_RETIREMENT: 63,
    facts.EventKind.DRAM_RETIREMENT_FAILURE: 64,
    facts.EventKind.NON_FATAL_POISON: 94,
    facts.EventKind.FATAL_POISON: 95,
}
"""The Xid that the driver prints for the same event."""


def judge_event(on: Judging, event: facts.GpuEvent) -> Judging:
    """Take one event of the driver: a hint to poll the GPU now, or the number of an Xid.

    If the kernel log is read, its line has more details, so the event counts only if no line comes
    within `PRINTED_WITHIN_S`. A GPU Operational Event counts only if neither a line nor another
    event reports its Xid by then.
    """
    gpu_id = identify(on.state, event.gpu, event.pci)
    if event.kind is facts.EventKind.RECOVERY_ACTION:
        return hint_to_poll(on, gpu_id)
    if event.kind is facts.EventKind.GPU_UNAVAILABLE:
        return on if on.state.standing_down else hint_to_poll(on, gpu_id, unavailable=True)
    structured = event.kind is facts.EventKind.OPERATIONAL
    if structured and not event.data:
        return _judge_without_xid(on, event, gpu_id)
    of_kind = _XID_OF_EVENT.get(event.kind)
    xid = event.data if event.kind is facts.EventKind.XID or structured else of_kind
    if xid is None or not 0 < xid < 1 << 16:
        return on
    if xid == RECOVERY_ACTION_XID:
        on = hint_to_poll(on, gpu_id)
    named = event.gi is not None or event.ci is not None
    finding = Finding(
        at=event.at,
        row=reason_for_xid(xid, driver=on.state.branch),
        gpu_id=gpu_id,
        xid=xid,
        source=facts.SourceName.NVML,
        evidence=f"NVML event: {event.kind.value} {event.data} {event.detail}".rstrip(),
        mig=MigInstance(gi=event.gi, ci=event.ci) if named else None,
        counts=of_kind is None,  # the driver pushes the Xid, too
    )
    if not log_is_complete(on) and not structured:
        return recording.record(on, finding)
    if structured and (
        is_reported(on.state, finding)
        or any((f.gpu_id, f.xid) == (gpu_id, xid) for f in on.state.unprinted)
    ):
        return on
    unprinted = (*on.state.unprinted, finding)[-_MAX_UNPRINTED:]
    return on.replace(unprinted=unprinted)


def _judge_without_xid(on: Judging, event: facts.GpuEvent, gpu_id: GpuId) -> Judging:
    """Record a GPU Operational Event without an Xid; readings show whether the GPU is at fault."""
    finding = Finding(
        at=event.at,
        row=reasons.REASONS["GPUOperationalEvent"],
        gpu_id=gpu_id,
        source=facts.SourceName.NVML,
        evidence=f"NVML event: {event.kind.value} {event.detail}",
    )
    return recording.record(on, finding)


def judge_unprinted(on: Judging) -> Judging:
    """Record the Xids of events without a kernel line in time; a rate limit may drop lines."""
    # An event in the future is from before the clock was set back.
    due = [f for f in on.state.unprinted if not f.at <= on.now < f.at + PRINTED_WITHIN_S]
    if not due:
        return on
    left = tuple(f for f in on.state.unprinted if f not in due)
    on = on.replace(unprinted=left)
    for finding in due:
        if not is_reported(on.state, finding):
            on = recording.record(on, finding)
    return on


def is_reported(state: NodeState, finding: Finding) -> bool:
    """Return whether an incident has the same Xid of the same GPU already."""
    return any(
        incident.concerns(finding.gpu_id)
        and finding.xid in incident.xids
        and abs(finding.at - incident.last_seen) <= RECORDS_LOST_S
        for incident in state.incidents
    )


def log_is_complete(on: Judging) -> bool:
    """Return whether the kernel log has shown, or will show, every Xid of the last minutes."""
    lost_at = on.state.records_lost_at
    complete = lost_at is None or abs(on.now - lost_at) > RECORDS_LOST_S
    return on.state.source(facts.SourceName.KERNEL_LOG) is facts.SourceState.UP and complete


def hint_to_poll(on: Judging, gpu_id: GpuId, *, unavailable: bool = False) -> Judging:
    """Make the next poll of this GPU count at once, because the driver reported a change."""
    view = find_gpu(on.state, *gpu_id)
    if view is None:
        return on
    lost_at = on.now if unavailable else view.unavailable_at
    return on.with_gpu(replace(view, reported_at=on.now, unavailable_at=lost_at))


def _asks_for_reset(evidence: str, _: Threshold) -> CheckResult:
    return standing.flag(bool(evidence), evidence)


RESET_REQUIRED: Final = "GPUResetRequired"
_RESET_REQUIRED: Final = Check(
    reason=RESET_REQUIRED,
    measure=_asks_for_reset,
    memory=Latch,
    counts=True,
    renews=True,
)


def reset_required(on: Judging, gpu_id: GpuId, evidence: str) -> Judging:
    """Take whether the GPU requires a reset: `evidence` that it does, or empty."""
    view = find_gpu(on.state, *gpu_id)
    if view is None:
        return on
    raised = standing.is_raised(on.state, RESET_REQUIRED, view)
    on = standing.judge_checks(on, (_RESET_REQUIRED,), evidence, facts.SourceName.NVML, view)
    ended = raised and not evidence  # only a reset ends that state
    return closing.note_reset(on, view.gpu_id) if ended else on


def take_node(on: Judging, seen: facts.NodeSeen) -> Judging:
    """Take the labels and annotations of the Node."""
    notes = seen.annotations
    node = replace(
        on.state.node,
        name=seen.name or on.state.node.name,
        uid=seen.uid,
        instance_type=seen.labels.get(_INSTANCE_TYPE, ""),
        expected_annotation=notes.get(names.ANNOTATION_EXPECTED_GPUS, "")[:64],
        shared_fabric=notes.get(names.ANNOTATION_FABRIC_MODE, "") == names.FABRIC_SHARED,
        repaired=notes.get(names.ANNOTATION_REPAIRED, "")[:256],
    )
    on = on.replace(node=node)
    asked = wants_release(seen.labels, notes)
    if not asked:
        ends_now = (
            replace(on.state, stood_down_until=on.now) if on.state.standing_down else on.state
        )
        return on.then(replace(ends_now, stand_down=None))
    if on.state.stand_down is not None:
        return on.replace(stand_down=replace(on.state.stand_down, reason=asked))
    released = on.state.sources.get(facts.SourceName.NVML)
    since = on.now
    if released is not None and released.state is facts.SourceState.RELEASED and released.since:
        since = min(on.now, released.since)
    return on.replace(stand_down=StandDown(reason=asked, since=since))


def wants_release(labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
    """Return the reason of a request to release the GPUs; empty without a request."""
    if names.ANNOTATION_RELEASE_GPU in annotations:
        return "ReleaseRequested"
    if labels.get(names.LABEL_DRIVER_UPGRADE) in names.DRIVER_UPGRADING:
        return "DriverUpgrade"
    if labels.get(names.LABEL_MIG_STATE) in names.MIG_CHANGING:
        return "MIGChange"
    paused = any(
        name.startswith(names.PREFIX_GPU_DEPLOY) and value.startswith(names.PAUSED)
        for name, value in labels.items()
    )
    return "OperatorPause" if paused else ""


def expire_stand_down(on: Judging) -> Judging:
    """Expire a release of the GPUs that lasted too long."""
    stand_down = on.state.stand_down
    if stand_down is None or stand_down.expired:
        return on
    if on.now < stand_down.since:  # the clock was set back: count from now
        return on.replace(stand_down=replace(stand_down, since=on.now))
    if on.now < stand_down.since + LONGEST_STAND_DOWN_S:
        return on
    return on.replace(stand_down=replace(stand_down, expired=True), stood_down_until=on.now)


def take_host(on: Judging, seen: facts.HostSeen) -> Judging:
    """Take facts about the host: boot and hardware, network ports, driver tasks, services."""
    node = replace(
        on.state.node,
        booted_at=seen.booted_at or on.state.node.booted_at,
        product_uuid=seen.product_uuid or on.state.node.product_uuid,
        cpu_numa_nodes=seen.cpu_numa_nodes or on.state.node.cpu_numa_nodes,
    )
    on = on.replace(node=node)
    on = network.judge_ports(on, seen)
    on = host.end_hung_tasks(on)
    return host.judge_services(on, seen)
