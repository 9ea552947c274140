"""Build the GPUNodeHealth status, node conditions and labels, and decide how soon to write them.

The agent calls `publish` after each change and `differs` for its urgency. Strings are cut to the
limits of the CRD and labels are validated. An object over 60 KiB loses the readings first, then
the evidence of closed incidents, the oldest of these, evidence of active ones, and incidents of
severity Info. `dropped` counts the lost incidents.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final

import msgspec

from rules.api import health, names, object_name, timestamps
from rules.api.health import (
    Cursor,
    ExpectedGpus,
    GpuStatus,
    HealthStatus,
    PublisherPod,
    SourceStatus,
    Topology,
)
from rules.api.object_name import RefusedLabel
from rules.catalog import reasons
from rules.judge import health_status, wire
from rules.judge.facts import holders
from rules.judge.health_status import Assessment, GpuAssessment, Health
from rules.judge.incident import in_order
from rules.judge.observation import SourceState
from rules.judge.state import MAX_PORT_CHARS, GpuView, NodeState, SourceView
from rules.judge.topology import describe

MIXED = "mixed"


def labels(
    state: NodeState, judged: Assessment, topology: Topology
) -> tuple[dict[str, str | None], tuple[RefusedLabel, ...]]:
    """Return every label of gpuward with its value (None to remove it), and refused labels."""
    wanted = {names.LABEL_HEALTH: judged.health.value.lower()}
    if judged.gpus_expected:
        wanted[names.LABEL_GPUS] = str(judged.gpus_expected)
        if judged.gpus_healthy is not None:
            wanted[names.LABEL_GPUS_HEALTHY] = str(judged.gpus_healthy)
    facts = {
        names.LABEL_INTERCONNECT: topology.interconnect,
        names.LABEL_NVLINK_DOMAIN: topology.nvlink_domain,
        names.LABEL_NUMA: topology.numa,
        names.LABEL_MIG: mig_label(state),
        names.LABEL_PRODUCT: _product(state),
        names.LABEL_DRIVER: state.driver,
    }
    wanted |= {name: value for name, value in facts.items() if value}
    kept, refused = object_name.checked_labels(wanted)
    return {name: kept.get(name) for name in names.AGENT_LABELS}, refused


def mig_label(state: NodeState) -> str:
    """Return `none`, `mixed` or `all`; empty while no GPU reports its MIG mode."""
    modes = {view.seen.mig_mode for view in state.gpus.values()} - {None}
    if not modes:
        return ""
    if modes == {True}:
        return "all"
    return MIXED if True in modes else "none"


def _product(state: NodeState) -> str:
    products = {view.seen.product for view in state.gpus.values() if view.seen.product}
    if len(products) > 1:
        return MIXED
    return object_name.product_label(products.pop()) if products else ""


SOFT_LIMIT_BYTES: Final = 60 * 1024
"""Below the object's limit, to leave space for metadata and managed fields."""

_FEW_ENTRIES: Final = 16


def fitted(status: HealthStatus, limit: int = SOFT_LIMIT_BYTES) -> HealthStatus:
    """Return the status within `limit` bytes; unchanged if it fits."""
    steps: tuple[Callable[[HealthStatus], HealthStatus], ...] = (
        _without_readings,
        lambda status: _with_lines(status, 1, closed_only=True),
        lambda status: _without_last(status, limit, closed_only=True),
        lambda status: _with_lines(status, 1),
        lambda status: _with_lines(status, 0),
        _without_holders,
        lambda status: msgspec.structs.replace(status, ledger=status.ledger[:_FEW_ENTRIES]),
        lambda status: _without_last(status, limit, closed_only=False),
    )
    for step in steps:
        if len(msgspec.json.encode(status)) <= limit:
            break
        status = step(status)
    return status


def _without_readings(status: HealthStatus) -> HealthStatus:
    if all(gpu.readings is None for gpu in status.gpus):
        return status
    gpus = tuple(
        gpu if gpu.readings is None else msgspec.structs.replace(gpu, readings=None)
        for gpu in status.gpus
    )
    return msgspec.structs.replace(status, gpus=gpus)


def _without_holders(status: HealthStatus) -> HealthStatus:
    known = status.holders
    return msgspec.structs.replace(status, holders=known and holders.incomplete(known, "NoRoom"))


def _with_lines(status: HealthStatus, most: int, *, closed_only: bool = False) -> HealthStatus:
    """Return the status with at most `most` lines of evidence for each incident."""
    incidents = tuple(
        i if closed_only and i.active else msgspec.structs.replace(i, evidence=i.evidence[:most])
        for i in status.incidents
    )
    return msgspec.structs.replace(status, incidents=incidents)


