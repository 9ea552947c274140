"""A cluster at a fixed time with one node in every state that `kubectl gpuward` explains.

The objects are made by hand; the API server is the simulated one, in a thread, with its clock set,
so that ages and times in the golden files never change.
"""

from __future__ import annotations

import io
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from hack.sim.cluster import resource as r
from hack.sim.cluster.calls import Caller
from hack.sim.cluster.resource import Resource
from hack.sim.cluster.threaded import HostedServer, run_in_thread
from hack.sim.manifests import post_manifests, read_manifests
from remediator.kubectl.cli import main
from rules.session_time import format_time, parse_time

REPOSITORY = Path(__file__).parents[3]
NOW = parse_time("2026-03-05T12:00:00Z") or 0.0
LOADED = NOW - 20 * 60 - 30
XID_95 = "NVRM: Xid (PCI:0000:9d:00): 95, pid=7731, name=tritonserver, Uncontained ECC error"
HEALTHS = Resource("gpuward.io", "v1alpha1", "gpunodehealths", False, "GPUNodeHealth")
QUARANTINES = Resource("gpuward.io", "v1alpha1", "gpuquarantines", False, "GPUQuarantine")
PAUSES = Resource("gpuward.io", "v1alpha1", "gpuwardpauses", False, "GPUWardPause")
HEALTHY, UNKNOWN, BLOCKED, GONE = "gpu-healthy", "gpu-unknown", "gpu-blocked", "gpu-gone"
STATES = (HEALTHY, UNKNOWN, BLOCKED, GONE)
_RANDOM = (
    (re.compile(r"(by-hand|pause)-(?!0badcafe)[0-9a-f]{8}\b"), r"\1-XXXXXXXX"),
    (re.compile(r"\b[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}\b"), "UID"),
    (re.compile(r"(resourceVersion: ')\d+"), r"\1N"),
    (re.compile(r'("resourceVersion": ")\d+'), r"\1N"),
)
Object = dict[str, Any]


def ago(minutes: float) -> str:
    """Half a minute off the whole, so that ages do not flip while a test runs."""
    return format_time(NOW - minutes * 60 - 30)


class Kubectl:
    """The commands against one server, as somebody types them."""

    def __init__(self, hosted: HostedServer, folder: Path) -> None:
        self.hosted = hosted
        self.kubeconfig = hosted.server.write_kubeconfig(folder / "kubeconfig")

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        """Exit status, standard output, standard error."""
        return run_command("--kubeconfig", str(self.kubeconfig), *arguments)

    def transcript(self, *arguments: str) -> str:
        """What a terminal would show, with what is random made stable."""
        code, out, err = self(*arguments)
        ended = f"[exit {code}]\n" if code else ""
        return f"$ kubectl gpuward {shlex.join(arguments)}\n{stable(out + err)}{ended}"

    def get(self, resource: Resource, name: str) -> Object:
        found: Object = self.hosted.run(self.hosted.server.client.get(resource, name))
        return found


def run_command(*arguments: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = main(list(arguments))
        except SystemExit as end:
            code = int(end.code or 0)
    return code, out.getvalue(), err.getvalue()


def stable(text: str) -> str:
    for pattern, word in _RANDOM:
        text = pattern.sub(word, text)
    return text


@contextmanager
def cluster(
    folder: Path,
    fill: Callable[[HostedServer], None] = lambda hosted: None,
    *,
    crds: bool = True,
    **options: Any,
) -> Iterator[Kubectl]:
    """A server whose clock stands still; options as SimulatedApiServer takes them.

    Everything is made at LOADED, and read at NOW.
    """
    moment = [LOADED]
    with run_in_thread(clock=lambda: moment[0], **options) as hosted:
        if crds:
            manifests = read_manifests(REPOSITORY / "daemonset" / "crds")
            hosted.run(post_manifests(hosted.server.client, manifests))
        fill(hosted)
        moment[0] = NOW
        yield Kubectl(hosted, folder)


def viewer(name: str = "ann") -> Caller:
    return Caller(name, ("system:authenticated",))


def load(hosted: HostedServer, resource: Resource, *objects: Object) -> None:
    hosted.call(lambda: hosted.server.load(resource, objects))


def node(name: str, health: str = "healthy", **changes: Any) -> Object:
    labels = {
        "gpuward.io/gpus": "8",
        "gpuward.io/health": health,
        "gpuward.io/product": "NVIDIA-H100-80GB-HBM3",
        "gpuward.io/driver": "580.95.05",
        "gpuward.io/interconnect": "nvswitch",
        **changes.get("labels", {}),
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name, "labels": labels, "annotations": changes.get("annotations", {}),
        },
        "spec": changes.get("spec", {}),
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"bootID": f"boot-{name}"},
        },
    }  # fmt: skip


