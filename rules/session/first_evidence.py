"""Evidence that a session records when it opens, because it must outlive the node."""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from rules.api.health import HealthStatus, IncidentStatus, plain
from rules.api.nodes import HealthView
from rules.api.quarantine import Cause, RepairGpu
from rules.session import causes

EVIDENCE_INVENTORY: Final = "inventory"
"""In `status.evidence`: the GPUs of the node when the session opened."""
_MAX_GPUS: Final = 64


def evidence_of(
    health: HealthView | None,
    opened_by: Iterable[Cause],
    external: Iterable[IncidentStatus],
) -> dict[str, object]:
    """Return the evidence of a session: data of health status and external findings that must
    outlive the node.
    """
    others = tuple(external)
    if health is None and not others:
        return {}
    status = health.status if health is not None else HealthStatus()
    ids = {cause.incident for cause in opened_by if cause.incident}
    incidents = [each for each in (*causes.of_agent(health), *others) if each.id in ids][:8]
    return {
        "observedAt": status.observed_at,
        "driverVersion": status.driver_version,
        "agentVersion": status.agent_version,
        "rulesVersion": status.rules_version,
        "gpus": sorted({uuid for incident in incidents for uuid in incident.gpus})[:16],
        "incidents": [
            {
                "id": incident.id,
                "reason": incident.reason,
                "severity": incident.severity,
                "firstSeen": incident.first_seen,
                "gpus": list(incident.gpus[:16]),
                "recommendedAction": incident.recommended_action,
                "evidence": [line[:512] for line in incident.evidence[:5]],
            }
            for incident in incidents
        ],
        EVIDENCE_INVENTORY: [
            plain(RepairGpu(uuid=gpu.uuid[:96], serial=gpu.serial[:64]))
            for gpu in status.gpus[:_MAX_GPUS]
            if gpu.uuid
        ],
    }


def kept_inventory(evidence: Mapping[str, object]) -> tuple[RepairGpu, ...]:
    """Return the GPUs of the node when the session opened; () if that is not recorded."""
    try:
        found = msgspec.convert(evidence.get(EVIDENCE_INVENTORY) or (), tuple[RepairGpu, ...])
    except (msgspec.ValidationError, RecursionError):
        return ()
    return found[:_MAX_GPUS]