def _without_last(status: HealthStatus, limit: int, *, closed_only: bool) -> HealthStatus:
    """Return the status without incidents from the end (oldest closed, then mildest)."""
    incidents = list(status.incidents)
    excess = len(msgspec.json.encode(status)) - limit
    while incidents and excess > 0 and not (closed_only and incidents[-1].active):
        excess -= len(msgspec.json.encode(incidents.pop())) + 1
    gone = len(status.incidents) - len(incidents)
    return msgspec.structs.replace(
        status, incidents=tuple(incidents), dropped=status.dropped + gone
    )


NOT_DEGRADED: Final = "NotDegraded"
RIDE_ALONG_S: Final = 60.0
"""Counts and times are written at most this often. Source: gpuward, one write a minute."""
NOTED_S: Final = 5.0
"""Additions to an incident (a line of evidence, an Xid, a GPU) are written at most this often.
Source: gpuward."""

_CONDITION_STATUS: Final = {
    Health.UNHEALTHY: "False",
    Health.UNKNOWN: "Unknown",
    Health.DEGRADED: "True",
    Health.HEALTHY: "True",
}
_MIG_MODE: Final = {True: "Enabled", False: "Disabled", None: ""}


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """The publisher: a pod, or an agent outside a pod with a heartbeat at `heartbeat_at`."""

    agent_version: str
    rules_version: str
    pod: str = ""
    pod_uid: str = ""
    heartbeat_at: float | None = None


class PublishedCondition(msgspec.Struct, frozen=True, kw_only=True):
    """A node condition of gpuward; the publisher keeps the transition times."""

    type: str
    status: str
    reason: str
    message: str


