"""The simulated cluster as the API server would show it: nodes, pods, budgets, answers.

Objects are the views that the rules read; a write is applied as the API server applies it.
"""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec

from rules.api.budgets import PdbSpec, PdbStatus, PdbView
from rules.api.metadata import LabelSelector, ObjectMeta, OwnerReference
from rules.api.nodes import (
    NodeCondition,
    NodeInfo,
    NodeSpec,
    NodeStatus,
    NodeView,
)
from rules.api.pods import (
    ContainerState,
    ContainerStatus,
    PodCondition,
    PodMeta,
    PodSpec,
    PodStatus,
    PodView,
)
from rules.api.timestamps import format_time
from rules.api.workload.containers import Container
from rules.simulate.cluster.work import GPUS_PER_NODE, Guard, Pod, Workload
from rules.text import merge_patch

NAMESPACE: Final = "work"
RACK: Final = "topology.kubernetes.io/rack"
RACK_SIZE: Final = 16


def node_view(name: str, number: int, boot: str, driver: str, now: float) -> NodeView:
    """A node that has been up for a day."""
    return NodeView(
        metadata=ObjectMeta(
            name=name,
            uid=f"uid-{name}",
            resource_version="1",
            creation_timestamp=format_time(now - 30 * 86_400.0),
            labels={
                "gpuward.io/gpus": str(GPUS_PER_NODE),
                "node.kubernetes.io/instance-type": "sim-8",
                RACK: f"rack-{number // RACK_SIZE}",
                "gpuward.io/driver": driver,
            },
        ),
        spec=NodeSpec(),
        status=NodeStatus(
            conditions=(ready("True", now - 86_400.0),),
            node_info=NodeInfo(boot_id=boot),
            allocatable={"nvidia.com/gpu": str(GPUS_PER_NODE)},
        ),
    )


def ready(status: str, now: float) -> NodeCondition:
    """The kubelet's word, or what is said when it has none."""
    return NodeCondition(type="Ready", status=status, last_transition_time=format_time(now))


def newer(view: NodeView, **changes: object) -> NodeView:
    """The node with its spec or status changed, under another version."""
    version = str(int(view.metadata.resource_version) + 1)
    meta = msgspec.structs.replace(view.metadata, resource_version=version)
    return msgspec.structs.replace(view, metadata=meta, **changes)


def merged(view: NodeView, patch: dict[str, Any]) -> NodeView | None:
    """The node after a merge patch; None where the patch is of another version (409)."""
    body = json.loads(json.dumps(patch))
    version = body["metadata"].pop("resourceVersion")
    if version != view.metadata.resource_version:
        return None
    return newer(msgspec.convert(merge_patch.merged(msgspec.to_builtins(view), body), NodeView))


def pod_view(pod: Pod) -> PodView:
    """A running pod of a Job or of a ReplicaSet."""
    kind = ("apps/v1", "ReplicaSet") if pod.owner.service else ("batch/v1", "Job")
    owner = OwnerReference(
        api_version=kind[0],
        kind=kind[1],
        name=pod.owner.name,
        uid=f"uid-{pod.owner.name}",
        controller=True,
    )
    gone_at = pod.deleted_at
    return PodView(
        metadata=PodMeta(
            name=pod.name,
            namespace=NAMESPACE,
            uid=pod.uid,
            creation_timestamp=format_time(pod.started_at),
            deletion_timestamp=None if gone_at is None else format_time(gone_at),
            labels={"app": pod.owner.name},
            owner_references=(owner,),
        ),
        spec=PodSpec(
            node_name=pod.node,
            termination_grace_period_seconds=30,
            containers=(_GPU_CONTAINER,),
        ),
        status=PodStatus(
            phase="Running",
            start_time=format_time(pod.started_at),
            conditions=(PodCondition(type="Ready", status="True"),),
            container_statuses=(ContainerStatus(name="main", state=_RUNS),),
        ),
    )


_GPU_CONTAINER: Final = msgspec.convert(
    {"name": "main", "resources": {"limits": {"nvidia.com/gpu": str(GPUS_PER_NODE)}}}, Container
)
_RUNS: Final = ContainerState(running={})


def pdb_view(work: Workload, healthy: int) -> PdbView | None:
    """The budget of a workload with its status in step; None where it has none."""
    if work.guard is Guard.NONE:
        return None
    desired = work.size - 1 if work.guard is Guard.ONE_AT_A_TIME else work.size
    return PdbView(
        metadata=ObjectMeta(name=work.name, namespace=NAMESPACE, uid=f"pdb-{work.name}"),
        spec=PdbSpec(
            max_unavailable=1 if work.guard is Guard.ONE_AT_A_TIME else None,
            min_available=work.size if work.guard is Guard.ALL else None,
            selector=LabelSelector(match_labels={"app": work.name}),
        ),
        status=PdbStatus(
            observed_generation=1,
            expected_pods=work.size,
            current_healthy=healthy,
            desired_healthy=desired,
            disruptions_allowed=max(0, healthy - desired),
        ),
    )


EVICTED: Final = b'{"kind": "Status", "status": "Success"}'
REFUSED: Final = json.dumps(
    {
        "kind": "Status",
        "message": "Cannot evict pod as it would violate the pod's disruption budget.",
        "details": {
            "causes": [{"reason": "DisruptionBudget", "message": "needs more healthy pods"}]
        },
    }
).encode()
GONE: Final = b'{"kind": "Status", "details": {"kind": "pods"}}'
