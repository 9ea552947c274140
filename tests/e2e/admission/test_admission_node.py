"""A kubelet's credential against its own quarantine, on a real API server. Needs
KUBEBUILDER_ASSETS.

The simulator stores admission policies and does not enforce them; their decisions are shown there
by tests/unit/daemonset/test_manifests_admission_node.py.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hack.sim.cluster.clients.client import ApiError
from hack.sim.cluster.clients.http_client import HttpClient
from hack.sim.cluster.resource import NODES, Resource
from hack.sim.control_plane import ASSETS, Setup, control_plane
from hack.sim.manifests import post_manifests, read_manifests
from rules.api import mark, names
from rules.api.nodes import FreshNode

REPOSITORY = Path(__file__).parents[3]
NODE = "gpu-1"
KUBELET = f"system:node:{NODE}"
BINDINGS = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", False, "ClusterRoleBinding"
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not os.environ.get(ASSETS),
        reason=f"admission policies need a real API server: set {ASSETS}",
    ),
]


class Guarded:
    """A quarantined node, its kubelet, and the administrator."""

    def __init__(self, kubelet: HttpClient, admin: Any) -> None:
        self.kubelet, self.admin = kubelet, admin

    async def refused(self, patch: dict[str, Any], subresource: str | None = None) -> str:
        """What the API server says to the kubelet; empty when it takes it."""
        try:
            await self.kubelet.patch(NODES, NODE, patch, subresource=subresource)
        except ApiError as error:
            if error.code != 403:
                raise
            return str(error)
        return ""

    async def view(self) -> FreshNode:
        found = await self.admin.get(NODES, NODE)
        return msgspec.json.decode(msgspec.json.encode(found), type=FreshNode)


@asynccontextmanager
async def quarantined() -> AsyncIterator[Guarded]:
    setup = Setup(secure=True, users={KUBELET: ("system:nodes",)})
    async with control_plane(setup) as plane:
        shipped = read_manifests(REPOSITORY / "daemonset" / "base")
        policies = [o for o in shipped if o["kind"].startswith("ValidatingAdmissionPolicy")]
        await post_manifests(plane.client, policies)
        subject = {"apiGroup": BINDINGS.group, "kind": "Group", "name": "system:nodes"}
        role = {"apiGroup": BINDINGS.group, "kind": "ClusterRole", "name": "system:node"}
        await plane.client.create(
            BINDINGS,
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": "kubelets"},
                "roleRef": role,
                "subjects": [subject],
            },
        )
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}
        await plane.client.create(NODES, body)
        assert plane.ca_pem is not None
        tls = ssl.create_default_context(cadata=plane.ca_pem.decode())
        async with HttpClient(plane.url, token=plane.tokens[KUBELET], tls=tls) as kubelet:
            found = Guarded(kubelet, plane.client)
            patch = mark.mark_patch(
                await found.view(), session="s", reason="Xid79", phase="Marked",
                mark="CordonAndTaint", now=0.0,
            )  # fmt: skip
            # Kubernetes' own controllers write a fresh node too; nothing here is about races.
            del patch["metadata"]["resourceVersion"]
            await plane.client.patch(NODES, NODE, patch)
            await in_force(found)
            yield found


async def in_force(found: Guarded) -> None:
    """A policy takes effect some moments after it is stored."""
    until = time.monotonic() + 60
    for attempt in itertools.count():
        probe = {"metadata": {"annotations": {names.ANNOTATION_HOLD: str(attempt)}}}
        if "ValidatingAdmissionPolicy" in await found.refused(probe):
            break
        assert time.monotonic() < until, "the policy is not in force"
        await asyncio.sleep(0.2)
    await found.admin.patch(
        NODES, NODE, {"metadata": {"annotations": {names.ANNOTATION_HOLD: None}}}
    )


async def test_a_node_cannot_end_its_own_quarantine() -> None:
    labels = {names.LABEL_OPT_OUT: "true"}
    attempts: list[tuple[dict[str, Any], str | None]] = [
        ({"spec": {"unschedulable": None}}, None),
        ({"spec": {"taints": None}}, None),
        ({"metadata": {"annotations": {names.ANNOTATION_SESSION: None}}}, None),
        ({"metadata": {"annotations": {names.ANNOTATION_SESSION: None}}}, "status"),
        ({"metadata": {"labels": labels}}, None),
        ({"metadata": {"labels": {names.LABEL_DRIVER_UPGRADE: "drain-required"}}}, "status"),
    ]
    async with quarantined() as found:
        for patch, subresource in attempts:
            said = await found.refused(patch, subresource)
            assert "a node may not" in said, (patch, subresource)
        view = await found.view()
        assert mark.mark_state(view, "s") is mark.MarkState.WHOLE
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        beat = {
            "metadata": {"annotations": {"volumes.kubernetes.io/x": "true"}},
            "status": {"conditions": [ready], "nodeInfo": {"bootID": "b2"}},
        }
        assert await found.refused(beat, "status") == ""
        await found.admin.patch(NODES, NODE, {"spec": {"unschedulable": None}})
        assert not (await found.view()).spec.unschedulable, "a person is not concerned"
