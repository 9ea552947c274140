"""Restore the agent's state from the node's GPUNodeHealth; the agent stores nothing on the host.

Called once at start. Incidents keep their IDs and stay open. Readings of an earlier agent count
only until the first poll of this one.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from rules.api import health, timestamps
from rules.api.health import GpuStatus, HealthStatus
from rules.catalog import signals
from rules.catalog.reason import Action, ClosesKind, Level, Reason, ReasonClass
from rules.catalog.reasons import HOST_SIGNAL, REASONS, RECOVERY_REASONS, recovery_action_of
from rules.catalog.thresholds import DEFAULT_RULES, Thresholds
from rules.catalog.xid import ANSWERED_XIDS, RECOVERY_ACTION_XID, reason_for_line, reason_for_xid
from rules.judge import closing, expected_gpus, wire
from rules.judge.burst import being_judged
from rules.judge.facts import dcgm, presence, sources
from rules.judge.incident import (
    NO_GPU_ID,
    REASON_LOST,
    GpuId,
    Incident,
    IncidentPhase,
    Member,
    Scope,
)
from rules.judge.memory import Gauge, Latch
from rules.judge.observation import GpuSeen, Service, SourceName, SourceState, TopologySeen
from rules.judge.state import (
    MAX_GPUS,
    MAX_PORT_CHARS,
    Checks,
    GpuView,
    NodeState,
    PortView,
    ServiceView,
    SourceView,
    StandDown,
    initial,
)
from rules.judge.topology import Interconnect
from rules.kernel_log import parse
from rules.kernel_log.record import KernelLine
from rules.text import pci_address

_NOT_BY_NUMBER: Final = frozenset({13, 74, 94, 95, *range(144, 151), RECOVERY_ACTION_XID})
"""The Xids for which the line, not the number alone, determines the row."""

_LINKS: Final = re.compile(r"NV(\d{1,3})")


def restore(
    status: HealthStatus,
    now: float,
    *,
    boot_id: str,
    node_uid: str = "",
    configured: int | None = None,
    node_name: str = "",
    thresholds: Thresholds = DEFAULT_RULES,
) -> NodeState:
    """Return the state restored from `status`, in the current boot, by the rules in force.

    A status of another machine under the same name (another node UID and another boot) is ignored.
    """
    fresh = initial(now, boot_id=boot_id, configured=configured, node_name=node_name)
    same_boot = status.boot_id == boot_id
    if node_uid and status.node_uid and status.node_uid != node_uid and not same_boot:
        return fresh
    branch = signals.driver_branch(status.driver_version)
    observed_at = _time(status.observed_at, now)
    incidents = tuple(
        _restored(incident, now, observed_at, branch, thresholds)
        for incident in _incidents(status, now)
    )
    state = replace(
        fresh,
        node=replace(fresh.node, uid=node_uid or status.node_uid),
        driver=status.driver_version,
        virtualization=status.virtualization,
        learned=expected_gpus.learned_from(status.expected_gpus),
        address_uuids={
            pci_address.plain_address(gpu.pci): gpu.uuid
            for gpu in status.gpus[:MAX_GPUS]
            if gpu.pci and gpu.uuid
        },
        bridges=_shown(status),
        topology=_topology(status),
        published_topology=status.topology,
        stand_down=_stand_down(status, now),
        incidents=incidents,
        ledger=wire.ledger_from_wire(status.ledger),
        dropped=max(0, status.dropped),
    )
    if not same_boot:
        state = replace(state, before_boot=_before_boot(status))
        return closing.note_reboot(state) if status.boot_id else state
    state = replace(
        state,
        cursor_boot=status.cursor.boot_id,
        cursor_seq=status.cursor.kmsg_seq,
        sources=_sources(status, now),
        gpus=_gpus(status, incidents),
        dcgm_changed_at=0.0 if _was_frozen(status) else None,
        missing=Gauge(raised=_node_misses(incidents)),
        checks=_standing(i for i in incidents if i.row.closes_on.signal == HOST_SIGNAL),
        services={
            service: ServiceView(ran=True)
            for service in Service
            if service.value in status.seen_running
        },
        ports={
            name[:MAX_PORT_CHARS]: PortView(was_active=True)
            for name in status.seen_running[: health.MAX_SEEN_RUNNING]
            if name not in list(Service)
        },
    )
    up = frozenset(n for n, view in state.sources.items() if view.state is SourceState.UP)
    return replace(state, restored_sources=up)


def _incidents(status: HealthStatus, now: float) -> tuple[Incident, ...]:
    by_id = {incident.id: wire.from_wire(incident, now) for incident in status.incidents[:64]}
    return tuple(incident for key, incident in by_id.items() if key)


def _restored(
    incident: Incident, now: float, observed_at: float, branch: int | None, thresholds: Thresholds
) -> Incident:
    """Return a published incident; one that was not fully assessed waits for current data.

    A burst that was published before it was complete was interrupted by the end of that agent, or
    of an earlier one.
    """
    xid = incident.members[0].xid
    full = REASONS.get(incident.row.reason) if xid is None else reason_for_xid(xid)
    if not incident.active or full is None or incident.row.closes_on.kind is ClosesKind.SILENCE:
        return incident
    full = replace(full, reason=incident.row.reason)
    unjudged = (
        full.severity > incident.row.severity
        and incident.row.level is Level.REPORT
        and incident.row.action in (Action.NONE, full.action)
    )
    if not unjudged:
        return incident
    burst = _cut_burst(incident, full, observed_at, branch, thresholds)
    return replace(
        incident,
        phase=IncidentPhase.PRESENT,
        members=burst or (replace(incident.members[0], row=full),),
        row=being_judged(full),
        touched_at=now,
        cut=bool(burst),
    )


def _cut_burst(
    incident: Incident,
    full: Reason,
    observed_at: float,
    branch: int | None,
    thresholds: Thresholds,
) -> tuple[Member, ...]:
    """Return the members of a burst that the end of an agent interrupted; else none.

    None also if a line that determines the row was not kept.
    """
    grouping_s = thresholds["IncidentGrouping"].value
    if not ANSWERED_XIDS.isdisjoint(incident.xids):
        grouping_s = thresholds["AnswerDelay"].value
    going_on = incident.cut or abs(observed_at - incident.first_seen) <= grouping_s
    if full.klass is not ReasonClass.NEEDS_CONTEXT or not incident.xids or not going_on:
        return ()
    lines = {line.xid: line for line in map(_line, incident.evidence) if line is not None}
    members = []
    for xid in incident.xids:
        line = lines.get(xid)
        if line is None and xid in _NOT_BY_NUMBER:
            return ()
        known = reason_for_xid(xid, driver=branch)
        row = known if line is None else reason_for_line(line, branch)
        members.append(Member(row, xid, line.asks if line is not None else None))
    return tuple(members)


def _line(evidence: str) -> KernelLine | None:
    line = parse.parse_message(evidence.encode())
    return line if line is not None and line.xid is not None else None


def _sources(status: HealthStatus, now: float) -> dict[SourceName, SourceView]:
    names, states = list(SourceName), list(SourceState)
    return {
        SourceName(source.name): SourceView(
            state=SourceState(source.state),
            reason=source.reason[:63],
            since=_time(source.since, now),
        )
        for source in status.sources
        if source.name in names and source.state in states
    }


def _was_frozen(status: HealthStatus) -> bool:
    return any(s.name == SourceName.DCGM and s.reason == dcgm.FROZEN for s in status.sources)


def _stand_down(status: HealthStatus, now: float) -> StandDown | None:
    """Return the published release of the GPUs; it lasts until the Node's request is read."""
    nvml = _sources(status, now).get(SourceName.NVML)
    if nvml is None or nvml.state is not SourceState.RELEASED:
        return None
    return StandDown(reason=nvml.reason or nvml.state.value, since=nvml.since)


