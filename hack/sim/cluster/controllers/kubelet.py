"""Fake kubelets: what one does with its pods, and all of a fleet in one loop.

`act` is pure: it looks at the pod as the API has it and at what this kubelet remembers of it, and
returns the writes and the time of the next sync. `Kubelets` runs it for many nodes.

Annotations on a pod change its behaviour:

| annotation | value | meaning |
|---|---|---|
| `sim.gpuward.io/finish-after` | seconds | ends by itself that long after its start |
| `sim.gpuward.io/exit-code` | integer | with which code it ends by itself |
| `sim.gpuward.io/message` | text | what it leaves in its termination log then |
"""

import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from hack.sim.cluster.client import Client, Object
from hack.sim.cluster.controllers import pods as pod_state
from hack.sim.cluster.controllers.caches import Caches, Key, key_of
from hack.sim.cluster.controllers.nodes import (
    node_info,
    node_ip,
    ready_conditions,
    silent_conditions,
)
from hack.sim.cluster.controllers.pods import controller_of, parse_stamp, stamp
from hack.sim.cluster.controllers.running import (
    NOTHING,
    Clock,
    Controller,
    Delete,
    Outcome,
    Runner,
    UpdateStatus,
    Write,
    with_status,
)
from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.resource import NODES, PODS

PREFIX = "sim.gpuward.io/"
SIGTERM_EXIT, SIGKILL_EXIT = 143, 137


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletSettings:
    """How long things take on every node."""

    start_s: float = 0.0
    stop_s: float = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class PodMemory:
    """What a kubelet knows of a pod beyond the API: since when, and in which boot of its node."""

    seen_at: datetime
    boot: int
    stopping_since: datetime | None = None


def act(
    pod: Object, memory: PodMemory, boot: int, settings: KubeletSettings, now: datetime
) -> tuple[Outcome, PodMemory]:
    """The next step for one pod of this node, and what to remember of it."""
    if pod_state.is_terminating(pod):
        memory = replace(memory, stopping_since=memory.stopping_since or now)
        return _stop(pod, memory, boot, settings, now), memory
    if pod_state.is_finished(pod):
        return Outcome(), memory
    if pod_state.phase(pod) != "Running":
        wait_s = settings.start_s - (now - memory.seen_at).total_seconds()
        if wait_s > 0:
            return Outcome(again_in_s=wait_s), memory
        return _run(pod, restarts=0, now=now), replace(memory, boot=boot)
    if memory.boot != boot:
        if pod["spec"].get("restartPolicy") == "Never":
            ended = _ended_status(pod, SIGKILL_EXIT, now)
            return Outcome(writes=(_put(pod, ended),)), replace(memory, boot=boot)
        restarts = _restart_count(pod) + 1
        return _run(pod, restarts=restarts, now=now), replace(memory, boot=boot)
    return _finish(pod, now), memory


def _run(pod: Object, *, restarts: int, now: datetime) -> Outcome:
    status = pod.get("status") or {}
    ip = pod_ip(pod["metadata"]["uid"])
    state = {"running": {"startedAt": stamp(now)}}
    conditions = status.get("conditions")
    for kind in (
        "PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled",
    ):  # fmt: skip
        entry = {"type": kind, "status": "True"}
        conditions = pod_state.with_condition(conditions, entry, stamp(now))
    new = {
        **status,
        "phase": "Running",
        "conditions": conditions,
        "hostIP": status.get("hostIP") or node_ip(pod_state.node_of(pod)),
        "podIP": ip,
        "podIPs": [{"ip": ip}],
        "startTime": status.get("startTime") or stamp(now),
        "containerStatuses": _containers(pod, state, ready=True, restarts=restarts),
    }
    delay = _finish_after_s(pod)
    again_in_s = None if delay is None else max(delay, 0.001)
    return Outcome(writes=(_put(pod, new),), again_in_s=again_in_s)


