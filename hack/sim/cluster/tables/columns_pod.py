"""What `kubectl get pods` says about a pod.

Cells of the pod table only; nothing is decided from these texts.
"""

from __future__ import annotations

from typing import Any

from hack.sim.cluster.store.timestamps import age

Object = dict[str, Any]


def _statuses(pod: Object, field: str = "containerStatuses") -> list[Object]:
    return (pod.get("status") or {}).get(field) or []


def pod_ready(pod: Object, _: float) -> str:
    """Ready containers of all containers."""
    ready = sum(
        1
        for one in _statuses(pod)
        if one.get("ready") and "running" in (one.get("state") or {"running": {}})
    )
    return f"{ready}/{len((pod.get('spec') or {}).get('containers') or [])}"


def pod_restarts(pod: Object, now: float) -> str:
    """How often its containers restarted, and when last."""
    restarts = sum(int(one.get("restartCount") or 0) for one in _statuses(pod))
    ends = [
        finished
        for one in _statuses(pod)
        if (finished := ((one.get("lastState") or {}).get("terminated") or {}).get("finishedAt"))
    ]
    return f"{restarts} ({age(max(ends), now)} ago)" if restarts and ends else str(restarts)


def pod_status(pod: Object, _: float) -> str:
    """The phase, or the more telling reason of a container or the deletion."""
    status = pod.get("status") or {}
    reason = str(status.get("reason") or status.get("phase") or "")
    if reason == "Pending" and any(
        one.get("type") == "PodScheduled" and one.get("reason") == "SchedulingGated"
        for one in status.get("conditions") or []
    ):
        reason = "SchedulingGated"
    reason = _init_reason(pod) or _container_reason(pod, reason)
    if pod["metadata"].get("deletionTimestamp"):
        return "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    return reason


def _init_reason(pod: Object) -> str:
    statuses = _statuses(pod, "initContainerStatuses")
    for index, one in enumerate(statuses):
        state = one.get("state") or {}
        ended = state.get("terminated")
        if ended is not None and not ended.get("exitCode"):
            continue
        if one.get("started"):
            continue
        if ended is not None:
            why = ended.get("reason") or f"ExitCode:{ended.get('exitCode')}"
            return f"Init:{why}"
        waiting = (state.get("waiting") or {}).get("reason")
        if waiting and waiting != "PodInitializing":
            return f"Init:{waiting}"
        return f"Init:{index}/{len((pod.get('spec') or {}).get('initContainers') or statuses)}"
    return ""


def _container_reason(pod: Object, reason: str) -> str:
    running = False
    for one in reversed(_statuses(pod)):
        state = one.get("state") or {}
        waiting, ended = state.get("waiting") or {}, state.get("terminated")
        if waiting.get("reason"):
            reason = waiting["reason"]
        elif ended is not None:
            signal = ended.get("signal")
            code = f"Signal:{signal}" if signal else f"ExitCode:{ended.get('exitCode', 0)}"
            reason = ended.get("reason") or code
        elif one.get("ready") and "running" in state:
            running = True
    if reason == "Completed" and running:
        ready = any(
            one.get("type") == "Ready" and one.get("status") == "True"
            for one in (pod.get("status") or {}).get("conditions") or []
        )
        return "Running" if ready else "NotReady"
    return reason
