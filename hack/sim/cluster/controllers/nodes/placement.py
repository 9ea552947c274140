"""Whether a pod may and can run on a node: cordon, taints, selectors, affinity, resources.

The scheduler and the DaemonSet controller decide with it. Only what remediation meets is here:
no pod affinity, no spreading, no volumes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hack.sim.cluster.clients.client import Object
from hack.sim.cluster.controllers.pods import amount, is_finished, node_of, resource_requests
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
        if is_finished(pod) or not node_of(pod):
            self.give_back(uid)
        elif uid not in self.pods:
            self.reserve(uid, resource_requests(pod))

    def reserve(self, uid: str, requests: dict[str, int]) -> None:
        """Count a pod that is about to be bound here."""
        self.pods[uid] = requests
        for name, value in requests.items():
            self.used[name] = self.used.get(name, 0) + value

    def give_back(self, uid: str) -> None:
        """Stop counting a pod."""
        for name, value in self.pods.pop(uid, {}).items():
            self.used[name] -= value


def allocatable(node: Object) -> dict[str, int]:
    """What the node offers to pods: cpu in millicores, other resources in units."""
    status = node.get("status") or {}
    offered = status.get("allocatable") or status.get("capacity") or {}
    return {name: amount(name, str(value)) for name, value in offered.items()}


def refusal(pod_spec: Object, requests: Mapping[str, int], room: NodeRoom) -> str | None:
    """Why the pod cannot go to the node, as the scheduler's event says it; None where it can."""
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
