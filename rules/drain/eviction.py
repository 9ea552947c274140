"""Predict whether a PodDisruptionBudget allows an eviction, and classify eviction responses.

`judge` reads the PDB. `classify` reads the HTTP response together with the PDBs that select the
pod. The rules are those of the Kubernetes eviction registry (1.36), checked on a real control
plane. Whether waiting helps is decided from the PDB, never from the text of a 429: for Job pods
under `maxUnavailable` it is "still being processed" forever. No other module reads eviction
responses.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from rules.api import refusal, selectors
from rules.api.pods import PodView
from rules.api.refusal import NAMESPACE_ENDING, ErrorKind, KubeStatus
from rules.api.workloads import PdbView
from rules.catalog.why_not import Refusal, WhyNot
from rules.text.printable import printable

_ALWAYS_ALLOW: Final = "unhealthyPodEvictionPolicy: AlwaysAllow"
STALE_S: Final = 60.0
"""The disruption controller may not have processed a younger PDB yet."""


def matching(pod: PodView, pdbs: Iterable[PdbView]) -> tuple[PdbView, ...]:
    """Return the PDBs that select the pod, by name. PDBs with an invalid selector are ignored, as
    in the Eviction API.
    """
    found = []
    for pdb in pdbs:
        if pdb.metadata.namespace != pod.metadata.namespace:
            continue
        try:
            if selectors.selects(pdb.spec.selector, pod.metadata.labels):
                found.append(pdb)
        except ValueError:
            continue
    return tuple(sorted(found, key=lambda pdb: pdb.key))


def ignores_budget(pod: PodView) -> bool:
    """Return whether the Eviction API ignores PDBs: for pending, finished and terminating pods."""
    return pod.finished or pod.terminating or pod.status.phase == "Pending"


def needs_turn(pod: PodView, pdbs: tuple[PdbView, ...]) -> bool:
    """Return whether the pod's eviction uses a disruption of its PDB and waits in its queue.

    Other evictions (`ignores_budget`, unready pods that the PDB does not protect) may even allow
    the evictions that wait.
    """
    if not pdbs or ignores_budget(pod):
        return False
    return len(pdbs) > 1 or pod.ready or not _unready_may_go(pdbs[0])


def judge(pod: PodView, pdbs: tuple[PdbView, ...], now: float) -> Refusal | None:
    """Return why the pod's PDBs (`matching`) refuse an eviction now; None if they may allow it."""
    if not pdbs or ignores_budget(pod):
        return None
    if len(pdbs) > 1:
        names = " and ".join(pdb.key for pdb in pdbs[:3])
        return Refusal(
            reason=WhyNot.MULTIPLE_BUDGETS,
            subject=pdbs[0].key,
            why=f"{names} select the same pod, which the Eviction API does not support",
            permanent=True,
            remedy="change the selector of one of them",
        )
    pdb = pdbs[0]
    if not pod.ready and _unready_may_go(pdb):
        return None
    block = permanent_refusal(pdb, now)
    if block is None:
        return _refusal_for_now(pod, pdb)
    if pod.ready or block.reason is not WhyNot.BUDGET_NEVER_ALLOWS:
        return block
    return replace(block, remedy=f"set {_ALWAYS_ALLOW} (the pod is not Ready), or {block.remedy}")


def _unready_may_go(pdb: PdbView) -> bool:
    if pdb.spec.unhealthy_pod_eviction_policy == "AlwaysAllow":
        return True
    return pdb.status.current_healthy >= pdb.status.desired_healthy > 0


def sync_failure(pdb: PdbView) -> str:
    """Return the error of the disruption controller; "" if it has none."""
    for condition in pdb.status.conditions:
        if condition.type == "DisruptionAllowed" and condition.reason == "SyncFailed":
            return condition.message[:200] or "SyncFailed"
    return ""


def is_stale(pdb: PdbView, now: float) -> bool:
    """Return whether the disruption controller has not processed this version of the PDB yet."""
    behind = pdb.status.observed_generation < pdb.metadata.generation
    return behind and not sync_failure(pdb) and now - pdb.metadata.created_at < STALE_S


def permanent_refusal(pdb: PdbView, now: float) -> Refusal | None:
    """Return why the PDB refuses every ready pod until it or its workload changes."""
    status = pdb.status
    if failure := sync_failure(pdb):
        return Refusal(
            reason=WhyNot.BUDGET_SYNC_FAILED,
            subject=pdb.key,
            why=f"the disruption controller cannot compute it: {failure}",
            permanent=True,
            remedy="use an integer minAvailable, or select a workload with a scale subresource",
        )
    if is_stale(pdb, now) or status.disruptions_allowed > 0:
        return None
    if status.expected_pods == 0:
        return Refusal(
            reason=WhyNot.BUDGET_EXPECTS_NO_PODS,
            subject=pdb.key,
            why="it expects 0 pods but selects some, which have no scalable owner",
            permanent=True,
            remedy="use an integer minAvailable for pods without a controller",
        )
    if status.desired_healthy >= status.expected_pods:
        return Refusal(
            reason=WhyNot.BUDGET_NEVER_ALLOWS,
            subject=pdb.key,
            why=f"{_limit(pdb)} and the PDB covers {_pods(status.expected_pods)}",
            permanent=True,
            remedy="add a replica, relax the PDB, or ask the owner to stop the workload",
        )
    return None