def _gpus(status: HealthStatus, incidents: tuple[Incident, ...]) -> dict[str, GpuView]:
    views = {}
    for gpu in status.gpus[:MAX_GPUS]:
        view = _view(gpu, incidents)
        if key := view.seen.uuid or view.pci:
            views[key] = view
    return views


def _before_boot(status: HealthStatus) -> dict[str, GpuSeen]:
    """Return the GPU at each address before the boot; indices may change at each boot."""
    return {
        pci_address.plain_address(gpu.pci): replace(_seen(gpu), index=-1)
        for gpu in status.gpus[:MAX_GPUS]
        if gpu.pci and gpu.uuid
    }


def _shown(status: HealthStatus) -> dict[str, tuple[str, ...]]:
    """Return the addresses of published GPUs, without bridges until the first bus scan."""
    return {pci_address.plain_address(gpu.pci): () for gpu in status.gpus[:MAX_GPUS] if gpu.pci}


def _seen(gpu: GpuStatus) -> GpuSeen:
    return GpuSeen(
        uuid=gpu.uuid,
        index=gpu.index,
        pci=gpu.pci,
        serial=gpu.serial,
        product=gpu.product,
        board=gpu.board,
        vbios=gpu.vbios,
        module_id=gpu.module_id,
        mig_mode={"Enabled": True, "Disabled": False}.get(gpu.mig_mode),
    )


