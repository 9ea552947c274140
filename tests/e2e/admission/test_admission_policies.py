"""The admission policies on a real API server: what they refuse, and what they let pass.

The simulator stores admission policies and does not enforce them; their decisions are shown there
by tests/unit/daemonset/test_manifests_admission*.py. These need KUBEBUILDER_ASSETS.
"""

import os
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent.publish.objects import Metadata, NodeObject, event_body
from hack.sim.cluster.client import HttpClient, Object
from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.fleet.fleet_health import GPU_EVIDENCES, GPU_NODE_HEALTHS
from hack.sim.cluster.resource import EVENTS, NODES, Resource
from hack.sim.control_plane import ASSETS
from hack.sim.manifests import post_manifests, read_manifests
from rules.api import names, quarantine_taint
from rules.api.nodes import FreshNode
from rules.api.requests import STRATEGIC_PATCH, request
from rules.api.writes import SetNodeUnknown
from rules.judge.messages import NodeEvent
from tests.support.cluster.either_cluster import Cluster, a_cluster

REPOSITORY = Path(__file__).parents[3]
NODE, OTHER = "gpu-1", "gpu-2"
PLACE, AGENT, REMEDIATOR = "gpu-health", "gpuward-agent", "gpuward-remediator"
KUBELET = f"system:node:{NODE}"
_RBAC = "rbac.authorization.k8s.io"
KUBELETS = {
    "apiVersion": f"{_RBAC}/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "kubelets"},
    "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": "system:node"},
    "subjects": [{"apiGroup": _RBAC, "kind": "Group", "name": "system:nodes"}],
}
OUR_CONDITION = {"type": "GPUHealthy", "status": "False", "reason": "X", "message": "m"}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not os.environ.get(ASSETS),
        reason=f"admission policies need a real API server: set {ASSETS}",
    ),
]