def _finish(pod: Object, now: datetime) -> Outcome:
    after_s = _finish_after_s(pod)
    if after_s is None:
        return Outcome()
    end = parse_stamp(_started_at(pod)) + timedelta(seconds=after_s)
    if now < end:
        return Outcome(again_in_s=(end - now).total_seconds())
    status = _ended_status(pod, _exit_code(pod), now, _annotation(pod, "message") or "")
    return Outcome(writes=(_put(pod, status),))


def _stop(
    pod: Object, memory: PodMemory, boot: int, settings: KubeletSettings, now: datetime
) -> Outcome:
    """A terminating pod: containers stop, then the object goes (or waits for its finalizers)."""
    meta = pod["metadata"]
    grace_s = float(meta.get("deletionGracePeriodSeconds") or 0)
    stop_s = min(settings.stop_s, grace_s)
    since = memory.stopping_since or now
    wait_s = stop_s - (now - since).total_seconds()
    if memory.boot == boot and wait_s > 0 and not pod_state.is_finished(pod):
        return Outcome(again_in_s=wait_s)
    writes: list[Write] = []
    if not pod_state.is_finished(pod) and _exit_matters(pod):
        writes.append(_put(pod, _ended_status(pod, SIGTERM_EXIT, now)))
    if grace_s > 0 or not meta.get("finalizers"):
        writes.append(Delete(resource=PODS, target=pod, grace_s=0))
    return Outcome(writes=tuple(writes))


def _exit_matters(pod: Object) -> bool:
    """Somebody reads the exit code after the deletion: a Job, or the owner of a finalizer."""
    owner = controller_of(pod)
    return bool(pod["metadata"].get("finalizers")) or (owner or {}).get("kind") == "Job"


def _ended_status(pod: Object, exit_code: int, now: datetime, message: str = "") -> Object:
    status = pod.get("status") or {}
    reason = "Completed" if exit_code == 0 else "Error"
    ended = {
        "exitCode": exit_code,
        "reason": reason,
        "startedAt": _started_at(pod) or stamp(now),
        "finishedAt": stamp(now),
    }
    if message:
        ended["message"] = message
    conditions = status.get("conditions")
    for kind in ("Ready", "ContainersReady"):
        entry = {
            "type": kind,
            "status": "False",
            "reason": "PodCompleted" if exit_code == 0 else "PodFailed",
        }
        conditions = pod_state.with_condition(conditions, entry, stamp(now))
    return {
        **status,
        "phase": "Succeeded" if exit_code == 0 else "Failed",
        "conditions": conditions,
        "containerStatuses": _containers(
            pod, {"terminated": ended}, ready=False, restarts=_restart_count(pod)
        ),
    }


def _containers(pod: Object, state: Object, *, ready: bool, restarts: int) -> list[Object]:
    return [
        {
            "name": container["name"],
            "image": container.get("image", ""),
            "imageID": "",
            "containerID": f"containerd://{zlib.crc32(container['name'].encode()):08x}",
            "ready": ready,
            "started": "running" in state,
            "restartCount": restarts,
            "state": state,
            "lastState": {},
        }
        for container in pod["spec"].get("containers") or ()
    ]


def _restart_count(pod: Object) -> int:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return max((int(entry.get("restartCount") or 0) for entry in statuses), default=0)


def _started_at(pod: Object) -> str:
    for entry in (pod.get("status") or {}).get("containerStatuses") or ():
        started = ((entry.get("state") or {}).get("running") or {}).get("startedAt")
        if started:
            return str(started)
    return str((pod.get("status") or {}).get("startTime") or "")


def _put(pod: Object, status: Object) -> UpdateStatus:
    return UpdateStatus(resource=PODS, body=with_status(pod, status))


def _annotation(pod: Object, name: str) -> str | None:
    value = (pod["metadata"].get("annotations") or {}).get(PREFIX + name)
    return None if value is None else str(value)


def _finish_after_s(pod: Object) -> float | None:
    text = _annotation(pod, "finish-after")
    return None if text is None else float(text)


def _exit_code(pod: Object) -> int:
    return int(_annotation(pod, "exit-code") or 0)