def marked(name: str, session: str, health: str = "unhealthy", **changes: Any) -> Object:
    """A node with our mark and somebody's taint."""
    note = f'{{"session":"{session}","at":"{ago(14)}","mark":"CordonAndTaint"}}'
    return node(
        name,
        health,
        annotations={"gpuward.io/session": note, **changes.get("annotations", {})},
        spec={
            "unschedulable": True,
            "taints": [
                {"key": "example.com/mine", "value": "x", "effect": "NoExecute"},
                {"key": "gpuward.io/quarantine", "value": "Xid95", "effect": "NoSchedule"},
            ],
        },
    )


def verdict(name: str, **changes: Any) -> Object:
    status = {
        "publisher": {"heartbeat": ago(1)},
        "bootID": f"boot-{name}",
        "observedAt": ago(60),
        "driverVersion": "580.95.05",
        "health": "Healthy",
        "gpusHealthy": "8/8",
        "sources": [{"name": "nvml", "state": "Up"}, {"name": "kmsg", "state": "Up"}],
        **changes,
    }
    return {
        "apiVersion": "gpuward.io/v1alpha1",
        "kind": "GPUNodeHealth",
        "metadata": {"name": name},
        "status": status,
    }


def sick(name: str, line: str = XID_95, **changes: Any) -> Object:
    incident = {
        "id": f"i-{name}",
        "reason": "Xid95UncontainedMemoryError",
        "severity": "Fatal",
        "level": "Drain",
        "recommendedAction": "ResetGPU",
        "gpus": [f"GPU-{name}-4"],
        "active": True,
        "firstSeen": ago(15),
        "lastSeen": ago(14),
        "closesOn": "Reset",
        "count": 2,
        "evidence": [line],
    }
    gpu = {
        "uuid": f"GPU-{name}-4", "index": 4, "pci": "0000:9d:00.0", "serial": "1654023014005",
        "product": "NVIDIA H100 80GB HBM3", "health": "Unhealthy",
    }  # fmt: skip
    incidents = [] if changes.pop("closed", False) else [incident]
    return verdict(
        name, health="Unhealthy" if incidents else "Healthy", gpusHealthy="7/8", gpus=[gpu],
        reason="Xid95UncontainedMemoryError" if incidents else "", incidents=incidents,
        observedAt=ago(14), **changes,
    )  # fmt: skip


def session(name: str, on: str, phase: str, message: str, **changes: Any) -> Object:
    cause = {
        "source": "Detector", "incident": f"i-{on}", "reason": "Xid95UncontainedMemoryError",
        "severity": "Fatal", "message": changes.pop("line", XID_95),
    }  # fmt: skip
    spec = {"nodeName": on, "causes": [cause], "level": "Drain", **changes.pop("spec", {})}
    steps = changes.pop("steps", ("Pending",))
    return {
        "apiVersion": "gpuward.io/v1alpha1",
        "kind": "GPUQuarantine",
        "metadata": {"name": name},
        "spec": spec,
        "status": {
            "mode": "Enforce",
            "phase": phase,
            "phaseSince": ago(14),
            "message": message,
            "timeline": [
                {"at": ago(14), "step": step, "message": "as it was then", "by": "gpuward"}
                for step in steps
            ],
            **changes,
        },
    }


def condition(kind: str, reason: str, message: str) -> Object:
    return {
        "type": kind, "status": "True", "reason": reason, "message": message,
        "lastTransitionTime": ago(13),
    }  # fmt: skip


def waiting(on: str, reason: str, why: str, *more: Object) -> Object:
    """A session that may not start yet."""
    message = f"Waiting since 11:45 for Xid95UncontainedMemoryError (Fatal): {why}; the node is not touched until then."
    blocked = condition("Blocked", reason, f"Waiting: {why}.")
    return session(f"{on}-0badcafe", on, "Pending", message, conditions=[blocked, *more])


def load_fleet(hosted: HostedServer) -> None:
    """Healthy, unknown, blocked and gone, and every other state that `why` explains."""
    load(
        hosted, r.NAMESPACES,
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gpuward"}},
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "serving"}},
    )  # fmt: skip
    load(hosted, r.NODES, *_nodes())
    load(hosted, r.PODS, _agent_pod(), _pod(BLOCKED))
    load(hosted, r.POD_DISRUPTION_BUDGETS, _budget())
    pods, _ = hosted.run(hosted.server.client.list(r.PODS, "gpuward"))
    load(hosted, HEALTHS, *_verdicts(pods[0]["metadata"]["uid"]))
    load(hosted, QUARANTINES, *_sessions())
    load(
        hosted,
        PAUSES,
        {
            "apiVersion": "gpuward.io/v1alpha1",
            "kind": "GPUWardPause",
            "metadata": {"name": "pause-0badcafe"},
            "spec": {
                "scope": {"nodes": ["gpu-paused"]}, "by": "ann", "reason": "fire drill",
                "until": "2026-03-05T14:00:00Z",
            },
        },
    )  # fmt: skip


