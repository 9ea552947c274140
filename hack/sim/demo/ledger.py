"""Keep the newest objects of the cluster and when things happened, while the demo runs.

Fed by watches of the API server, like any other observer: nothing here knows what the programs
intend, only what they wrote.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from hack.sim.cluster.client import Object
from hack.sim.cluster.controllers.caches import Caches, key_of
from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.fleet.fleet_health import GPU_NODE_HEALTHS
from hack.sim.cluster.resource import NODES, PODS, Resource
from rules.api.names import (
    ANNOTATION_SESSION,
    CONDITION_DEGRADED,
    CONDITION_HEALTHY,
    GROUP,
    TAINT_QUARANTINE,
    VERSION,
)
from rules.api.quarantine import Phase

GPU_QUARANTINES = Resource(GROUP, VERSION, "gpuquarantines", False, "GPUQuarantine")


class Ledger:
    """The newest state of nodes, health statuses, sessions and pods, and first times by node."""

    def __init__(self, caches: Caches) -> None:
        self.nodes: dict[str, Object] = {}
        self.healths: dict[str, Object] = {}
        self.sessions: dict[str, Object] = {}
        self.pods: dict[tuple[str, str], Object] = {}
        self.unschedulable_at: dict[str, float] = {}
        self.phases: dict[str, list[str]] = {}
        """Phases every node's sessions went through, in order."""
        for resource, objects in (
            (NODES, self.nodes),
            (GPU_NODE_HEALTHS, self.healths),
            (GPU_QUARANTINES, self.sessions),
            (PODS, self.pods),
        ):
            caches[resource].subscribe(partial(_keep, objects))
        caches[NODES].subscribe(self._note_cordon)
        caches[GPU_QUARANTINES].subscribe(self._note_phase)

    def _note_cordon(self, _: Object | None, node: Object | None) -> None:
        if node is not None and node["spec"].get("unschedulable"):
            self.unschedulable_at.setdefault(node["metadata"]["name"], time.monotonic())

    def _note_phase(self, _: Object | None, session: Object | None) -> None:
        phase = (session or {}).get("status", {}).get("phase", "")
        if session is not None and phase:
            seen = self.phases.setdefault(session["spec"]["nodeName"], [])
            if seen[-1:] != [phase]:
                seen.append(phase)

    def quarantined(self, node: str) -> bool:
        """The node carries taint, cordon and annotation of gpuward."""
        found = self.nodes.get(node)
        if found is None:
            return False
        taints = {taint["key"] for taint in found["spec"].get("taints", ())}
        annotations = found["metadata"].get("annotations") or {}
        return (
            bool(found["spec"].get("unschedulable"))
            and TAINT_QUARANTINE in taints
            and ANNOTATION_SESSION in annotations
        )

    def clean(self, node: str) -> bool:
        """The node is schedulable and carries nothing of our taint and cordon."""
        found = self.nodes.get(node)
        if found is None or found["spec"].get("unschedulable"):
            return False
        taints = {taint["key"] for taint in found["spec"].get("taints", ())}
        return TAINT_QUARANTINE not in taints and ANNOTATION_SESSION not in (
            found["metadata"].get("annotations") or {}
        )

    def condition(self, node: str, kind: str) -> str:
        """Status of one of the agent's conditions, "" before the first."""
        conditions = self.nodes.get(node, {}).get("status", {}).get("conditions", ())
        return next((c["status"] for c in conditions if c["type"] == kind), "")

    def healthy(self, node: str) -> str:
        """Status of GPUHealthy."""
        return self.condition(node, CONDITION_HEALTHY)

    def degraded(self, node: str) -> str:
        """Status of GPUDegraded."""
        return self.condition(node, CONDITION_DEGRADED)

    def asks(self, node: str, kind: str) -> bool:
        """Whether the node carries a request for its repair."""
        return self.condition(node, kind) == "True"

    def resets(self, node: str) -> bool:
        """Whether a Job resets GPUs of the node."""
        return any(
            is_reset(pod) and pod["spec"].get("nodeName") == node for pod in self.pods.values()
        )

    def incidents(self, node: str) -> list[Object]:
        """The incidents the node's agent publishes."""
        found: list[Object] = self.healths.get(node, {}).get("status", {}).get("incidents", [])
        return found

    def session(self, node: str) -> Object | None:
        """The node's open session, else its latest."""
        mine = [s for s in self.sessions.values() if s["spec"]["nodeName"] == node]
        mine.sort(key=lambda s: s["metadata"]["creationTimestamp"])
        ended = {str(phase) for phase in Phase if phase.ended}
        live = [s for s in mine if s.get("status", {}).get("phase") not in ended]
        found = live or mine
        return found[-1] if found else None

    def status(self, node: str) -> dict[str, Any]:
        """Status of that session, empty without one."""
        found = self.session(node)
        status: dict[str, Any] = (found or {}).get("status", {})
        return status

    def session_condition(self, node: str, kind: str) -> Object | None:
        """A condition of the session that is True."""
        for condition in self.status(node).get("conditions", ()):
            if condition["type"] == kind and condition["status"] == "True":
                return dict(condition)
        return None

    def running_on(self, node: str, namespace: str) -> list[str]:
        """Names of the namespace's pods on the node that are not on their way out."""
        return sorted(
            name
            for (space, name), pod in self.pods.items()
            if space == namespace
            and pod["spec"].get("nodeName") == node
            and "deletionTimestamp" not in pod["metadata"]
            and pod.get("status", {}).get("phase") not in {"Succeeded", "Failed"}
        )


def is_reset(pod: Object) -> bool:
    """Whether it is the pod of a Job that resets GPUs."""
    labels = pod["metadata"].get("labels") or {}
    return labels.get("app.kubernetes.io/component") == "reset-gpu"


def _keep(objects: dict[Any, Object], old: Object | None, new: Object | None) -> None:
    obj = new or old
    if obj is None:
        return
    namespace, name = key_of(obj)
    key = (namespace, name) if namespace else name
    if new is None:
        objects.pop(key, None)
    else:
        objects[key] = new


async def until(
    holds: Callable[[], bool],
    *,
    within_s: float,
    step: Callable[[], Awaitable[None]] | None = None,
) -> bool:
    """Wait for something to become true; False when it did not in time."""
    deadline = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > deadline:
            return False
        if step is not None:
            with contextlib.suppress(ApiError):
                await step()
        await asyncio.sleep(0.05)
    return True
