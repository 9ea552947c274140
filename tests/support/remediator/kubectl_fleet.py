"""A cluster with one node in every state that `kubectl gpuward` explains."""

from hack.sim.cluster import resource as r
from hack.sim.cluster.server import HostedServer
from hack.sim.manifests import read_manifests
from rules.api import health, messages
from rules.api.quarantine import BlockedBy, Cause, DrainStatus, PodNote, pods_of
from tests.support.remediator.kubectl_cluster import REPOSITORY, lease, load
from tests.support.remediator.kubectl_objects import (
    BLOCKED,
    EVIDENCES,
    GONE,
    HEALTHS,
    HEALTHY,
    NOW,
    PAUSES,
    QUARANTINES,
    UNKNOWN,
    XID_95,
    Object,
    ago,
    condition,
    gpu_health,
    kept,
    node,
    quarantined,
    session,
    sick,
    waiting,
)
from tests.support.remediator.record_objects import RECORDS, records


def load_nodes(hosted: HostedServer) -> None:
    """The nodes alone: what uninstall finds once all programs have ended."""
    for name in ("gpuward", "serving"):
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        load(hosted, r.NAMESPACES, namespace)
    load(hosted, r.NODES, *_nodes())


def load_fleet(hosted: HostedServer) -> None:
    """Healthy, unknown, blocked and gone, and every other state that `why` explains."""
    load_nodes(hosted)
    _load_admission(hosted)
    load(hosted, r.PODS, _agent_pod(), _pod(BLOCKED))
    load(hosted, r.POD_DISRUPTION_BUDGETS, _budget())
    pods, _ = hosted.run(hosted.server.client.list(r.PODS, "gpuward"))
    load(hosted, HEALTHS, *_assessments(pods[0]["metadata"]["uid"]))
    load(hosted, QUARANTINES, *_sessions())
    load(hosted, r.LEASES, lease(NOW))
    load(hosted, RECORDS, *records())
    load(hosted, EVIDENCES, kept(f"{BLOCKED}-0badcafe", BLOCKED))
    load(
        hosted,
        PAUSES,
        {
            "apiVersion": "gpuward.io/v1alpha1",
            "kind": "GPUWardPause",
            "metadata": {"name": "pause-0badcafe"},
            "spec": {
                "scope": {"nodes": ["gpu-paused"]}, "by": "ann", "reason": "fire drill",
                "until": "2026-03-05T14:00:30Z",
            },
        },
    )  # fmt: skip


def _load_admission(hosted: HostedServer) -> None:
    kinds = {
        kind.kind: kind
        for kind in (r.VALIDATING_ADMISSION_POLICIES, r.VALIDATING_ADMISSION_POLICY_BINDINGS)
    }
    for file in sorted((REPOSITORY / "daemonset" / "base").glob("*-admission.yaml")):
        for made in read_manifests(file):
            load(hosted, kinds[made["kind"]], made)


def _nodes() -> list[Object]:
    return [
        node(HEALTHY),
        node(UNKNOWN, "unknown"),
        quarantined(BLOCKED, f"{BLOCKED}-0badcafe"),
        node("gpu-budget", "unhealthy"),
        node("gpu-storm", "unhealthy"),
        quarantined("gpu-held", "gpu-held-0badcafe", "healthy",
               annotations={"gpuward.io/hold": "vendor comes on Monday (ann)"}),
        node("gpu-paused", "unhealthy"),
        node("gpu-opted-out", "unhealthy", labels={"gpuward.io/opt-out": "true"}),
        node("gpu-shadow", "unhealthy"),
        quarantined("gpu-replace", "gpu-replace-0badcafe", "healthy"),
        node("gpu-cancelled", "unhealthy"),
        node("gpu-cordoned", spec={"unschedulable": True}),
        node("gpu-no-agent", "unknown"),
    ]  # fmt: skip


def _assessments(agent_uid: str) -> list[Object]:
    unknown = gpu_health(
        UNKNOWN,
        publisher={"pod": "gpuward/agent-0", "podUID": agent_uid},
        sources=[{"name": "nvml", "state": "Down", "reason": "DriverAbsent", "since": ago(20)}],
    )
    return [
        gpu_health(HEALTHY),
        gpu_health("gpu-cordoned"),
        unknown,
        *(sick(name) for name in (BLOCKED, "gpu-budget", "gpu-storm", "gpu-paused",
                                  "gpu-opted-out", "gpu-shadow", "gpu-cancelled")),
        sick("gpu-held", closed=True),
        sick("gpu-replace", closed=True),
    ]  # fmt: skip


