"""The disruption controller: what a PodDisruptionBudget allows right now.

Pure functions from a budget, its pods and the scale of their controllers to the status Kubernetes
would write; the eviction code of the API server reads that status. Numbers and texts that clients
see follow Kubernetes 1.36, failures included.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from hack.sim.cluster.clients.client import Object
from hack.sim.cluster.controllers import pods as pod_state
from hack.sim.cluster.controllers.owners import controller_of
from hack.sim.cluster.controllers.timestamps import parse_stamp, stamp
from hack.sim.cluster.controllers.workloads.deployment import share
from hack.sim.cluster.controllers.writes import Outcome, Tell, UpdateStatus, Write, with_status
from hack.sim.cluster.resource import POD_DISRUPTION_BUDGETS, PODS
from hack.sim.cluster.store.selectors import matches

DELETION_TIMEOUT = timedelta(minutes=2)
STALE_TARGET = timedelta(minutes=2)
NAME = "controllermanager"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How many replicas the controller of a pod wants; it counts once per UID."""

    uid: str
    replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NoScale:
    """Why the controller of a pod cannot be asked for its size: fails the whole budget."""

    why: str


ScaleOf = Callable[[Object], Scale | NoScale | None]


def selected_pods(budget: Object, pods: list[Object]) -> list[Object]:
    """The pods of the budget's namespace that its selector selects (`{}` selects all)."""
    selector = budget["spec"].get("selector")
    return [pod for pod in pods if matches(selector, pod["metadata"].get("labels") or {})]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """How many pods a budget counts on, how many must be healthy, which have no controller."""

    pods: int
    healthy: int
    unmanaged: tuple[str, ...] = ()


def expected(budget: Object, pods: list[Object], scale_of: ScaleOf) -> Expected | NoScale:
    """What the budget asks for: from pod counts (integer minAvailable) or from controllers."""
    spec = budget["spec"]
    most_out, least_in = spec.get("maxUnavailable"), spec.get("minAvailable")
    if most_out is None and not _is_percentage(least_in):
        return Expected(pods=len(pods), healthy=int(least_in or 0))
    total: dict[str, int] = {}
    unmanaged: list[str] = []
    for pod in pods:
        if controller_of(pod) is None:
            unmanaged.append(pod["metadata"]["name"])
            continue
        scale = scale_of(pod)
        if isinstance(scale, NoScale):
            return scale
        if scale is None:
            return NoScale(why=f'found no controllers for pod "{pod["metadata"]["name"]}"')
        total[scale.uid] = scale.replicas
    count = sum(total.values())
    if most_out is not None:
        healthy = max(count - share(most_out, count, round_up=True), 0)
    else:
        healthy = share(str(least_in), count, round_up=True)
    return Expected(pods=count, healthy=healthy, unmanaged=tuple(unmanaged))


def _is_percentage(value: object) -> bool:
    return isinstance(value, str) and value.endswith("%")


def reconcile(budget: Object, pods: list[Object], scale_of: ScaleOf, now: datetime) -> Outcome:
    """The status a budget should have now, its events, and when a disrupted pod expires."""
    tell: list[Write] = []
    if not pods and not _is_observed(budget):
        tell.append(_tell(budget, "Normal", "NoPods", "No matching pods found"))
    wanted = expected(budget, pods, scale_of)
    if isinstance(wanted, NoScale):
        return _failed(budget, wanted.why, now)
    if wanted.unmanaged and not _is_observed(budget):
        tell.append(_tell(budget, "Warning", "UnmanagedPods", _unmanaged_text(wanted.unmanaged)))
    disrupted, expires_s, not_deleted = _disrupted(budget, pods, now)
    tell += [
        _tell(
            pod,
            "Warning",
            "NotDeleted",
            f"Pod was expected by PDB {budget['metadata']['namespace']}/"
            f"{budget['metadata']['name']} to be deleted but it wasn't",
        )
        for pod in not_deleted
    ]
    healthy = sum(
        1
        for pod in pods
        if pod_state.is_ready(pod)
        and not pod_state.is_terminating(pod)
        and pod["metadata"]["name"] not in disrupted
    )
    allowed = max(healthy - wanted.healthy, 0) if wanted.pods > 0 else 0
    old = budget.get("status") or {}
    entry = {
        "type": "DisruptionAllowed",
        "status": str(allowed > 0),
        "reason": "SufficientPods" if allowed > 0 else "InsufficientPods",
        "message": "",
        "observedGeneration": budget["metadata"].get("generation", 1),
    }
    status = {
        "observedGeneration": budget["metadata"].get("generation", 1),
        "disruptionsAllowed": allowed,
        "currentHealthy": healthy,
        "desiredHealthy": wanted.healthy,
        "expectedPods": wanted.pods,
        "conditions": pod_state.with_condition(old.get("conditions"), entry, stamp(now)),
    }
    if disrupted:
        status["disruptedPods"] = disrupted
    return Outcome(writes=(*_put_if_changed(budget, status), *tell), again_in_s=expires_s)


