"""What blocks a drain, named for people, and what the owner of an evicted pod is reported.

A blocker says PDB, pods, owner, why, whether waiting helps, and the remedy. The owner of a pod
that had to go sees neither the Node nor the GPUQuarantine: one Event in the pod's namespace says
what happened to the pod, on which node, for which cause, under which session, and where to look
next. It is sent once the API server accepted the eviction or the deletion by force.
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
"""Contention for a PDB or pod is over after one or two attempts."""
_GANG_REMEDY: Final = (
    "let the job's owner suspend or end it; a pods rule WaitCompleted waits for its end instead"
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
"""While one of these lasts the pod is not even asked to go."""


def blocker_of(
    pod: PodView,
    pdbs: tuple[PdbView, ...],
    outcome: EvictionOutcome | None,
    gang: Gang | None,
    now: float,
    asked: bool,
) -> Refusal | None:
    """What the PDBs, or the last answer, say about `pod`; None when nothing is in its way.

    `asked`: the PDB refused another of its pods, so that this one waits as well.
    """
    block = eviction.judge(pod, pdbs, now)
    if block is not None and block.permanent:
        if block.reason is not WhyNot.BUDGET_NEVER_ALLOWS or gang is None:
            return block
        why = f"it protects the entire gang {gang.key}, {block.why}"
        return replace(block, reason=WhyNot.GANG_BUDGET, why=why, remedy=_GANG_REMEDY)
    if outcome is not None and outcome.kind is EvictionKind.PERMANENT and block is None:
        # The PDB object was changed since that answer: it is asked again.
        outcome = None
    said = _by_answer(outcome, block, pdbs[0].key if pdbs else "") if outcome is not None else None
    if said is not None:
        return said
    return block if asked or outcome is not None else None


def force_refusal(code: int, said: str) -> Refusal:
    """A deletion by force that the API server refused, with what it said; what is next differs by
    who refused it.
    """
    why = f"the API server refuses ({said})"
    if code == 401:
        remedy = "check the remediator's service account and token"
        return Refusal(reason=WhyNot.MISSING_PERMISSION, why=why, remedy=remedy)
    if lacks_right(code, said):
        remedy = "apply component force or set drain.onTimeout: Report"
        reason = WhyNot.MISSING_PERMISSION
    else:
        remedy = "ask who runs the admission policy or webhook, or set drain.onTimeout: Report"
        reason = WhyNot.EVICTION_REFUSED
    return Refusal(reason=reason, why=why, permanent=True, remedy=remedy)


def _by_answer(outcome: EvictionOutcome, block: Refusal | None, key: str) -> Refusal | None:
    """The answer in words; the PDB object's numbers where there are some."""
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
                why="the API server does not know the remediator any more",
                remedy="check its service account and token",
            )
        case EvictionKind.API_BUSY:
            return Refusal(reason=WhyNot.API_BUSY, why="the API server limits the remediator")
        case EvictionKind.UNKNOWN:
            said = f": {outcome.message}" if outcome.message else ""
            why = f"the API server gave no usable answer to the eviction{said}"
            return Refusal(reason=WhyNot.NO_ANSWER, why=why)
        case EvictionKind.REFUSED:
            return _refused(f"the API server refused it: {outcome.message}")
        case _ if outcome.of_the_moment and outcome.times >= _REPORTED_FROM:
            return _refused(f"the API server refused it again and again: {outcome.message}")
        case EvictionKind.NAMESPACE_ENDING:
            why = "its namespace is being deleted"
            return Refusal(reason=WhyNot.NAMESPACE_ENDING, why=why)
        case EvictionKind.IN_PROGRESS:
            why = f"a webhook took it over: {outcome.message}"
            return Refusal(reason=WhyNot.EVICTION_IN_PROGRESS, why=why)
        case EvictionKind.BUDGET_STALE:
            why = "the PDB is new and was not computed yet"
            return Refusal(reason=WhyNot.BUDGET_STALE, why=why, subject=key)
        case EvictionKind.BUDGET_FULL:
            return Refusal(
                reason=WhyNot.BUDGET_FULL,
                why=(block.why if block else "") or "the PDB allows no eviction now",
                remedy=block.remedy if block else "",
                subject=key,
            )
        case _:
            return None


def _refused(why: str) -> Refusal:
    remedy = "ask who runs the admission webhook"
    return Refusal(reason=WhyNot.EVICTION_REFUSED, why=why, remedy=remedy)


def grouped(refusals: list[tuple[PodView, Refusal]]) -> tuple[BlockedBy, ...]:
    """One entry per PDB (or reason) and owner, permanent ones first, names bounded."""
    groups: dict[tuple[bool, str, str, str, str], list[str]] = {}
    for pod, said in refusals:
        key = (not said.permanent, said.subject, said.owner, said.why, said.remedy)
        groups.setdefault(key, []).append(pod.key)
    return tuple(
        BlockedBy(
            pdb=pdb,
            pods=quarantine.pods_of((PodNote(name=name) for name in pods), _POD_NAMES),
            owner=owner,
            why=why[:512],
            permanent=not for_now,
            remedy=remedy,
        )
        for (for_now, pdb, owner, why, remedy), pods in sorted(groups.items())
    )


def owner_name(pod: PodView, owners: Mapping[str, OwnerView]) -> str:
    """The outermost known owner, as people call it: `Deployment team-a/trainer`."""
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
    """The one for the condition Blocked: a lasting one first, stable among equals."""
    said = (refusal for _, refusal in refusals)
    return min(said, key=lambda refusal: (not refusal.permanent, refusal.reason), default=None)


EVICTED: Final = "QuarantineEvicted"
DELETED: Final = "QuarantineDeleted"
_GPUS: Final = 3
"""How many GPUs of a cause are spelled out."""
_NAME, _SAID = 96, 200
"""Characters of a name and of an operator's own words."""
_CAUSE_BYTES: Final = 360
"""Room for the cause: the session and where to look next come after it."""


def owner_reported(
    gone: EvictPod | DeletePod,
    session: str,
    causes: Sequence[Cause],
    verdict: HealthStatus | None,
    now: float,
) -> EmitEvent:
    """The Event about one pod that goes by a request of gpuward."""
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
        message=messages.bounded(
            f"{did} from node {gone.node}, which is taken out of service for {why}, GPUQuarantine "
            f"{session}; more: kubectl gpuward why {gone.node}, or ask whoever runs the cluster."
        ),
        at=now,
        key=session,
    )


def _causes(causes: Sequence[Cause], verdict: HealthStatus) -> str:
    """The most severe cause in words, and how many more there are."""
    first, more = quarantine.most_severe(causes), len(causes) - 1
    if first is None:
        return "a cause that is over by now"
    return f"{_cause(first, verdict)}{f' and {more} more' if more else ''}"


def _cause(cause: Cause, verdict: HealthStatus) -> str:
    if cause.source == "Human":
        said = f" ({cause.message[:_SAID]})" if cause.message else ""
        return f"a request of {cause.by[:_NAME] or 'an operator'}{said}"
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
