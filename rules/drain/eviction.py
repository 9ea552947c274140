"""What a PodDisruptionBudget will say to an eviction, and what an answer to one means.

`judge` reads the PDB and `classify` the HTTP answer together with the PDBs that select the pod.
The table is that of the Kubernetes eviction registry (1.36), with what was found on a real
control plane. Permanence is judged from the PDB and never from the text of a 429: Job pods under
`maxUnavailable` answer "still being processed" for ever, and bare pods answer a plain refusal.
Nothing else reads eviction answers. Pure.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from rules.api import refusal, selectors
from rules.api.pods import PodView
from rules.api.refusal import NAMESPACE_ENDING, KubeStatus, Told
from rules.api.workloads import PdbView
from rules.catalog.why_not import Refusal, WhyNot
from rules.text.printable import printable

_ALWAYS_ALLOW: Final = "unhealthyPodEvictionPolicy: AlwaysAllow"
STALE_S: Final = 60.0
"""A PDB younger than this may simply not have been checked by the disruption controller."""


def matching(pod: PodView, pdbs: Iterable[PdbView]) -> tuple[PdbView, ...]:
    """The PDBs of the pod's namespace that select it, by name; unreadable selectors are ignored
    (as the Eviction API does).
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
    """Whether the Eviction API does not ask a PDB: pending, finished and terminating pods."""
    return pod.finished or pod.terminating or pod.status.phase == "Pending"


def needs_turn(pod: PodView, pdbs: tuple[PdbView, ...]) -> bool:
    """Whether the pod's eviction spends a disruption of its PDB, so that it takes a turn there.

    What the Eviction API lets go without asking (`ignores_budget`, unready pods that the PDB
    does not hold) may even be what opens the budget for the others.
    """
    if not pdbs or ignores_budget(pod):
        return False
    return len(pdbs) > 1 or pod.ready or not _unready_may_go(pdbs[0])


def judge(pod: PodView, pdbs: tuple[PdbView, ...], now: float) -> Refusal | None:
    """What the pod's PDBs (`matching`) say now; None where an eviction may be tried."""
    if not pdbs or ignores_budget(pod):
        return None
    if len(pdbs) > 1:
        names = " and ".join(pdb.key for pdb in pdbs[:3])
        return Refusal(
            reason=WhyNot.MULTIPLE_BUDGETS,
            subject=pdbs[0].key,
            why=f"{names} select the same pod, which the Eviction API does not support",
            permanent=True,
            remedy="make one of them not select the pod",
        )
    pdb = pdbs[0]
    if not pod.ready and _unready_may_go(pdb):
        return None
    block = standing_refusal(pdb, now)
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
    """The disruption controller's complaint, "" where it has none."""
    for condition in pdb.status.conditions:
        if condition.type == "DisruptionAllowed" and condition.reason == "SyncFailed":
            return condition.message[:200] or "SyncFailed"
    return ""


def is_stale(pdb: PdbView, now: float) -> bool:
    """Whether the controller has not checked this version yet, and still may."""
    behind = pdb.status.observed_generation < pdb.metadata.generation
    return behind and not sync_failure(pdb) and now - pdb.metadata.created_at < STALE_S


def standing_refusal(pdb: PdbView, now: float) -> Refusal | None:
    """Why the PDB will go on refusing every ready pod until an operator changes something."""
    status = pdb.status
    if failure := sync_failure(pdb):
        return Refusal(
            reason=WhyNot.BUDGET_SYNC_FAILED,
            subject=pdb.key,
            why=f"the PDB cannot be computed: {failure}",
            permanent=True,
            remedy="use an integer minAvailable or protect a workload that has a scale",
        )
    if is_stale(pdb, now) or status.disruptions_allowed > 0:
        return None
    if status.expected_pods == 0:
        return Refusal(
            reason=WhyNot.BUDGET_EXPECTS_NO_PODS,
            subject=pdb.key,
            why="the PDB expects 0 pods while it selects some (pods without a scalable owner)",
            permanent=True,
            remedy="use an integer minAvailable for pods without a controller",
        )
    if status.desired_healthy >= status.expected_pods:
        return Refusal(
            reason=WhyNot.BUDGET_NEVER_ALLOWS,
            subject=pdb.key,
            why=f"{_asked(pdb)} keeps {status.desired_healthy} of {status.expected_pods} expected",
            permanent=True,
            remedy="add a replica, relax the PDB, or let the owner stop the workload",
        )
    return None