def _limit(pdb: PdbView) -> str:
    if pdb.spec.min_available is not None:
        return f"minAvailable is {pdb.spec.min_available}"
    return f"maxUnavailable is {pdb.spec.max_unavailable}"


def _pods(count: int) -> str:
    return "1 pod" if count == 1 else f"{count} pods"


def _refusal_for_now(pod: PodView, pdb: PdbView) -> Refusal | None:
    status = pdb.status
    if status.disruptions_allowed > 0:
        return None
    if not pod.ready and status.current_healthy < status.desired_healthy:
        return Refusal(
            reason=WhyNot.WORKLOAD_UNHEALTHY,
            subject=pdb.key,
            why=f"healthy pods: {status.current_healthy} of {status.desired_healthy} required",
            remedy=f"repair the workload or set {_ALWAYS_ALLOW}",
        )
    return Refusal(
        reason=WhyNot.BUDGET_FULL,
        subject=pdb.key,
        why=f"healthy pods: {status.current_healthy}, required: {status.desired_healthy}",
        remedy="the eviction is retried when another pod is Ready",
    )


_DIGITS: Final = re.compile(r"[0-9]{1,9}", re.ASCII)


class EvictionKind(StrEnum):
    """The meaning of an eviction response."""

    ACCEPTED = "Accepted"
    """201: the pod terminates. It is gone once a list does not show its UID."""
    POD_GONE = "PodGone"
    BUDGET_VANISHED = "BudgetVanished"
    """The PDB was deleted meanwhile: retry at once, the pod still exists."""
    OTHER_POD = "OtherPod"
    """Another pod has that name now. It is not evicted in place of the old one."""
    CONTENTION = "Contention"
    POD_CHANGED = "PodChanged"
    BUDGET_FULL = "BudgetFull"
    BUDGET_STALE = "BudgetStale"
    PERMANENT = "Permanent"
    """Waiting cannot help: `message` is what an operator has to change."""
    IN_PROGRESS = "InProgress"
    """A webhook handles the request (live migration): the pod leaves later, retry slowly."""
    LEAVING = "Leaving"
    """The pod already terminates. Another eviction could only shorten its grace period."""
    API_BUSY = "ApiBusy"
    """The API server throttles gpuward: slow down everywhere. No PDB is the cause."""
    UNKNOWN = "Unknown"
    """The pod may or may not be evicted: read it, then retry."""
    NAMESPACE_ENDING = "NamespaceEnding"
    MISSING_PERMISSION = "MissingPermission"
    REFUSED = "Refused"
    UNAUTHORIZED = "Unauthorized"