class Publication(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is written about the node; labels with None are removed."""

    status: HealthStatus
    conditions: tuple[PublishedCondition, ...]
    labels: Mapping[str, str | None]
    refused: tuple[RefusedLabel, ...] = ()


class Difference(StrEnum):
    """How soon a changed publication must be written."""

    NONE = "None"
    REFRESHED = "Refreshed"
    """Readings and `holders.readAt`: with the next write, which they do not cause."""
    RIDES_ALONG = "RidesAlong"
    """Counts and times: within `RIDE_ALONG_S`."""
    SOON = "Soon"
    """The same health status with changed incidents: within `NOTED_S`."""
    NOW = "Now"


def publish(state: NodeState, judged: Assessment, now: float, identity: Identity) -> Publication:
    """Return everything to write at `now`."""
    topology = _topology(state)
    node_labels, refused = labels(state, judged, topology)
    expected = state.expected
    healthy = judged.gpus_healthy
    heartbeat = identity.heartbeat_at
    suspects = _suspects(state)
    status = HealthStatus(
        publisher=PublisherPod(
            pod=identity.pod[:512],
            pod_uid=identity.pod_uid[:64],
            heartbeat="" if heartbeat is None else timestamps.format_time(heartbeat),
        ),
        node_uid=state.node.uid[:64],
        boot_id=(state.node.boot_id or state.cursor_boot)[:64],
        observed_at=timestamps.format_time(now),
        agent_version=identity.agent_version[:64],
        rules_version=identity.rules_version[:64],
        driver_version=state.driver[:64],
        virtualization=state.virtualization[:32],
        cursor=Cursor(boot_id=state.cursor_boot[:64], kmsg_seq=state.cursor_seq),
        health=judged.health.value,
        reason=judged.reason[:63],
        message=judged.message,
        gpus_healthy="" if healthy is None else f"{healthy}/{judged.gpus_expected}",
        expected_gpus=ExpectedGpus(count=expected.count, source=expected.source[:32]),
        sources=_sources(state, now),
        seen_running=_seen_running(state),
        gpus=tuple(
            _gpu(view, judged.gpus[key], state.branch, with_readings=key in suspects)
            for key, view in sorted(state.gpus.items(), key=lambda item: _position(item[1]))
        ),
        topology=topology,
        incidents=tuple(wire.to_wire(incident) for incident in in_order(state.incidents)),
        ledger=wire.ledger_to_wire(state.ledger),
        dropped=state.dropped,
        holders=holders.published(state, now),
    )
    return Publication(
        status=fitted(status),
        conditions=_conditions(judged),
        labels=node_labels,
        refused=refused,
    )


def differs(old: Publication | None, new: Publication) -> Difference:
    """Return how soon to write `new`; `old` was written last."""
    if old is None:
        return Difference.NOW
    if _urgent(old) != _urgent(new):
        return Difference.NOW
    if _noted(old.status) != _noted(new.status):
        return Difference.SOON
    if _lasting(old.status) != _lasting(new.status) or old.conditions != new.conditions:
        return Difference.RIDES_ALONG
    same = (old.status.gpus, old.status.holders) == (new.status.gpus, new.status.holders)
    return Difference.NONE if same else Difference.REFRESHED


def _lasting(status: HealthStatus) -> HealthStatus:
    """Return the status without fields whose changes need no writes."""
    return msgspec.structs.replace(
        _without_readings(status), observed_at="", cursor=Cursor(), holders=None
    )


def _noted(status: HealthStatus) -> tuple[object, ...]:
    """Return the message, the holders and the incidents without counts and times."""
    return (
        status.message,
        status.holders and msgspec.structs.replace(status.holders, read_at=""),
        tuple(
            msgspec.structs.replace(incident, count=0, last_seen="", held_since="")
            for incident in status.incidents
        ),
    )


def _urgent(publication: Publication) -> tuple[object, ...]:
    """Return the fields to write at once when they change."""
    status = publication.status
    return (
        status.publisher.pod_uid,
        status.node_uid,
        status.boot_id,
        status.agent_version,
        status.rules_version,
        status.driver_version,
        status.health,
        status.reason,
        status.gpus_healthy,
        status.expected_gpus,
        tuple((source.name, source.state, source.reason) for source in status.sources),
        _without_readings(status).gpus,
        status.topology,
        tuple(
            (i.id, i.reason, i.severity, i.level, i.recommended_action, i.active)
            for i in status.incidents
        ),
        tuple((c.type, c.status, c.reason) for c in publication.conditions),
        dict(publication.labels),
    )


def _conditions(judged: Assessment) -> tuple[PublishedCondition, ...]:
    degraded = judged.degraded
    return (
        PublishedCondition(
            type=names.CONDITION_HEALTHY,
            status=_CONDITION_STATUS[judged.health],
            reason=judged.reason
            if judged.health is not Health.HEALTHY
            else health_status.ALL_PASSING,
            message=judged.message,
        ),
        PublishedCondition(
            type=names.CONDITION_DEGRADED,
            status="False" if degraded is None else "True",
            reason=NOT_DEGRADED if degraded is None else degraded.row.reason,
            message=judged.degraded_message,
        ),
    )


def _sources(state: NodeState, now: float) -> tuple[SourceStatus, ...]:
    """Return every data source by name; the GPU data source is Down until its first poll."""
    views = dict(state.sources)
    gpus = state.view_source
    if gpus is not None and (gpus not in views or health_status.not_polled_yet(state, now)):
        views[gpus] = SourceView(
            state=SourceState.DOWN,
            reason=health_status.STARTING,
            since=views[gpus].since if gpus in views else now,
        )
    return tuple(
        SourceStatus(
            name=name.value,
            state=view.state.value,
            reason=view.reason[:63],
            since=timestamps.format_time(view.since),
        )
        for name, view in sorted(views.items())
    )


def _seen_running(state: NodeState) -> tuple[str, ...]:
    """Return services and ports that ran in this boot, so that a later agent can miss them."""
    services = [service.value for service, view in state.services.items() if view.ran]
    ports = [name[:MAX_PORT_CHARS] for name, view in state.ports.items() if view.was_active]
    return tuple(sorted(services) + sorted(ports))[: health.MAX_SEEN_RUNNING]


def _suspects(state: NodeState) -> frozenset[str]:
    """Return the keys of the first 16 GPUs with active incidents, most severe incidents first."""
    found = [
        key
        for incident in in_order(state.incidents)
        if incident.active
        for key, view in state.gpus.items()
        if incident.concerns(view.gpu_id)
    ]
    return frozenset(list(dict.fromkeys(found))[: health.MAX_READ_GPUS])


def _gpu(
    view: GpuView, judged: GpuAssessment, branch: int | None, *, with_readings: bool
) -> GpuStatus:
    seen = view.seen
    return GpuStatus(
        uuid=seen.uuid[:96],
        index=seen.index,
        pci=seen.pci[:16],
        serial=seen.serial[:64],
        product=seen.product[:96],
        board=seen.board[:64],
        vbios=seen.vbios[:64],
        module_id=seen.module_id,
        health=judged.health.value,
        reason=judged.reason[:63],
        recovery_action=reasons.recovery_action_name(view.action, branch),
        reset_pending=view.reset_pending,
        reset_at=timestamps.format_time(view.reset_at) if view.reset_at else "",
        mig_mode=_MIG_MODE[seen.mig_mode],
        readings=wire.readings_to_wire(view) if with_readings else None,
    )


def _topology(state: NodeState) -> Topology:
    """Return the topology; the published one until the driver describes it again."""
    before = state.published_topology
    if state.topology is None or state.topology.at == 0.0:
        return before
    described = describe(state.topology, state.node.cpu_numa_nodes)
    if described.numa or not before.numa:
        return described
    return msgspec.structs.replace(described, numa=before.numa)


def _position(view: GpuView) -> tuple[bool, int, str, str]:
    return view.seen.index < 0, view.seen.index, view.pci, view.seen.uuid
