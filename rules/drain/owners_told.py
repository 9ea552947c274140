"""What the owner of a pod that had to go is told, as an Event in the pod's own namespace.

They see neither the Node nor the GPUQuarantine: one sentence says what happened to the pod, on
which node, for which cause, under which session, and where to look next. Called by the drain once
the API server accepted the eviction or the deletion by force.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rules.api.health import GpuStatus, HealthStatus
from rules.api.quarantine import Cause, gravest
from rules.api.sentences import bounded
from rules.api.writes import DeletePod, EmitEvent, EvictPod
from rules.text.printable import printable, within_bytes

EVICTED: Final = "QuarantineEvicted"
DELETED: Final = "QuarantineDeleted"
_GPUS: Final = 3
"""How many GPUs of a cause are spelled out."""
_NAME, _SAID = 96, 200
"""Characters of a name and of a person's own words."""
_CAUSE_BYTES: Final = 360
"""Room for the cause: the session and where to look next come after it."""


def owner_told(
    gone: EvictPod | DeletePod,
    session: str,
    causes: Sequence[Cause],
    verdict: HealthStatus | None,
    now: float,
) -> EmitEvent:
    """The Event about one pod that goes by a request of ours."""
    forced = isinstance(gone, DeletePod)
    did = f"Deleted by force ({gone.by_policy})" if isinstance(gone, DeletePod) else "Evicted"
    why = within_bytes(printable(_causes(causes, verdict or HealthStatus())), _CAUSE_BYTES)
    return EmitEvent(
        node=gone.node,
        node_uid="",
        namespace=gone.namespace,
        pod=gone.name,
        pod_uid=gone.uid,
        kind="Warning" if forced else "Normal",
        reason=DELETED if forced else EVICTED,
        message=bounded(
            f"{did} from node {gone.node}, which is taken out of service for {why}, GPUQuarantine "
            f"{session}; more: kubectl gpuward why {gone.node}, or ask whoever runs the cluster."
        ),
        at=now,
        key=session,
    )


def _causes(causes: Sequence[Cause], verdict: HealthStatus) -> str:
    """The gravest cause in words, and how many more there are."""
    first, more = gravest(causes), len(causes) - 1
    if first is None:
        return "a cause that is over by now"
    return f"{_cause(first, verdict)}{f' and {more} more' if more else ''}"


def _cause(cause: Cause, verdict: HealthStatus) -> str:
    if cause.source == "Human":
        said = f" ({cause.message[:_SAID]})" if cause.message else ""
        return f"a request of {cause.by[:_NAME] or 'a person'}{said}"
    incident = next((one for one in verdict.incidents if one.id == cause.incident), None)
    uuids = incident.gpus if incident is not None else ()
    known = {gpu.uuid: gpu for gpu in verdict.gpus}
    gpus = [_gpu(uuid, known.get(uuid)) for uuid in uuids[:_GPUS]]
    more = f" and {len(uuids) - _GPUS} more" if len(uuids) > _GPUS else ""
    on = f" on {', '.join(gpus)}{more}" if gpus else ""
    return f"{cause.reason[:_NAME] or cause.source[:_NAME]} ({cause.severity[:_NAME]}){on}"


def _gpu(uuid: str, seen: GpuStatus | None) -> str:
    if seen is None or seen.index < 0:
        return f"GPU {uuid[:_NAME]}"
    return f"GPU {seen.index} ({uuid[:_NAME]})"
