"""The wire form of a scripted verdict: a fault's row, an incident, a status, a node patch.

`fleet_health` sends what this builds. Pure. Rows say what a fault is published as; the rules
that would have found it are the agent's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from hack.sim.cluster.clients.client import Object
from hack.sim.cluster.controllers.timestamps import stamp, stamp_micro
from rules.api.health import (
    ExpectedGpus,
    GpuStatus,
    HealthStatus,
    IncidentStatus,
    PublisherPod,
    SourceStatus,
    Topology,
)
from rules.api.names import (
    CONDITION_DEGRADED,
    CONDITION_HEALTHY,
    LABEL_DRIVER,
    LABEL_GPUS,
    LABEL_GPUS_HEALTHY,
    LABEL_HEALTH,
    LABEL_INTERCONNECT,
    LABEL_PRODUCT,
)
from rules.catalog.reason import Action, Level, ReasonClass, Severity

DRIVER = "580.95.05"
RULES_VERSION = "scripted"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """What an agent knows of its node before it looks at a GPU."""

    name: str
    uid: str
    boot_id: str
    gpus: int
    product: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault as the agent would publish it; `gpu` is the index, None for the whole node."""

    reason: str
    severity: Severity = Severity.FATAL
    level: Level = Level.DRAIN
    klass: ReasonClass = ReasonClass.DECISIVE
    action: Action = Action.RESTART_NODE
    closes_on: str = "Reboot"
    gpu: int | None = 0
    xids: tuple[int, ...] = ()
    evidence: str = ""


XID_79 = Fault(
    reason="Xid79GPUFallenOffBus",
    xids=(79,),
    gpu=3,
    evidence="NVRM: Xid (PCI:0000:4e:00): 79, pid='<unknown>', GPU has fallen off the bus.",
)


def gpu_uuid(node: str, index: int) -> str:
    """The UUID of a node's GPU: the same in every boot."""
    digest = hashlib.sha256(f"{node}/{index}".encode()).hexdigest()
    return f"GPU-{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}"


def pci_address(index: int) -> str:
    """The PCI address of the GPU of that index."""
    return f"0000:{0x1B + index * 0x11 & 0xFF:02x}:00"


def incident_of(fault: Fault, facts: NodeFacts, now: datetime, number: int) -> IncidentStatus:
    """The incident that opens with the fault; `number` tells it from others of the node."""
    identity = f"{facts.uid}/{fault.reason}/{facts.boot_id}/{number}"
    on_gpu = fault.gpu is not None
    return IncidentStatus(
        id=hashlib.sha256(identity.encode()).hexdigest()[:16],
        reason=fault.reason,
        klass=str(fault.klass),
        severity=str(fault.severity),
        level=str(fault.level),
        recommended_action=str(fault.action),
        scope="GPU" if on_gpu else "Node",
        gpus=(gpu_uuid(facts.name, fault.gpu),) if fault.gpu is not None else (),
        pci=(pci_address(fault.gpu),) if fault.gpu is not None else (),
        xids=fault.xids,
        sources=("kmsg",) if fault.xids else ("nvml",),
        active=True,
        first_seen=stamp_micro(now),
        last_seen=stamp_micro(now),
        closes_on=fault.closes_on,
        evidence=(fault.evidence,) if fault.evidence else (),
    )


def health_status(
    facts: NodeFacts,
    incidents: Sequence[IncidentStatus],
    now: datetime,
    *,
    blind: bool = False,
    publisher: PublisherPod | None = None,
) -> HealthStatus:
    """The verdict that the active incidents make: Unhealthy, Unknown, Degraded, Healthy.

    Without a publishing pod it carries a heartbeat of now.
    """
    active = [incident for incident in incidents if incident.active]
    fatal = [incident for incident in active if incident.severity == Severity.FATAL]
    degraded = [incident for incident in active if incident.severity == Severity.DEGRADED]
    first = next(iter(fatal or degraded), None)
    if fatal:
        health = "Unhealthy"
    elif blind:
        health = "Unknown"
    else:
        health = "Degraded" if degraded else "Healthy"
    sick = {uuid for incident in fatal for uuid in incident.gpus}
    gpus = tuple(
        GpuStatus(
            uuid=gpu_uuid(facts.name, index),
            index=index,
            pci=pci_address(index),
            product=facts.product,
            health="Unhealthy" if gpu_uuid(facts.name, index) in sick else "Healthy",
        )
        for index in range(facts.gpus)
    )
    reason = first.reason if first else ("SourceDown" if blind else "AllChecksPassing")
    return HealthStatus(
        publisher=publisher or PublisherPod(heartbeat=stamp(now)),
        node_uid=facts.uid,
        boot_id=facts.boot_id,
        observed_at=stamp(now),
        agent_version="scripted",
        rules_version=RULES_VERSION,
        driver_version=DRIVER,
        health=health,
        reason=reason,
        message=_message(health, first),
        gpus_healthy=f"{facts.gpus - len(sick)}/{facts.gpus}",
        expected_gpus=ExpectedGpus(count=facts.gpus, source="Configured"),
        sources=(SourceStatus(name="nvml", state="Down" if blind else "Up", since=stamp(now)),),
        gpus=gpus,
        topology=Topology(interconnect="nvswitch" if facts.gpus > 1 else "single"),
        incidents=tuple(incidents),
    )


def _message(health: str, first: IncidentStatus | None) -> str:
    if first is not None:
        return f"{first.reason} is active; recommended action: {first.recommended_action}."
    return "All checks pass." if health == "Healthy" else "The GPU view is down."


def node_status_patch(
    status: HealthStatus, facts: NodeFacts, now: datetime, before: Mapping[str, Object]
) -> Object:
    """The strategic merge patch of nodes/status by which an agent shows its verdict.

    `before` holds the conditions written last, by type: a condition keeps its transition time
    while its status stays.
    """
    healthy = {"Unhealthy": "False", "Unknown": "Unknown"}.get(status.health, "True")
    degraded = any(
        incident.active and incident.severity == Severity.DEGRADED for incident in status.incidents
    )
    fine = healthy == "True"
    entries = (
        (CONDITION_HEALTHY, healthy, "AllChecksPassing" if fine else status.reason),
        (CONDITION_DEGRADED, str(degraded), status.reason if degraded else "AllChecksPassing"),
    )
    return {
        "metadata": {
            "labels": {
                LABEL_HEALTH: status.health.lower(),
                LABEL_GPUS: str(facts.gpus),
                LABEL_GPUS_HEALTHY: status.gpus_healthy.partition("/")[0],
                LABEL_INTERCONNECT: status.topology.interconnect,
                LABEL_PRODUCT: facts.product,
                LABEL_DRIVER: status.driver_version,
            }
        },
        "status": {
            "conditions": [
                {
                    "type": kind,
                    "status": value,
                    "reason": reason,
                    "message": status.message,
                    "lastHeartbeatTime": stamp(now),
                    "lastTransitionTime": (
                        before[kind]["lastTransitionTime"]
                        if before.get(kind, {}).get("status") == value
                        else stamp(now)
                    ),
                }
                for kind, value, reason in entries
            ]
        },
    }
