"""The answers of the Eviction API and what it writes on the pod and its budget.

Called by `eviction`.  Wording and details are the protocol: clients tell the cases apart by them.
"""

from __future__ import annotations

from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.store.kinds import Object

STALE_RETRY_AFTER_S = 10

_MULTIPLE = (
    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not "
    "support."
)
_VIOLATION = "Cannot evict pod as it would violate the pod's disruption budget."


def multiple_budgets() -> ApiError:
    """500 without a reason: the pod has more than one budget."""
    return ApiError(500, "", _MULTIPLE)


def ignores_budgets(pod: Object) -> bool:
    """Whether the pod's phase or deletion takes it out of every budget's protection."""
    phase = (pod.get("status") or {}).get("phase")
    return phase in {"Succeeded", "Failed", "Pending"} or bool(
        pod["metadata"].get("deletionTimestamp")
    )


def is_ready(pod: Object) -> bool:
    """Whether the pod reports Ready."""
    return any(
        one.get("type") == "Ready" and one.get("status") == "True"
        for one in (pod.get("status") or {}).get("conditions") or []
    )


def too_many(cause: str, retry_after_s: int | None) -> ApiError:
    """429 with its cause; `Retry-After` only where waiting is known to help."""
    details: Object = {"causes": [{"reason": "DisruptionBudget", "message": cause}]}
    headers = {}
    if retry_after_s:
        details["retryAfterSeconds"] = retry_after_s
        headers["Retry-After"] = str(retry_after_s)
    return ApiError(429, "TooManyRequests", _VIOLATION, details, headers=headers)


def stale(name: str) -> ApiError:
    """429: the budget's status lags behind its spec."""
    return too_many(
        f"The disruption budget {name} is still being processed by the server.",
        STALE_RETRY_AFTER_S,
    )


def refusal(name: str, status: Object) -> str:
    """Why a budget allows no disruption, in the server's words."""
    allowed = next(
        (
            one
            for one in status.get("conditions") or []
            if one.get("type") == "DisruptionAllowed" and one.get("status") == "False"
        ),
        None,
    )
    subject = f"The disruption budget {name}"
    if allowed is not None and allowed.get("reason") == "SyncFailed":
        return (
            f"{subject} does not allow evicting pods currently because it failed sync: "
            f"{allowed.get('message', '')}"
        )
    current, desired = status.get("currentHealthy") or 0, status.get("desiredHealthy") or 0
    if current <= desired:
        return f"{subject} needs {desired} healthy pods and has {current} currently"
    text = f"{subject} does not allow evicting pods currently"
    if allowed is not None and allowed.get("message"):
        text += f" ({allowed.get('reason', '')}): {allowed['message']}"
    return text


def charged_status(status: Object, pod_name: str, now: str) -> Object:
    """The budget's status after one disruption was taken from it."""
    allowed = status["disruptionsAllowed"] - 1
    result = {
        **status,
        "disruptionsAllowed": allowed,
        "disruptedPods": {**(status.get("disruptedPods") or {}), pod_name: now},
    }
    if allowed == 0:
        conditions = [
            one for one in status.get("conditions") or [] if one.get("type") != "DisruptionAllowed"
        ]
        conditions.append(
            {
                "type": "DisruptionAllowed",
                "status": "False",
                "observedGeneration": status.get("observedGeneration") or 0,
                "lastTransitionTime": now,
                "reason": "InsufficientPods",
                "message": "",
            }
        )
        result["conditions"] = conditions
    return result


def with_disruption_target(status: Object, now: str) -> Object:
    """The pod's status saying that the eviction API takes it."""
    present = status.get("conditions") or []
    if any(
        one.get("type") == "DisruptionTarget"
        and one.get("status") == "True"
        and one.get("reason") == "EvictionByEvictionAPI"
        for one in present
    ):
        return status
    conditions = [one for one in present if one.get("type") != "DisruptionTarget"]
    conditions.append(
        {
            "type": "DisruptionTarget",
            "status": "True",
            "lastProbeTime": None,
            "lastTransitionTime": now,
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
        }
    )
    return {**status, "conditions": conditions}