def pod_ip(uid: str) -> str:
    """An address of the simulated pod network that stays the same for one pod."""
    number = zlib.crc32(uid.encode())
    return f"10.{128 + number % 64}.{number >> 8 & 255}.{number >> 16 & 255}"


_ATTEMPTS = 10


class Kubelets:
    """All the kubelets of a simulated fleet."""

    def __init__(
        self,
        client: Client,
        caches: Caches,
        clock: Clock,
        settings: KubeletSettings | None = None,
    ) -> None:
        self._client = client
        self._caches = caches
        self._clock = clock
        self._settings = settings or KubeletSettings()
        self._memory: dict[str, PodMemory] = {}
        self._boots: dict[str, int] = {}
        self._silent: set[str] = set()
        self._runner = Runner(
            Controller(
                name="kubelets",
                routes={PODS: _bound_pod, NODES: _pods_of_new_node},
                reconcile=self._reconcile,
                workers=32,
            ),
            client,
            caches,
            clock,
        )

    def subscribe(self) -> None:
        """Follow pods."""
        self._runner.subscribe()
        self._caches[PODS].subscribe(self._pod_gone)

    async def run(self) -> None:
        """Serve the nodes for ever."""
        await self._runner.run()

    def _reconcile(self, key: Key, caches: Caches, now: datetime) -> Outcome:
        pod = caches[PODS].get(key)
        if pod is None:
            return NOTHING
        node, uid = pod_state.node_of(pod), pod["metadata"]["uid"]
        if node in self._silent or not caches[NODES].get(("", node)):
            return NOTHING
        boot = self._boots.get(node, 0)
        memory = self._memory.get(uid) or PodMemory(seen_at=now, boot=boot)
        outcome, self._memory[uid] = act(pod, memory, boot, self._settings, now)
        return outcome

    def _pod_gone(self, old: Object | None, new: Object | None) -> None:
        if old is not None and new is None:
            self._memory.pop(old["metadata"]["uid"], None)

    async def fall_silent(self, node: str) -> None:
        """The kubelet dies: Ready=Unknown, pods stay as they are."""
        self._silent.add(node)
        await self._put_node_status(
            node,
            lambda status: {
                **status,
                "conditions": silent_conditions(status["conditions"], self._clock()),
            },
        )

    async def reboot(self, node: str) -> None:
        """The machine restarts: silent, then another bootID, its pods' containers start again."""
        await self.fall_silent(node)
        self._boots[node] = self._boots.get(node, 0) + 1
        for pod in self._caches[PODS].on_node(node):
            uid = pod["metadata"]["uid"]
            self._memory.setdefault(
                uid, PodMemory(seen_at=self._clock(), boot=self._boots[node] - 1)
            )
        self._silent.discard(node)
        await self._put_node_status(node, lambda status: self._alive(node, status))
        self._look_at_pods_of(node)

    def _alive(self, node: str, status: Object) -> Object:
        conditions = ready_conditions(
            status.get("conditions") or [], ready=True, now=self._clock()
        )
        info = node_info(node, boot=self._boots.get(node, 0))
        return {**status, "conditions": conditions, "nodeInfo": info}

    def _look_at_pods_of(self, node: str) -> None:
        for pod in self._caches[PODS].on_node(node):
            self._runner.queue.add(key_of(pod))

    async def _put_node_status(self, node: str, change: Callable[[Object], Object]) -> None:
        for attempt in range(_ATTEMPTS):
            present = await self._client.get(NODES, node)
            try:
                await self._client.update_status(
                    NODES, {**present, "status": change(present.get("status") or {})}
                )
            except ApiError as error:
                if error.code != 409 or attempt == _ATTEMPTS - 1:
                    raise
            else:
                return


def _bound_pod(old: Object | None, new: Object | None, caches: Caches) -> Iterable[Key]:
    if new is not None and pod_state.node_of(new):
        yield key_of(new)


def _pods_of_new_node(old: Object | None, new: Object | None, caches: Caches) -> Iterable[Key]:
    if old is None and new is not None:
        for pod in caches[PODS].on_node(new["metadata"]["name"]):
            yield key_of(pod)
