"""Describe what blocks a drain, and send the owner of an evicted pod an Event.

A blocker has the PDB, the pods, their owner, why, whether waiting helps, and the remedy. The owner
of an evicted pod may see neither the Node nor the GPUQuarantine. So one Event in the pod's
namespace states what happened to the pod, on which node, for which cause, in which session, and
what to read next. It is sent once the API server accepted the eviction or the forced deletion.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from rules.api import messages, quarantine
from rules.api.health import GpuStatus, HealthStatus
from rules.api.pods import OwnerView, PodView
from rules.api.quarantine import BlockedBy, Cause, PodNote
from rules.api.refusal import lacks_right
from rules.api.workloads import PdbView
from rules.api.writes import DeletePod, EmitEvent, EvictPod
from rules.catalog.why_not import Refusal, WhyNot
from rules.drain import eviction
from rules.drain.eviction import EvictionKind, EvictionOutcome
from rules.drain.gangs import Gang
from rules.text.printable import printable, within_bytes

_POD_NAMES: Final = 3
_REPORTED_FROM: Final = 3
"""Contention for a PDB or pod ends after one or two attempts."""
_GANG_REMEDY: Final = (
    "ask the job's owner to suspend or stop it, or wait for its end with a pods rule WaitCompleted"
)


HOLDING: Final = frozenset(
    {
        WhyNot.BUDGET_EXPECTS_NO_PODS,
        WhyNot.BUDGET_NEVER_ALLOWS,
        WhyNot.BUDGET_SYNC_FAILED,
        WhyNot.GANG_BUDGET,
        WhyNot.MULTIPLE_BUDGETS,
        WhyNot.NO_CAPACITY,
        WhyNot.POD_RETURNS,
    }
)
"""While one of these holds, no eviction of the pod is sent."""


def blocker_of(
    pod: PodView,
    pdbs: tuple[PdbView, ...],
    outcome: EvictionOutcome | None,
    gang: Gang | None,
    now: float,
    refused: bool,
) -> Refusal | None:
    """Return what blocks the eviction of `pod`, from its PDBs or the last response.

    `refused`: the PDB refused another of its pods, so this one waits as well.
    """
    block = eviction.judge(pod, pdbs, now)
    if block is not None and block.permanent:
        if block.reason is not WhyNot.BUDGET_NEVER_ALLOWS or gang is None:
            return block
        why = f"it covers the entire gang {gang.key}, {block.why}"
        return replace(block, reason=WhyNot.GANG_BUDGET, why=why, remedy=_GANG_REMEDY)
    if outcome is not None and outcome.kind is EvictionKind.PERMANENT and block is None:
        # The PDB changed since that response, so the eviction is sent again.
        outcome = None
    key = pdbs[0].key if pdbs else ""
    by_response = _by_response(outcome, block, key) if outcome is not None else None
    if by_response is not None:
        return by_response
    return block if refused or outcome is not None else None


def force_refusal(code: int, message: str) -> Refusal:
    """Return why the API server refused a forced deletion, and the remedy."""
    why = f"the API server refuses forced deletion ({message})"
    if code == 401:
        remedy = "check the remediator's service account and token"
        return Refusal(reason=WhyNot.MISSING_PERMISSION, why=why, remedy=remedy)
    if lacks_right(code, message):
        remedy = "apply the force component or set drain.onTimeout: Report"
        reason = WhyNot.MISSING_PERMISSION
    else:
        remedy = "change the admission policy or webhook, or set drain.onTimeout: Report"
        reason = WhyNot.EVICTION_REFUSED
    return Refusal(reason=reason, why=why, permanent=True, remedy=remedy)


def _by_response(outcome: EvictionOutcome, block: Refusal | None, key: str) -> Refusal | None:
    """Return what the response reports, with the PDB's counts if there are any."""
    match outcome.kind:
        case EvictionKind.MISSING_PERMISSION:
            return Refusal(
                reason=WhyNot.MISSING_PERMISSION,
                why=outcome.message,
                permanent=True,
                remedy=outcome.remedy,
            )
        case EvictionKind.UNAUTHORIZED:
            return Refusal(
                reason=WhyNot.MISSING_PERMISSION,
                why="the API server does not accept the remediator's credentials",
                remedy="check the remediator's service account and token",
            )
        case EvictionKind.API_BUSY:
            return Refusal(reason=WhyNot.API_BUSY, why="the API server throttles the remediator")
        case EvictionKind.UNKNOWN:
            message = f": {outcome.message}" if outcome.message else ""
            why = f"the API server sent no usable response to the eviction{message}"
            return Refusal(reason=WhyNot.NO_ANSWER, why=why)
        case EvictionKind.REFUSED:
            return _refused(f"the API server refused the eviction: {outcome.message}")
        case _ if outcome.of_the_moment and outcome.times >= _REPORTED_FROM:
            return _refused(
                f"the API server refused the eviction {outcome.times} times: {outcome.message}"
            )
        case EvictionKind.NAMESPACE_ENDING:
            why = "its namespace is being deleted"
            return Refusal(reason=WhyNot.NAMESPACE_ENDING, why=why)
        case EvictionKind.IN_PROGRESS:
            why = f"a webhook handles the eviction: {outcome.message}"
            return Refusal(reason=WhyNot.EVICTION_IN_PROGRESS, why=why)
        case EvictionKind.BUDGET_STALE:
            why = "the PDB is new and not processed yet"
            return Refusal(reason=WhyNot.BUDGET_STALE, why=why, subject=key)
        case EvictionKind.BUDGET_FULL:
            return Refusal(
                reason=WhyNot.BUDGET_FULL,
                why=(block.why if block else "") or "the API server refused the eviction",
                remedy=block.remedy if block else "",
                subject=key,
            )
        case _:
            return None