def _asked(pdb: PdbView) -> str:
    if pdb.spec.min_available is not None:
        return f"minAvailable {pdb.spec.min_available}"
    return f"maxUnavailable {pdb.spec.max_unavailable}"


def _refusal_for_now(pod: PodView, pdb: PdbView) -> Refusal | None:
    status = pdb.status
    if status.disruptions_allowed > 0:
        return None
    if not pod.ready and status.current_healthy < status.desired_healthy:
        return Refusal(
            reason=WhyNot.WORKLOAD_UNHEALTHY,
            subject=pdb.key,
            why=f"the workload is unhealthy already ({status.current_healthy} of "
            f"{status.desired_healthy} needed)",
            remedy=f"heal the workload or set {_ALWAYS_ALLOW}",
        )
    return Refusal(
        reason=WhyNot.BUDGET_FULL,
        subject=pdb.key,
        why=f"0 disruptions allowed now ({status.current_healthy} healthy, "
        f"{status.desired_healthy} needed)",
        remedy="it opens when another pod becomes Ready",
    )


_DIGITS: Final = re.compile(r"[0-9]{1,9}", re.ASCII)


class EvictionKind(StrEnum):
    """What to do next."""

    ACCEPTED = "Accepted"
    """201: the pod terminates; it is gone when the list no longer shows its UID."""
    POD_GONE = "PodGone"
    BUDGET_VANISHED = "BudgetVanished"
    """The PDB went away in between: try again at once, the pod is not gone."""
    OTHER_POD = "OtherPod"
    """Another pod has that name now: forget this UID, never retry with the new one."""
    CONTENTION = "Contention"
    POD_CHANGED = "PodChanged"
    BUDGET_FULL = "BudgetFull"
    BUDGET_STALE = "BudgetStale"
    PERMANENT = "Permanent"
    """An operator must change something; named in `message`."""
    IN_PROGRESS = "InProgress"
    """A webhook took the request over (live migration): the pod leaves later, ask again slowly."""
    LEAVING = "Leaving"
    """Somebody else deleted it already: asking again could only shorten its grace."""
    API_BUSY = "ApiBusy"
    """The API server limits us: slow down everywhere, blame no PDB."""
    UNKNOWN = "Unknown"
    """It may or may not have happened: read the pod, then try again."""
    NAMESPACE_ENDING = "NamespaceEnding"
    MISSING_PERMISSION = "MissingPermission"
    REFUSED = "Refused"
    UNAUTHORIZED = "Unauthorized"