def _nodes() -> list[Object]:
    return [
        node(HEALTHY),
        node(UNKNOWN, "unknown"),
        marked(BLOCKED, f"{BLOCKED}-0badcafe"),
        node("gpu-budget", "unhealthy"),
        node("gpu-storm", "unhealthy"),
        marked("gpu-held", "gpu-held-0badcafe", "healthy",
               annotations={"gpuward.io/hold": "vendor comes on Monday (ann)"}),
        node("gpu-paused", "unhealthy"),
        node("gpu-opted-out", "unhealthy", labels={"gpuward.io/opt-out": "true"}),
        node("gpu-shadow", "unhealthy"),
        marked("gpu-replace", "gpu-replace-0badcafe", "healthy"),
        node("gpu-cancelled", "unhealthy"),
        node("gpu-cordoned", spec={"unschedulable": True}),
        node("gpu-no-agent", "unknown"),
    ]  # fmt: skip


def _verdicts(agent_uid: str) -> list[Object]:
    unknown = verdict(
        UNKNOWN,
        publisher={"pod": "gpuward/agent-0", "podUID": agent_uid},
        sources=[{"name": "nvml", "state": "Down", "reason": "DriverAbsent", "since": ago(20)}],
    )
    return [
        verdict(HEALTHY),
        verdict("gpu-cordoned"),
        unknown,
        *(sick(name) for name in (BLOCKED, "gpu-budget", "gpu-storm", "gpu-paused",
                                  "gpu-opted-out", "gpu-shadow", "gpu-cancelled")),
        sick("gpu-held", closed=True),
        sick("gpu-replace", closed=True),
    ]  # fmt: skip


def _sessions() -> list[Object]:
    never = "minAvailable 1 keeps 1 of 1 expected"
    remedy = "add a replica, relax the PDB, or let the owner stop the workload"
    blocked = f"Blocked by PDB serving/solo (permanent: {never}, owner Deployment serving/solo): {remedy}."
    shared = "Xid95UncontainedMemoryError on 3 nodes that share rack=a17"
    steps = ("Pending", "Marked", "Draining")
    return [
        session(
            f"{BLOCKED}-0badcafe", BLOCKED, "Draining",
            f"Draining since 11:45: 11 evicted, 3 left by policy; {blocked[0].lower()}{blocked[1:]}",
            steps=steps,
            conditions=[
                condition("Blocked", "BudgetNeverAllows", blocked),
                condition("NeedsHuman", "BudgetNeverAllows", blocked),
            ],
            drain={
                "evicted": 11,
                "blocked": [{
                    "pdb": "serving/solo", "pods": ["serving/solo-0"], "permanent": True,
                    "owner": "Deployment serving/solo", "why": never, "remedy": remedy,
                }],
            },
        ),
        session(
            f"{GONE}-0badcafe", GONE, "NodeGone", "NodeGone: the node was deleted.",
            steps=(*steps, "NodeGone"), drain={"evicted": 4},
            evidence={"incidents": [{
                "id": "i", "reason": "Xid95UncontainedMemoryError", "severity": "Fatal",
                "evidence": [XID_95],
            }]},
        ),
        waiting("gpu-budget", "Budget", "2 nodes are unavailable and 2 may be (24 nodes)"),
        waiting(
            "gpu-storm", "CorrelatedCause", shared,
            condition("Storm", "CorrelatedCause", f"The breaker is open: {shared}."),
        ),
        session(
            "gpu-held-0badcafe", "gpu-held", "Validating",
            "All causes closed at 11:45; not released: a person holds it (vendor comes on Monday "
            "(ann)), unhold it to release.",
            steps=(*steps, "Quarantined", "Validating"), spec={"hold": True},
            conditions=[condition(
                "Blocked", "Hold",
                "Not released: a person holds it (vendor comes on Monday (ann)), unhold it to release.",
            )],
        ),
        waiting(
            "gpu-paused", "Paused", "paused by ann (fire drill) with GPUWardPause pause-0badcafe"
        ),
        session(
            "gpu-shadow-0badcafe", "gpu-shadow", "Marked", mode="Shadow", steps=("Pending", "Marked"),
            message="Shadow since 11:45: Xid95UncontainedMemoryError (Fatal) asks that the node be "
            "marked (CordonAndTaint) and drained; nothing is touched.",
        ),
        session(
            "gpu-replace-0badcafe", "gpu-replace", "Validating",
            "All causes closed at 11:45; not released: it is a repeat offender, a person releases "
            "it after the replacement.",
            steps=(*steps, "Quarantined", "Validating"),
            conditions=[
                condition("Replace", "RepeatOffender", "Session 3 or later within 7d; the hardware "
                          "is to be replaced and a person releases the node."),
                condition("Blocked", "Replace", "Not released: it is a repeat offender, a person "
                          "releases it after the replacement."),
            ],
        ),
        session(
            "gpu-cancelled-0badcafe", "gpu-cancelled", "Cancelled",
            "Cancelled: a person uncordoned the node.", steps=(),
            timeline=[{"at": ago(14), "step": "Cancelled", "message": "Cancelled: a person "
                       "uncordoned the node.", "by": "person"}],
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
        "spec": {"nodeName": on, "containers": [{"name": "main", "image": "solo:1"}]},
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
