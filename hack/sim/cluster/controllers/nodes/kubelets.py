"""Fake kubelets for a whole fleet in one loop, and the ways in which a node can go wrong.

It follows pods with one watch and sends no heartbeats: idle fleets should be idle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

from hack.sim.cluster.clients.client import ApiError, Client, Object
from hack.sim.cluster.controllers import pods as pod_state
from hack.sim.cluster.controllers.caches import Caches, Key, key_of
from hack.sim.cluster.controllers.nodes.kubelet import KubeletSettings, PodMemory, act
from hack.sim.cluster.controllers.nodes.node_objects import (
    node_info,
    ready_conditions,
    silent_conditions,
)
from hack.sim.cluster.controllers.running import Clock, Controller, Runner
from hack.sim.cluster.controllers.writes import NOTHING, Outcome
from hack.sim.cluster.resource import NODES, PODS

_ATTEMPTS = 10


class Kubelets:
    """All the kubelets of a simulated fleet."""

    def __init__(
        self,
        client: Client,
        caches: Caches,
        clock: Clock,
        settings: KubeletSettings | None = None,
        seed: int = 0,
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
            seed,
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

    async def speak_again(self, node: str) -> None:
        """The kubelet is back in the same boot and does what it missed."""
        self._silent.discard(node)
        await self._put_node_status(node, lambda status: self._alive(node, status))
        self._look_at_pods_of(node)

    async def reboot(self, node: str) -> None:
        """The machine restarts: silent, then another bootID, its pods' containers start again."""
        await self.fall_silent(node)
        self._boots[node] = self._boots.get(node, 0) + 1
        for pod in self._caches[PODS].on_node(node):
            uid = pod["metadata"]["uid"]
            self._memory.setdefault(
                uid, PodMemory(seen_at=self._clock(), boot=self._boots[node] - 1)
            )
        await self.speak_again(node)

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