_SAYS_NO: Final = frozenset(
    {
        EvictionKind.PERMANENT,
        EvictionKind.IN_PROGRESS,
        EvictionKind.REFUSED,
        EvictionKind.MISSING_PERMISSION,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionOutcome:
    """One classified answer. `retry_after_s` is the server's wish, 0 where it has none."""

    kind: EvictionKind
    message: str = ""
    retry_after_s: float = 0.0
    remedy: str = ""
    times: int = 1
    """How often in a row the pod's eviction was answered like that (`rules.drain.memory`)."""

    @property
    def done(self) -> bool:
        """Nothing more is to be sent for this UID."""
        return self.kind in {
            EvictionKind.ACCEPTED,
            EvictionKind.POD_GONE,
            EvictionKind.OTHER_POD,
            EvictionKind.LEAVING,
            EvictionKind.NAMESPACE_ENDING,
        }

    @property
    def accepted(self) -> bool:
        """The pod goes, by this very request."""
        return self.kind is EvictionKind.ACCEPTED

    @property
    def by_budget(self) -> bool:
        """The PDB said no: so it would for any other pod that it protects."""
        return self.kind in {
            EvictionKind.BUDGET_FULL,
            EvictionKind.BUDGET_STALE,
            EvictionKind.CONTENTION,
        }

    @property
    def of_the_moment(self) -> bool:
        """Asking again usually helps, so that it is reported only where it does not."""
        return self.kind in {
            EvictionKind.BUDGET_VANISHED,
            EvictionKind.CONTENTION,
            EvictionKind.POD_CHANGED,
        }

    @property
    def unproven(self) -> bool:
        """It says that the pod is gone: an admission webhook can answer so, too, and only a read
        of the pod proves it.
        """
        return self.kind in {EvictionKind.POD_GONE, EvictionKind.OTHER_POD}

    @property
    def refused(self) -> bool:
        """The API server said no to this eviction, for a reason that time alone may not end."""
        still = self.unproven and self.times > 1
        return still or self.by_budget or self.kind in _SAYS_NO

    @property
    def stops_all(self) -> bool:
        """The API server would answer any request like that now."""
        return self.kind in {EvictionKind.API_BUSY, EvictionKind.UNAUTHORIZED}

    @property
    def backs_off(self) -> bool:
        """The pod (or its PDB's queue) waits for the policy's back-off before the next attempt."""
        later = {EvictionKind.UNAUTHORIZED, EvictionKind.UNKNOWN}
        return self.by_budget or self.kind in _SAYS_NO | later


def no_answer(error: str) -> EvictionOutcome:
    """Time-out or reset: the outcome is not known."""
    return EvictionOutcome(kind=EvictionKind.UNKNOWN, message=error[:200])


def classify(
    status_code: int,
    headers: Mapping[str, str],
    body: bytes,
    pod: PodView,
    pdbs: tuple[PdbView, ...],
    now: float,
) -> EvictionOutcome:
    """Read one answer. `pdbs` are those that select the pod (`rules.drain.eviction.matching`)."""
    answer = refusal.read_status(body)
    said = answer or KubeStatus()
    message = said.message or body[:200].decode("utf-8", "replace")
    message = printable(" ".join(message.split()))[:300]
    retry_s = _retry_after_s(headers)
    match status_code:
        case 200 | 201:
            return EvictionOutcome(kind=EvictionKind.ACCEPTED)
        case 404:
            vanished = said.about == "poddisruptionbudgets"
            kind = EvictionKind.BUDGET_VANISHED if vanished else EvictionKind.POD_GONE
            return EvictionOutcome(kind=kind, message=message)
        case 409:
            other = Told.OTHER_UID in refusal.told(message)
            kind = EvictionKind.OTHER_POD if other else EvictionKind.POD_CHANGED
            if said.about == "poddisruptionbudgets":
                kind = EvictionKind.CONTENTION
            return EvictionOutcome(kind=kind, message=message)
        case 429:
            return _too_many(answer, message, retry_s, pod, pdbs, now)
        case 401:
            return EvictionOutcome(kind=EvictionKind.UNAUTHORIZED, message=message)
        case 403:
            return _forbidden(said, message)
        case 500 if Told.SEVERAL_BUDGETS in refusal.told(message):
            block = judge(pod, pdbs, now)
            if block is None or not block.permanent:
                # The PDB objects are not what the API server saw; its answer is.
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
        busy = Told.BUSY in refusal.told(answer.message)
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


def _forbidden(said: KubeStatus, message: str) -> EvictionOutcome:
    if NAMESPACE_ENDING in said.causes:
        return EvictionOutcome(kind=EvictionKind.NAMESPACE_ENDING, message=message)
    if not refusal.told(message) & {Told.BY_ADMISSION, Told.BUDGET_NEGATIVE}:
        return EvictionOutcome(
            kind=EvictionKind.MISSING_PERMISSION,
            message="pods/eviction may not be created",
            remedy="grant the remediator create on pods/eviction",
        )
    return EvictionOutcome(kind=EvictionKind.REFUSED, message=message)


def _retry_after_s(headers: Mapping[str, str]) -> float:
    for name, value in headers.items():
        if name.lower() == "retry-after" and _DIGITS.fullmatch(value.strip()):
            return min(float(value), 300.0)
    return 0.0