def _refused(why: str) -> Refusal:
    remedy = "check the admission webhooks"
    return Refusal(reason=WhyNot.EVICTION_REFUSED, why=why, remedy=remedy)


def grouped(refusals: list[tuple[PodView, Refusal]]) -> tuple[BlockedBy, ...]:
    """Return one entry per PDB (or reason) and owner, permanent ones first, with bounded names."""
    groups: dict[tuple[bool, str, str, str, str], list[str]] = {}
    for pod, one in refusals:
        key = (not one.permanent, one.subject, one.owner, one.why, one.remedy)
        groups.setdefault(key, []).append(pod.key)
    return tuple(
        BlockedBy(
            pdb=pdb,
            pods=quarantine.pods_of((PodNote(name=name) for name in pods), _POD_NAMES),
            owner=owner,
            why=why[:512],
            permanent=not temporary,
            remedy=remedy,
        )
        for (temporary, pdb, owner, why, remedy), pods in sorted(groups.items())
    )


def owner_name(pod: PodView, owners: Mapping[str, OwnerView]) -> str:
    """Return the outermost known owner: `Deployment team-a/trainer`."""
    controller = pod.metadata.controller
    if controller is None:
        return ""
    kind, name = controller.kind, controller.name
    for _ in range(5):
        view = owners.get(controller.uid)
        if view is None or view.metadata.controller is None:
            break
        controller = view.metadata.controller
        kind, name = controller.kind, controller.name
    return f"{kind} {pod.metadata.namespace}/{name}"


def worst_of(refusals: list[tuple[PodView, Refusal]]) -> Refusal | None:
    """Return the refusal for the condition Blocked: a permanent one first, then by reason."""
    found = (refusal for _, refusal in refusals)
    return min(found, key=lambda refusal: (not refusal.permanent, refusal.reason), default=None)


EVICTED: Final = "QuarantineEvicted"
DELETED: Final = "QuarantineDeleted"
_GPUS: Final = 3
"""How many GPUs of a cause are listed."""
_NAME, _TEXT = 96, 200
"""The most characters of a name and of an operator's text."""
_CAUSE_BYTES: Final = 360
"""The most bytes of the cause, which leaves room for the session and the command."""


def owner_event(
    gone: EvictPod | DeletePod,
    session: str,
    causes: Sequence[Cause],
    health: HealthStatus | None,
    now: float,
) -> EmitEvent:
    """Return the Event about one pod that gpuward evicted or deleted."""
    forced = isinstance(gone, DeletePod)
    done = f"Force-deleted ({gone.by_policy})" if isinstance(gone, DeletePod) else "Evicted"
    why = within_bytes(printable(_causes(causes, health or HealthStatus())), _CAUSE_BYTES)
    return EmitEvent(
        node=gone.node,
        node_uid="",
        namespace=gone.namespace,
        pod=gone.name,
        pod_uid=gone.uid,
        kind="Warning" if forced else "Normal",
        reason=DELETED if forced else EVICTED,
        message=messages.bounded(
            f"{done} from node {gone.node}, which is out of service for {why}. GPUQuarantine: "
            f"{session}. Run kubectl gpuward why {gone.node}, or ask the cluster operator."
        ),
        at=now,
        key=session,
    )


def _causes(causes: Sequence[Cause], health: HealthStatus) -> str:
    """Return the most severe cause, and how many more there are."""
    first, more = quarantine.most_severe(causes), len(causes) - 1
    if first is None:
        return "a cause that is closed now"
    return f"{_cause(first, health)}{f' and {more} more' if more else ''}"


def _cause(cause: Cause, health: HealthStatus) -> str:
    if cause.source == "Human":
        text = f" ({cause.message[:_TEXT]})" if cause.message else ""
        return f"a request of {cause.by[:_NAME] or 'an operator'}{text}"
    incident = next((one for one in health.incidents if one.id == cause.incident), None)
    uuids = incident.gpus if incident is not None else ()
    known = {gpu.uuid: gpu for gpu in health.gpus}
    gpus = [_gpu(uuid, known.get(uuid)) for uuid in uuids[:_GPUS]]
    more = f" and {len(uuids) - _GPUS} more" if len(uuids) > _GPUS else ""
    on = f" on {', '.join(gpus)}{more}" if gpus else ""
    return f"{cause.reason[:_NAME] or cause.source[:_NAME]} ({cause.severity[:_NAME]}){on}"


def _gpu(uuid: str, seen: GpuStatus | None) -> str:
    if seen is None or seen.index < 0:
        return f"GPU {uuid[:_NAME]}"
    return f"GPU {seen.index} ({uuid[:_NAME]})"