def _view(gpu: GpuStatus, incidents: tuple[Incident, ...]) -> GpuView:
    address = pci_address.plain_address(gpu.pci) if gpu.pci else ""
    mine = [i for i in incidents if _is_bad(i) and i.concerns(GpuId(gpu.uuid, address))]
    missed = next((i for i in mine if i.row.reason in (presence.MISMATCH, REASON_LOST)), None)
    return GpuView(
        seen=_seen(gpu),
        enumerated=gpu.health != "Unknown",
        action=_action_asked(mine) or recovery_action_of(gpu.recovery_action),
        reset_pending=gpu.reset_pending,
        reset_at=timestamps.parse_time(gpu.reset_at) or 0.0,
        lost=Gauge(raised=missed is not None),
        lost_at=missed.last_seen if missed is not None else 0.0,
        lost_since=missed.first_seen if missed is not None else 0.0,
        checks=_standing(mine),
    )


def _action_asked(mine: list[Incident]) -> int | None:
    """Return the recovery action of an active incident; a poll without one will close it."""
    reasons = (i.row.reason for i in mine if i.row.reason in RECOVERY_REASONS)
    return next(map(recovery_action_of, reasons), None)


def _is_bad(incident: Incident) -> bool:
    """Return whether it is active and not only kept open because it ended too often."""
    return incident.active and incident.held_at is None


def _node_misses(incidents: tuple[Incident, ...]) -> bool:
    return any(
        _is_bad(i)
        and i.row.reason == presence.MISMATCH
        and i.scope is Scope.NODE
        and i.concerns(NO_GPU_ID)
        for i in incidents
    )


def _standing(incidents: Iterable[Incident]) -> Checks:
    """Return the memory of raised checks; they clear after enough good polls."""
    return {
        i.row.reason: Latch(raised=True, seen=True) if _is_flag(i) else Gauge(raised=True)
        for i in incidents
        if _is_bad(i) and (_is_flag(i) or i.row.closes_on.kind is ClosesKind.STATE)
    }


def _is_flag(incident: Incident) -> bool:
    return incident.row.klass is ReasonClass.LATCH or incident.row.reason == sources.RESET_REQUIRED


def _topology(status: HealthStatus) -> TopologySeen | None:
    """Return the published topology, so that a link that failed meanwhile is still expected."""
    rows = [line.split("\t") for line in status.topology.links.split("\n")[1:]]
    uuids = _by_index(status.gpus)
    if len(rows) < 2 or len(rows) != len(uuids) or any(len(r) != len(rows) + 1 for r in rows):
        return None
    links = tuple(tuple(row[1:]) for row in rows)
    switched = status.topology.interconnect == Interconnect.NVSWITCH
    remotes = tuple(_remotes(row, switched=switched) for row in links)
    cluster, _, clique = status.topology.nvlink_domain.rpartition(".")
    known = cluster and clique.isdecimal() and len(clique) < 10
    return TopologySeen(
        at=0.0,
        gpus=tuple(uuids[index] for index in sorted(uuids)),
        links=links,
        remotes=remotes,
        clusters=(cluster,) * len(rows) if known else (),
        cliques=(int(clique),) * len(rows) if known else (),
        numa=(),
    )


def _remotes(row: tuple[str, ...], *, switched: bool) -> tuple[str, ...]:
    counts = [int(found[1]) for cell in row if (found := _LINKS.fullmatch(cell))]
    total = max(counts, default=0) if switched else sum(counts)
    return ("switch" if switched else "gpu",) * min(total, 64)


def _by_index(gpus: tuple[GpuStatus, ...]) -> Mapping[int, str]:
    return {gpu.index: gpu.uuid for gpu in gpus if gpu.index >= 0 and gpu.uuid}


def _time(text: str, otherwise: float) -> float:
    at = timestamps.parse_time(text)
    return otherwise if at is None else min(at, otherwise)