def _sessions() -> list[Object]:
    block = BlockedBy(
        pdb="serving/solo",
        pods=pods_of([PodNote(name="serving/solo-0")]),
        owner="Deployment serving/solo",
        why="minAvailable is 1 and the PDB covers 1 pod",
        permanent=True,
        remedy="add a replica, relax the PDB, or ask the owner to stop the workload",
    )
    left = pods_of(PodNote(name=f"system/{name}", why="DaemonSet") for name in ("a", "b", "c"))
    drain = DrainStatus(evicted=11, blocked=(block,), left_by_policy=left)
    blocked = messages.sentence(messages.blocked_clause([block]))
    shared = (
        "Xid95UncontainedMemoryError on 3 nodes that share rack=a17 (a, b, c). New quarantines "
        "are paused until budget.cooldown is over. Then nodes that still fail are quarantined "
        "within the budget, unless a GPUWardPause covers them"
    )
    held = (
        "an operator set a hold (vendor comes on Monday (ann)); run kubectl gpuward unhold "
        "gpu-held, then the session continues"
    )
    repeat = "it is a repeat offender, replace the hardware and then release it"
    cancelled = messages.ended("Cancelled", "an operator uncordoned the node", "")
    fault = Cause(source="Detector", reason="Xid95UncontainedMemoryError", severity="Fatal")
    steps = ("Pending", "Marked", "Draining")
    return [
        session(
            f"{BLOCKED}-0badcafe", BLOCKED, "Draining", messages.draining(drain, blocked),
            steps=steps,
            conditions=[
                condition("Blocked", "BudgetNeverAllows", blocked),
                condition("NeedsHuman", "BudgetNeverAllows", blocked),
            ],
            drain=health.plain(drain),
        ),
        session(
            f"{GONE}-0badcafe", GONE, "NodeGone",
            messages.ended("NodeGone", "the node was deleted", ""),
            steps=(*steps, "NodeGone"), drain={"evicted": 4},
            evidence={"incidents": [{
                "id": "i", "reason": "Xid95UncontainedMemoryError", "severity": "Fatal",
                "evidence": [XID_95],
            }]},
        ),
        waiting("gpu-budget", "Budget", "2 of 24 nodes are unavailable, the budget allows 2"),
        waiting(
            "gpu-storm", "CorrelatedCause", shared,
            condition("Storm", "CorrelatedCause", f"The circuit breaker is open: {shared}."),
            until="2026-03-05T12:30:30Z",
        ),
        session(
            "gpu-held-0badcafe", "gpu-held", "Validating", messages.validating(held),
            steps=(*steps, "Quarantined", "Validating"), spec={"hold": True},
            conditions=[condition("Blocked", "Hold", f"Not released: {held}.")],
        ),
        waiting(
            "gpu-paused", "Paused", "paused by ann (fire drill) with GPUWardPause pause-0badcafe"
        ),
        session(
            "gpu-shadow-0badcafe", "gpu-shadow", "Marked", mode="Shadow",
            steps=("Pending", "Marked"),
            message=messages.shadow(
                [fault],
                "Enforce mode would quarantine the node (CordonAndTaint) and drain it",
            ),
        ),
        session(
            "gpu-replace-0badcafe", "gpu-replace", "Validating", messages.validating(repeat),
            steps=(*steps, "Quarantined", "Validating"),
            conditions=[
                condition("Replace", "RepeatOffender", "This node had at least 3 sessions "
                          "within 7d; replace the hardware, then release the node: kubectl "
                          "gpuward release gpu-replace --reason \"...\""),
                *(condition(kind, "Replace", f"Not released: {repeat}.")
                  for kind in ("Blocked", "NeedsHuman")),
            ],
        ),
        session(
            "gpu-cancelled-0badcafe", "gpu-cancelled", "Cancelled", cancelled, steps=(),
            timeline=[{"at": ago(14), "step": "Cancelled", "message": cancelled, "by": "person"}],
        ),
    ]  # fmt: skip


def _agent_pod() -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "agent-0", "namespace": "gpuward",
            "labels": {
                "app.kubernetes.io/name": "gpuward", "app.kubernetes.io/component": "agent",
            },
        },
        "spec": {"nodeName": UNKNOWN, "containers": [{"name": "agent", "image": "gpuward:1"}]},
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": ago(20)}],
        },
    }  # fmt: skip


def _pod(on: str) -> Object:
    owner = {
        "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "solo", "uid": "u-solo",
        "controller": True,
    }  # fmt: skip
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "solo-0", "namespace": "serving", "labels": {"app": "solo"},
            "ownerReferences": [owner],
        },
        "spec": {
            "nodeName": on,
            "containers": [
                {
                    "name": "main", "image": "solo:1",
                    "resources": {"limits": {"nvidia.com/gpu": "1"}},
                }
            ],
        },
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": ago(90)}],
        },
    }  # fmt: skip


def _budget() -> Object:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "solo", "namespace": "serving"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "solo"}}},
        "status": {
            "observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 1,
            "desiredHealthy": 1, "expectedPods": 1,
        },
    }  # fmt: skip