class Installed:
    """Our manifests in a namespace of a real cluster, with two nodes."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._pods: set[str] = set()

    @asynccontextmanager
    async def agent(self, *, on: str | None = NODE) -> AsyncIterator[HttpClient]:
        """The agent with the token of a pod on that node, or bound to no pod."""
        pod = None if on is None else f"agent-{on}"
        if pod is not None and pod not in self._pods:
            await self.cluster.add_pod(pod, str(on), PLACE, serviceAccountName=AGENT)
            self._pods.add(pod)
        token = await self.cluster.plane.service_account_token(PLACE, AGENT, pod=pod)
        async with self.cluster.plane.client_of(token) as client:
            yield client

    @asynccontextmanager
    async def remediator(self) -> AsyncIterator[HttpClient]:
        token = await self.cluster.plane.service_account_token(PLACE, REMEDIATOR)
        async with self.cluster.plane.client_of(token) as client:
            yield client

    async def view(self) -> FreshNode:
        found = await self.cluster.node(NODE)
        return msgspec.json.decode(msgspec.json.encode(found), type=FreshNode)


@pytest.fixture
async def installed() -> AsyncIterator[Installed]:
    objects = read_manifests(REPOSITORY / "daemonset")
    for obj in objects:
        if obj["kind"] == "Namespace":
            obj["metadata"]["name"] = PLACE
        for at in (obj["metadata"], *obj.get("subjects", ())):
            if at.get("namespace") == "gpuward":
                at["namespace"] = PLACE
    async with a_cluster(secure=True, users={KUBELET: ("system:nodes",)}) as cluster:
        await post_manifests(cluster.client, [*objects, KUBELETS], namespace=PLACE)
        await cluster.add_nodes(NODE, OTHER)
        found = Installed(cluster)
        await in_force(found)
        yield found


async def in_force(installed: Installed) -> None:
    """A policy takes effect some moments after it is stored, each at its own: wait for all."""
    foreign = {"metadata": {"labels": {"pool": "x"}}}

    hold = {"metadata": {"annotations": {names.ANNOTATION_HOLD: "x"}}}

    async def refused() -> bool:
        plane = installed.cluster.plane
        async with (
            installed.agent(on=None) as unbound,
            installed.agent() as bound,
            installed.remediator() as remediator,
            plane.client_of(plane.tokens[KUBELET]) as kubelet,
        ):
            denied = [
                await answer(unbound.create(EVENTS, node_event(NODE), "default", dry_run=True)),
                await answer(
                    unbound.patch(NODES, NODE, foreign, subresource="status", dry_run=True)
                ),
                await answer(
                    bound.patch(NODES, NODE, foreign, subresource="status", dry_run=True)
                ),
                await answer(remediator.patch(NODES, NODE, foreign, dry_run=True)),
                await answer(kubelet.patch(NODES, NODE, hold, dry_run=True)),
                await answer(
                    remediator.patch(NODES, NODE, foreign, subresource="status", dry_run=True)
                ),
            ]
        return all("ValidatingAdmissionPolicy" in refusal for refusal in denied)

    await installed.cluster.until(refused, "every admission policy in force")


async def answer(call: Awaitable[object]) -> str:
    """The error for a request; "" if it is admitted."""
    try:
        await call
    except ApiError as error:
        if error.code != 403:
            raise
        return str(error)
    return ""


def status(**parts: Any) -> Object:
    """A patch of nodes/status that carries labels and the like, or a status."""
    metadata = {k: v for k, v in parts.items() if k not in {"conditions", "capacity"}}
    rest = {k: v for k, v in parts.items() if k in {"conditions", "capacity"}}
    return {"metadata": metadata, "status": rest}


async def outcome(
    client: Any,
    resource: Resource,
    name: str,
    patch: Object,
    *,
    subresource: str | None = "status",
) -> str:
    """The error for a patch; "" if it is admitted."""
    return await answer(
        client.patch(resource, name, patch, subresource=subresource, content_type=STRATEGIC_PATCH)
    )


async def test_the_agent_is_refused(installed: Installed) -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "dead"}
    refused = [
        (status(labels={"pool": "x"}), "only the labels"),
        (status(annotations={"a": "b"}), "annotations"),
        (status(finalizers=["x.example/y"]), "finalizers"),
        (status(ownerReferences=[owner]), "ownerReferences"),
        (status(conditions=[{"type": "Ready", "status": "False"}]), "conditions"),
        (status(capacity={"nvidia.com/gpu": "80"}), "no other field"),
    ]
    async with installed.agent() as client:
        for patch, why in refused:
            assert why in await outcome(client, NODES, NODE, patch)


async def test_the_agent_may_publish_on_its_own_node_only(installed: Installed) -> None:
    health_patch = status(labels={names.LABEL_HEALTH: "unhealthy"}, conditions=[OUR_CONDITION])
    health = {"apiVersion": names.API_VERSION, "kind": "GPUNodeHealth"}
    async with installed.agent() as client:
        assert await outcome(client, NODES, NODE, health_patch) == ""
        assert "only about the node" in await outcome(client, NODES, OTHER, health_patch)
        await client.create(GPU_NODE_HEALTHS, {**health, "metadata": {"name": NODE}})
        with pytest.raises(ApiError, match="only about the node"):
            await client.create(GPU_NODE_HEALTHS, {**health, "metadata": {"name": OTHER}})
    async with installed.agent(on=None) as unbound:
        assert "only about the node" in await outcome(unbound, NODES, NODE, health_patch)


def node_event(node: str, **changes: Any) -> Object:
    """An Event as the agent sends it."""
    about = NodeObject(metadata=Metadata(name=node, uid="u"))
    event = NodeEvent("Warning", "Xid79GPUFallenOffBus", "GPU 3 fell off the bus")
    return {**event_body(about, event, time.time()), **changes}


async def test_the_agent_sends_events_about_its_own_node_only(installed: Installed) -> None:
    async with installed.agent() as client:
        await client.create(EVENTS, node_event(NODE), "default")
        for body, why in (
            (node_event(OTHER), "only about the node"),
            (node_event(NODE, source={"component": "kubelet"}), "own name"),
            (
                node_event(NODE, related={"kind": "Pod", "name": "x", "namespace": "y"}),
                "only about a",
            ),
        ):
            with pytest.raises(ApiError, match=why):
                await client.create(EVENTS, body, "default")
    async with installed.agent(on=None) as unbound:
        with pytest.raises(ApiError, match="only about the node"):
            await unbound.create(EVENTS, node_event(NODE), "default")


async def test_the_agent_may_publish_on_a_node_without_conditions(installed: Installed) -> None:
    bare = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "bare"}}
    await installed.cluster.client.create(NODES, bare)
    health_patch = status(labels={names.LABEL_HEALTH: "unhealthy"}, conditions=[OUR_CONDITION])
    async with installed.agent(on="bare") as client:
        assert await outcome(client, NODES, "bare", health_patch) == ""


async def taint_of(installed: Installed) -> Object:
    return quarantine_taint.quarantine_patch(
        await installed.view(), session="s", reason="Xid79",
        parts="CordonAndTaint", now=0.0,
    )  # fmt: skip


async def test_the_remediator_changes_taint_and_cordon_and_nothing_else(
    installed: Installed,
) -> None:
    taint = {"spec": {"taints": [{"key": "x", "value": "y", "effect": "NoSchedule"}]}}
    async with installed.remediator() as client:
        await client.patch(NODES, NODE, await taint_of(installed))
        assert "taint" in await outcome(client, NODES, NODE, taint, subresource=None)
        await client.patch(NODES, NODE, quarantine_taint.release_patch(await installed.view()))
        label = {"metadata": {"labels": {"pool": "x"}}}
        assert "only the label" in await outcome(client, NODES, NODE, label, subresource=None)


async def test_a_node_cannot_end_its_own_quarantine(installed: Installed) -> None:
    labels = {names.LABEL_OPT_OUT: "true"}
    attempts: list[tuple[Object, str | None]] = [
        ({"spec": {"unschedulable": None}}, None),
        ({"spec": {"taints": None}}, None),
        ({"metadata": {"annotations": {names.ANNOTATION_SESSION: None}}}, None),
        ({"metadata": {"annotations": {names.ANNOTATION_SESSION: None}}}, "status"),
        ({"metadata": {"labels": labels}}, None),
        ({"metadata": {"labels": {names.LABEL_DRIVER_UPGRADE: "drain-required"}}}, "status"),
    ]
    admin, plane = installed.cluster.client, installed.cluster.plane
    patch = await taint_of(installed)
    # Kubernetes' own controllers write a fresh node too; nothing here is about races.
    del patch["metadata"]["resourceVersion"]
    await admin.patch(NODES, NODE, patch)
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    beat = {
        "metadata": {"annotations": {"volumes.kubernetes.io/x": "true"}},
        "status": {"conditions": [ready], "nodeInfo": {"bootID": "b2"}},
    }
    async with plane.client_of(plane.tokens[KUBELET]) as kubelet:
        for wanted, subresource in attempts:
            denied = await answer(kubelet.patch(NODES, NODE, wanted, subresource=subresource))
            assert "a node may not" in denied, (wanted, subresource)
        assert (
            quarantine_taint.quarantine_state(await installed.view(), "s")
            is quarantine_taint.QuarantineState.INTACT
        )
        assert await answer(kubelet.patch(NODES, NODE, beat, subresource="status")) == ""
    await admin.patch(NODES, NODE, {"spec": {"unschedulable": None}})
    assert not (await installed.view()).spec.unschedulable, "an operator is not concerned"


async def test_the_remediator_may_set_unknown_and_no_other_health(installed: Installed) -> None:
    node = await installed.cluster.node(NODE)
    meta = node["metadata"]
    sent = request(
        SetNodeUnknown(
            node=NODE, node_uid=meta["uid"], resource_version=meta["resourceVersion"], at=0.0,
            message="m",
        )
    )  # fmt: skip
    assert sent.body is not None
    async with installed.remediator() as client:
        assert await outcome(client, NODES, NODE, sent.body) == ""
        health_patch = status(conditions=[OUR_CONDITION])
        assert "GPUHealthy" in await outcome(client, NODES, NODE, health_patch)


async def test_nobody_else_is_hindered(installed: Installed) -> None:
    """A kubelet or an administrator writes what our accounts may not."""
    client = installed.cluster.client
    await client.patch(NODES, NODE, {"metadata": {"labels": {"pool": "x"}}})
    await client.patch(NODES, NODE, status(capacity={"nvidia.com/gpu": "8"}), subresource="status")


async def test_an_agent_writes_evidence_of_its_own_node(installed: Installed) -> None:
    def evidence(name: str, node: str, session: str, **meta: Any) -> Object:
        return {
            "apiVersion": names.API_VERSION,
            "kind": "GPUEvidence",
            "metadata": {"name": name, **meta},
            "spec": {"session": session, "nodeName": node, "sha256": "0" * 64},
        }

    owner = {"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": "dead"}
    refused = [
        (evidence("a", OTHER, "a"), "only about the node"),
        (evidence("b", NODE, "a"), "the name of its session"),
        (evidence("c", NODE, "c", ownerReferences=[owner]), "no owner"),
        (evidence("d", NODE, "d", finalizers=["x.example/y"]), "no finalizer"),
    ]
    async with installed.agent() as agent:

        async def enforced() -> bool:
            return "ValidatingAdmissionPolicy" in await answer(
                agent.create(GPU_EVIDENCES, refused[0][0], dry_run=True)
            )

        await installed.cluster.until(enforced, "the policy on evidence in force")
        for wrong, why in refused:
            assert why in await answer(agent.create(GPU_EVIDENCES, wrong))
        mine = evidence(f"{NODE}-0a1b2c3d", NODE, f"{NODE}-0a1b2c3d")
        assert not await answer(agent.create(GPU_EVIDENCES, mine))
        change = {"spec": {"sha256": "1" * 64}}
        assert await answer(agent.patch(GPU_EVIDENCES, mine["metadata"]["name"], change))
        with pytest.raises(ApiError, match="sha256 cannot be changed"):
            await installed.cluster.client.patch(GPU_EVIDENCES, mine["metadata"]["name"], change)
