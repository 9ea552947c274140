"""The scheduler: gives each waiting pod a node, or reports in one sentence why none fits.

`refusal` is whether a pod may and can run on a node (cordon, taints, selectors, affinity,
resources; no pod affinity, spreading or volumes); `choose` decides among nodes. Large fleets are
sampled as in kube-scheduler: the search starts where the last one ended and stops after enough
fitting nodes.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from hack.sim.cluster.client import Client, Object
from hack.sim.cluster.controllers import pods as pod_state
from hack.sim.cluster.controllers.caches import CONNECTION_TROUBLE, Caches, Key, key_of
from hack.sim.cluster.controllers.running import (
    Bind,
    Clock,
    UpdateStatus,
    Write,
    send_and_remember,
    with_status,
)
from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.resource import NODES, PODS
from hack.sim.cluster.store.selectors import requirement_of

UNSCHEDULABLE_TAINT = "node.kubernetes.io/unschedulable"
KEEPS_AWAY = ("NoSchedule", "NoExecute")


def tolerates(tolerations: Iterable[Object], taint: Object) -> bool:
    """Whether any of the tolerations tolerates the taint (Kubernetes toleration rules)."""
    return any(_tolerates_one(toleration, taint) for toleration in tolerations)


def _tolerates_one(toleration: Object, taint: Object) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    key = toleration.get("key") or ""
    if key and key != taint["key"]:
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return True
    return bool(key) and (toleration.get("value") or "") == (taint.get("value") or "")


def untolerated(
    pod_spec: Object, node: Object, effects: tuple[str, ...] = KEEPS_AWAY
) -> Object | None:
    """The first taint of the node with one of these effects that the pod does not tolerate."""
    tolerations = pod_spec.get("tolerations") or ()
    for taint in node.get("spec", {}).get("taints") or ():
        if taint["effect"] in effects and not tolerates(tolerations, taint):
            return dict(taint)
    return None


def is_cordoned_for(pod_spec: Object, node: Object) -> bool:
    """The node is unschedulable and the pod does not tolerate that."""
    if not node.get("spec", {}).get("unschedulable"):
        return False
    cordon = {"key": UNSCHEDULABLE_TAINT, "effect": "NoSchedule"}
    return not tolerates(pod_spec.get("tolerations") or (), cordon)


def selects(pod_spec: Object, node: Object) -> bool:
    """nodeSelector and required node affinity both accept the node."""
    labels: Mapping[str, str] = node["metadata"].get("labels") or {}
    for key, value in (pod_spec.get("nodeSelector") or {}).items():
        if labels.get(key) != value:
            return False
    required = _required_affinity(pod_spec)
    if required is None:
        return True
    return any(
        _term_holds(term, labels, node["metadata"]["name"])
        for term in required.get("nodeSelectorTerms") or ()
    )


def pinned_node(pod_spec: Object) -> str | None:
    """The one node that required affinity names by metadata.name, as DaemonSet pods have it."""
    required = _required_affinity(pod_spec)
    terms: list[Object] = (required or {}).get("nodeSelectorTerms") or []
    if len(terms) != 1:
        return None
    for requirement in terms[0].get("matchFields") or ():
        values: list[str] = requirement.get("values") or []
        if requirement["operator"] == "In" and len(values) == 1:
            return values[0]
    return None


def _required_affinity(pod_spec: Object) -> Object | None:
    affinity = (pod_spec.get("affinity") or {}).get("nodeAffinity") or {}
    required: Object | None = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return required


def _term_holds(term: Object, labels: Mapping[str, str], name: str) -> bool:
    expressions = term.get("matchExpressions") or ()
    fields = term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    return all(requirement_of(entry).matches(labels) for entry in expressions) and all(
        requirement_of(entry).matches({"metadata.name": name}) for entry in fields
    )


@dataclass(slots=True)
class NodeRoom:
    """What a node offers and what its pods already take; changed only by its scheduler."""

    node: Object
    allocatable: dict[str, int]
    used: dict[str, int] = field(default_factory=dict)
    pods: dict[str, dict[str, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, node: Object) -> NodeRoom:
        """An empty node."""
        return cls(node=node, allocatable=allocatable(node))

    def lacking(self, requests: Mapping[str, int]) -> list[str]:
        """The resources of which the node has too little left; `pods` counts too."""
        short = [
            name
            for name, value in requests.items()
            if value and value > self.allocatable.get(name, 0) - self.used.get(name, 0)
        ]
        if len(self.pods) >= self.allocatable.get("pods", 110):
            short.append("pods")
        return short

    def take(self, pod: Object) -> None:
        """Count a pod of this node; a finished one takes nothing."""
        uid = pod["metadata"]["uid"]
        if pod_state.is_finished(pod) or not pod_state.node_of(pod):
            self.release(uid)
        elif uid not in self.pods:
            self.reserve(uid, pod_state.resource_requests(pod))

    def reserve(self, uid: str, requests: dict[str, int]) -> None:
        """Count a pod that is about to be bound here."""
        self.pods[uid] = requests
        for name, value in requests.items():
            self.used[name] = self.used.get(name, 0) + value

    def release(self, uid: str) -> None:
        """Stop counting a pod."""
        for name, value in self.pods.pop(uid, {}).items():
            self.used[name] -= value


def allocatable(node: Object) -> dict[str, int]:
    """What the node offers to pods: cpu in millicores, other resources in units."""
    status = node.get("status") or {}
    offered = status.get("allocatable") or status.get("capacity") or {}
    return {name: pod_state.amount(name, str(value)) for name, value in offered.items()}


def refusal(pod_spec: Object, requests: Mapping[str, int], room: NodeRoom) -> str | None:
    """Why the pod cannot go to the node, as the scheduler reports it; None where it can."""
    node = room.node
    if is_cordoned_for(pod_spec, node):
        return "node(s) were unschedulable"
    if not selects(pod_spec, node):
        return "node(s) didn't match Pod's node affinity/selector"
    taint = untolerated(pod_spec, node)
    if taint is not None:
        return f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value') or ''}}}"
    short = room.lacking(requests)
    if short == ["pods"]:
        return "Too many pods"
    return f"Insufficient {short[0]}" if short else None


NAME = "default-scheduler"
ENOUGH_CANDIDATES = 20
SEARCH_ALL_BELOW = 100
_RETRY_S = 0.2


def waits_for_node(pod: Object) -> bool:
    """Not bound, not finished, not terminating, without scheduling gates, and ours to schedule."""
    spec = pod["spec"]
    return (
        not spec.get("nodeName")
        and pod_state.is_active(pod)
        and not spec.get("schedulingGates")
        and spec.get("schedulerName", NAME) == NAME
    )


def choose(pod: Object, rooms: Sequence[NodeRoom], start: int) -> tuple[NodeRoom | None, int, str]:
    """The node for a pod: (its room or None, where the next search starts, why not).

    Prefers, among the fitting nodes checked, the one with the fewest pods, then by name.
    """
    spec, requests = pod["spec"], pod_state.resource_requests(pod)
    enough = len(rooms) if len(rooms) < SEARCH_ALL_BELOW else ENOUGH_CANDIDATES
    fitting: list[NodeRoom] = []
    reasons: Counter[str] = Counter()
    tried = 0
    for tried in range(1, len(rooms) + 1):
        room = rooms[(start + tried - 1) % len(rooms)]
        why_not = refusal(spec, requests, room)
        if why_not is None:
            fitting.append(room)
            if len(fitting) >= enough:
                break
        else:
            reasons[why_not] += 1
    next_start = (start + tried) % len(rooms) if rooms else 0
    if fitting:
        best = min(fitting, key=lambda room: (len(room.pods), room.node["metadata"]["name"]))
        return best, next_start, ""
    counted = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
    return None, next_start, f"0/{len(rooms)} nodes are available: {counted or 'no nodes'}."


def unschedulable(pod: Object, message: str, now: datetime) -> list[Write]:
    """The condition of a pod that fits nowhere; nothing if it reports it already."""
    condition = pod_state.condition(pod, "PodScheduled")
    if (
        condition
        and condition.get("reason") == "Unschedulable"
        and condition.get("message") == message
    ):
        return []
    status = pod.get("status") or {}
    entry = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": message,
    }
    conditions = pod_state.with_condition(status.get("conditions"), entry, pod_state.stamp(now))
    return [
        UpdateStatus(resource=PODS, body=with_status(pod, {**status, "conditions": conditions})),
    ]


def scheduling_order(pods: Iterable[Object]) -> list[Object]:
    """Higher priority first, then the older, then by name."""
    return sorted(
        pods,
        key=lambda pod: (
            -int(pod["spec"].get("priority") or 0),
            pod["metadata"].get("creationTimestamp") or "",
            key_of(pod),
        ),
    )


class Scheduler:
    """Follows nodes and pods and binds what waits, until it is cancelled."""

    def __init__(self, client: Client, caches: Caches, clock: Clock) -> None:
        self._client = client
        self._caches = caches
        self._clock = clock
        self._rooms: dict[str, NodeRoom] = {}
        self._waiting: dict[Key, None] = {}
        self._hopeless: set[Key] = set()
        self._start = 0
        self._work = asyncio.Event()

    def subscribe(self) -> None:
        """Follow nodes and pods."""
        self._caches[NODES].subscribe(self._node_changed)
        self._caches[PODS].subscribe(self._pod_changed)

    async def run(self) -> None:
        """Schedule for ever."""
        await self._caches[NODES].synced.wait()
        await self._caches[PODS].synced.wait()
        while True:
            await self._work.wait()
            self._work.clear()
            await self._pass()

    def _node_changed(self, old: Object | None, new: Object | None) -> None:
        if new is None:
            if old is not None:
                self._rooms.pop(old["metadata"]["name"], None)
            return
        name = new["metadata"]["name"]
        if old is not None and name in self._rooms and _same_for_pods(old, new):
            self._rooms[name].node = new
            return
        room = NodeRoom.of(new)
        known = self._rooms.get(name)
        if known is not None and known.node["metadata"]["uid"] == new["metadata"]["uid"]:
            room.pods, room.used = known.pods, known.used
        else:
            for pod in self._caches[PODS].on_node(name):
                room.take(pod)
        self._rooms[name] = room
        self._something_may_fit_now()

    def _pod_changed(self, old: Object | None, new: Object | None) -> None:
        pod = new or old
        if pod is None:
            return
        key, node = key_of(pod), pod_state.node_of(pod)
        if new is not None and waits_for_node(new):
            if key not in self._hopeless:
                self._waiting[key] = None
                self._work.set()
            return
        self._waiting.pop(key, None)
        self._hopeless.discard(key)
        room = self._rooms.get(node)
        if room is None:
            return
        if new is None:
            room.release(pod["metadata"]["uid"])
        else:
            room.take(new)
        if pod["metadata"]["uid"] not in room.pods:
            self._something_may_fit_now()

    def _something_may_fit_now(self) -> None:
        if self._hopeless:
            self._waiting.update(dict.fromkeys(self._hopeless))
            self._hopeless.clear()
        if self._waiting:
            self._work.set()

    async def _pass(self) -> None:
        cache = self._caches[PODS]
        found = [pod for key in self._waiting if (pod := cache.get(key)) is not None]
        self._waiting.clear()
        refused: dict[str, str] = {}
        for pod in scheduling_order(found):
            present = cache.get(key_of(pod))
            if present is not None and waits_for_node(present):
                await self._place(present, refused)

    async def _place(self, pod: Object, refused: dict[str, str]) -> None:
        shape = repr(
            [
                pod["spec"].get("affinity"),
                pod["spec"].get("nodeSelector"),
                pod["spec"].get("tolerations"),
                pod_state.resource_requests(pod),
            ]
        )
        message = refused.get(shape)
        room: NodeRoom | None = None
        if message is None:
            pinned = pinned_node(pod["spec"])
            if pinned is None:
                rooms = list(self._rooms.values())
                room, self._start, message = choose(pod, rooms, self._start)
            else:
                one = [self._rooms[pinned]] if pinned in self._rooms else []
                room, _, message = choose(pod, one, 0)
        if room is None:
            refused[shape] = message
            self._hopeless.add(key_of(pod))
            await self._send(pod, unschedulable(pod, message, self._clock()))
            return
        name, uid = room.node["metadata"]["name"], pod["metadata"]["uid"]
        room.reserve(uid, pod_state.resource_requests(pod))
        if not await self._send(pod, [Bind(pod=pod, node=name)]):
            room.release(uid)

    async def _send(self, pod: Object, writes: list[Write]) -> bool:
        try:
            for write in writes:
                await send_and_remember(self._client, self._caches, write, self._clock)
        except (ApiError, *CONNECTION_TROUBLE):
            self._hopeless.discard(key_of(pod))
            asyncio.get_running_loop().call_later(_RETRY_S, self._try_again, key_of(pod))
            return False
        finally:
            await asyncio.sleep(0)
        return True

    def _try_again(self, key: Key) -> None:
        self._waiting[key] = None
        self._work.set()


def _same_for_pods(old: Object, new: Object) -> bool:
    """Whether the change (a heartbeat, a condition) leaves placement as it was."""
    return (
        old["metadata"]["uid"] == new["metadata"]["uid"]
        and old.get("spec") == new.get("spec")
        and old["metadata"].get("labels") == new["metadata"].get("labels")
        and (old.get("status") or {}).get("allocatable")
        == (new.get("status") or {}).get("allocatable")
    )