_REFUSALS: Final = frozenset(
    {
        EvictionKind.PERMANENT,
        EvictionKind.IN_PROGRESS,
        EvictionKind.REFUSED,
        EvictionKind.MISSING_PERMISSION,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionOutcome:
    """One classified response. `retry_after_s` is the server's Retry-After, 0 without one."""

    kind: EvictionKind
    message: str = ""
    retry_after_s: float = 0.0
    remedy: str = ""
    times: int = 1
    """How many responses of this kind the pod's eviction got in a row (`rules.drain.memory`)."""

    @property
    def done(self) -> bool:
        """No more eviction is sent for this UID."""
        return self.kind in {
            EvictionKind.ACCEPTED,
            EvictionKind.POD_GONE,
            EvictionKind.OTHER_POD,
            EvictionKind.LEAVING,
            EvictionKind.NAMESPACE_ENDING,
        }

    @property
    def accepted(self) -> bool:
        """This request evicted the pod."""
        return self.kind is EvictionKind.ACCEPTED

    @property
    def by_budget(self) -> bool:
        """The PDB refused. It would refuse any other pod that it protects, too."""
        return self.kind in {
            EvictionKind.BUDGET_FULL,
            EvictionKind.BUDGET_STALE,
            EvictionKind.CONTENTION,
        }

    @property
    def of_the_moment(self) -> bool:
        """A retry usually helps, so the response is reported only after several."""
        return self.kind in {
            EvictionKind.BUDGET_VANISHED,
            EvictionKind.CONTENTION,
            EvictionKind.POD_CHANGED,
        }

    @property
    def unproven(self) -> bool:
        """The response claims that the pod is gone. An admission webhook can send it, too, so the
        pod is read to prove it.
        """
        return self.kind in {EvictionKind.POD_GONE, EvictionKind.OTHER_POD}

    @property
    def refused(self) -> bool:
        """The API server refused this eviction, and waiting alone may not help."""
        repeated = self.unproven and self.times > 1
        return repeated or self.by_budget or self.kind in _REFUSALS

    @property
    def stops_all(self) -> bool:
        """The API server would answer every request like this now."""
        return self.kind in {EvictionKind.API_BUSY, EvictionKind.UNAUTHORIZED}

    @property
    def backs_off(self) -> bool:
        """The pod or its PDB's queue waits for the back-off before the next attempt."""
        later = {EvictionKind.UNAUTHORIZED, EvictionKind.UNKNOWN}
        return self.by_budget or self.kind in _REFUSALS | later


def no_answer(error: str) -> EvictionOutcome:
    """Return the outcome of a request that timed out or was reset: unknown."""
    return EvictionOutcome(kind=EvictionKind.UNKNOWN, message=error[:200])


def classify(
    status_code: int,
    headers: Mapping[str, str],
    body: bytes,
    pod: PodView,
    pdbs: tuple[PdbView, ...],
    now: float,
) -> EvictionOutcome:
    """Classify one response. `pdbs` are those that select the pod (`matching`)."""
    answer = refusal.read_status(body)
    status = answer or KubeStatus()
    message = status.message or body[:200].decode("utf-8", "replace")
    message = printable(" ".join(message.split()))[:300]
    retry_s = _retry_after_s(headers)
    match status_code:
        case 200 | 201:
            return EvictionOutcome(kind=EvictionKind.ACCEPTED)
        case 404:
            vanished = status.about == "poddisruptionbudgets"
            kind = EvictionKind.BUDGET_VANISHED if vanished else EvictionKind.POD_GONE
            return EvictionOutcome(kind=kind, message=message)
        case 409:
            other = ErrorKind.OTHER_UID in refusal.error_kinds(message)
            kind = EvictionKind.OTHER_POD if other else EvictionKind.POD_CHANGED
            if status.about == "poddisruptionbudgets":
                kind = EvictionKind.CONTENTION
            return EvictionOutcome(kind=kind, message=message)
        case 429:
            return _too_many(answer, message, retry_s, pod, pdbs, now)
        case 401:
            return EvictionOutcome(kind=EvictionKind.UNAUTHORIZED, message=message)
        case 403:
            return _forbidden(status, message)
        case 500 if ErrorKind.SEVERAL_BUDGETS in refusal.error_kinds(message):
            block = judge(pod, pdbs, now)
            if block is None or not block.permanent:
                # The cached PDBs differ from what the API server saw, so its response counts.
                remedy = "make only one PDB select the pod"
                block = Refusal(reason=WhyNot.MULTIPLE_BUDGETS, why=message, remedy=remedy)
            return _permanent(block)
        case 400 | 422:
            return EvictionOutcome(kind=EvictionKind.REFUSED, message=message)
        case _:
            message = f"{status_code} {message}".strip()
            return EvictionOutcome(
                kind=EvictionKind.UNKNOWN, message=message, retry_after_s=retry_s
            )


def _too_many(
    answer: KubeStatus | None,
    message: str,
    retry_s: float,
    pod: PodView,
    pdbs: tuple[PdbView, ...],
    now: float,
) -> EvictionOutcome:
    if answer is None:
        return EvictionOutcome(kind=EvictionKind.API_BUSY, message=message, retry_after_s=retry_s)
    causes = answer.causes
    if "DisruptionBudget" not in causes:
        busy = ErrorKind.BUSY in refusal.error_kinds(answer.message)
        kind = EvictionKind.API_BUSY if busy else EvictionKind.IN_PROGRESS
        return EvictionOutcome(kind=kind, message=message, retry_after_s=retry_s)
    text = causes["DisruptionBudget"][:300] or message
    block = judge(pod, pdbs, now)
    if block is not None and block.permanent:
        return _permanent(block)
    if retry_s and any(is_stale(pdb, now) for pdb in pdbs):
        return EvictionOutcome(kind=EvictionKind.BUDGET_STALE, message=text, retry_after_s=retry_s)
    return EvictionOutcome(kind=EvictionKind.BUDGET_FULL, message=text, retry_after_s=retry_s)


def _permanent(block: Refusal) -> EvictionOutcome:
    return EvictionOutcome(kind=EvictionKind.PERMANENT, message=block.why, remedy=block.remedy)


def _forbidden(status: KubeStatus, message: str) -> EvictionOutcome:
    if NAMESPACE_ENDING in status.causes:
        return EvictionOutcome(kind=EvictionKind.NAMESPACE_ENDING, message=message)
    if not refusal.error_kinds(message) & {ErrorKind.BY_ADMISSION, ErrorKind.BUDGET_NEGATIVE}:
        return EvictionOutcome(
            kind=EvictionKind.MISSING_PERMISSION,
            message="the remediator may not create pods/eviction",
            remedy="grant the remediator create on pods/eviction",
        )
    return EvictionOutcome(kind=EvictionKind.REFUSED, message=message)


def _retry_after_s(headers: Mapping[str, str]) -> float:
    for name, value in headers.items():
        if name.lower() == "retry-after" and _DIGITS.fullmatch(value.strip()):
            return min(float(value), 300.0)
    return 0.0