def _failed(budget: Object, why: str, now: datetime) -> Outcome:
    """No disruption is allowed while the budget cannot be computed; observedGeneration stays."""
    old = budget.get("status") or {}
    entry = {
        "type": "DisruptionAllowed",
        "status": "False",
        "reason": "SyncFailed",
        "message": why,
    }
    if old.get("observedGeneration"):
        entry["observedGeneration"] = old["observedGeneration"]
    status = {
        "currentHealthy": 0,
        "desiredHealthy": 0,
        "expectedPods": 0,
        **old,
        "disruptionsAllowed": 0,
        "conditions": pod_state.with_condition(old.get("conditions"), entry, stamp(now)),
    }
    writes = _put_if_changed(budget, status)
    if writes:
        message = f"Failed to calculate the number of expected pods: {why}"
        told = _tell(budget, "Warning", "CalculateExpectedPodCountFailed", message)
        writes = [*writes, told]
    return Outcome(writes=tuple(writes))


def _disrupted(
    budget: Object, pods: list[Object], now: datetime
) -> tuple[dict[str, str], float | None, list[Object]]:
    """Evictions allowed lately whose pods are not terminating yet, the next expiry, the
    expired.
    """
    known: Mapping[str, str] = (budget.get("status") or {}).get("disruptedPods") or {}
    pending: dict[str, str] = {}
    not_deleted: list[Object] = []
    waits: list[float] = []
    for pod in pods:
        name = pod["metadata"]["name"]
        if name not in known or pod_state.is_terminating(pod):
            continue
        left_s = (parse_stamp(known[name]) + DELETION_TIMEOUT - now).total_seconds()
        if left_s <= 0:
            not_deleted.append(pod)
        else:
            pending[name] = known[name]
            waits.append(left_s)
    return pending, min(waits, default=None), not_deleted


def _put_if_changed(budget: Object, status: Object) -> list[Write]:
    if status == budget.get("status"):
        return []
    return [UpdateStatus(resource=POD_DISRUPTION_BUDGETS, body=with_status(budget, status))]


def _is_observed(budget: Object) -> bool:
    status = budget.get("status") or {}
    return bool(status.get("observedGeneration") == budget["metadata"].get("generation", 1))


def _unmanaged_text(names: tuple[str, ...]) -> str:
    shown = ", ".join(sorted(names)[:3])
    return (
        f"{len(names)} selected pods have no controller ({shown}), so they do not count for "
        "this budget; set .spec.minAvailable to an integer to count them"
    )


def _tell(about: Object, kind: str, reason: str, message: str) -> Tell:
    return Tell(about=about, kind=kind, reason=reason, message=message, component=NAME)


def reset_stale_target(pod: Object, now: datetime) -> Outcome:
    """DisruptionTarget goes back to False on a pod that nobody deleted within two minutes."""
    target = pod_state.condition(pod, "DisruptionTarget")
    if (
        target is None
        or target["status"] != "True"
        or pod_state.is_terminating(pod)
        or pod_state.is_finished(pod)
    ):
        return Outcome()
    left_s = (parse_stamp(target["lastTransitionTime"]) + STALE_TARGET - now).total_seconds()
    if left_s > 0:
        return Outcome(again_in_s=left_s)
    status = pod["status"]
    entry = {"type": "DisruptionTarget", "status": "False"}
    conditions = pod_state.with_condition(status["conditions"], entry, stamp(now))
    body = with_status(pod, {**status, "conditions": conditions})
    return Outcome(writes=(UpdateStatus(resource=PODS, body=body),))


def several_budgets(pod: Object, budgets: list[Object]) -> list[Write]:
    """The event on a pod that more than one budget selects (its eviction answers 500)."""
    if len(budgets) < 2:
        return []
    meta = pod["metadata"]
    message = (
        f'Pod "{meta["namespace"]}"/"{meta["name"]}" matches multiple PodDisruptionBudgets.  '
        f'Chose "{budgets[0]["metadata"]["name"]}" arbitrarily.'
    )
    return [_tell(pod, "Warning", "MultiplePodDisruptionBudgets", message)]
