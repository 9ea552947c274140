"""Components notice and lifecycle-conditions on a real API server: what they allow, and no more.

tests/unit/daemonset/test_notice_component.py and test_lifecycle_component.py show each decision.
These need KUBEBUILDER_ASSETS.
"""

import os
from collections.abc import AsyncIterator
from typing import Any

import pytest

from hack.sim.cluster.client import HttpClient, Object
from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.resource import NODES, PODS
from hack.sim.control_plane import ASSETS
from hack.sim.manifests import post_manifests, read_manifests, with_component
from rules.api import names
from rules.api.refusal import ErrorKind, error_kinds
from rules.api.requests import STRATEGIC_PATCH, request
from rules.api.writes import NotifyPod, SetDisruptionTarget, SetDrainConditions
from tests.support.cluster.either_cluster import Cluster, a_cluster
from tests.support.cluster.manifest_builds import DAEMONSET

NODE, POD, OURS = "gpu-1", "train", "gpuward"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not os.environ.get(ASSETS),
        reason=f"admission policies need a real API server: set {ASSETS}",
    ),
]


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    objects = read_manifests(DAEMONSET)
    for name in ("notice", "lifecycle-conditions"):
        objects = with_component(objects, DAEMONSET / "components" / name)
    async with a_cluster(secure=True) as found:
        await post_manifests(found.client, objects, namespace=OURS)
        await found.add_nodes(NODE)
        await found.add_pod(POD, NODE)
        yield found


async def written(client: HttpClient, patch: Object, *, dry_run: bool = False) -> None:
    await client.patch(
        PODS, POD, patch, "default",
        subresource="status", content_type=STRATEGIC_PATCH, dry_run=dry_run,
    )  # fmt: skip


async def answer(client: HttpClient, patch: Object, *, dry_run: bool = False) -> str:
    """The error for a patch of the pod's status; "" if it is admitted."""
    try:
        await written(client, patch, dry_run=dry_run)
    except ApiError as error:
        return str(error)
    return ""


async def test_a_notice_is_written_and_withdrawn_and_nothing_else_of_a_pod(
    cluster: Cluster,
) -> None:
    pod = await cluster.client.get(PODS, POD, "default")
    about = {"node": NODE, "namespace": "default", "name": POD, "uid": pod["metadata"]["uid"]}

    def notified(drain_at: float | None) -> Any:
        return request(NotifyPod(**about, at=0.0, drain_at=drain_at, message="m")).body

    token = await cluster.plane.service_account_token(OURS, "gpuward-remediator")
    async with cluster.plane.client_of(token) as remediator:
        foreign = {"metadata": {"labels": {"team": "b"}}}

        async def in_force() -> bool:
            return "ValidatingAdmissionPolicy" in await answer(remediator, foreign, dry_run=True)

        await cluster.until(in_force, "the admission policy of component notice in force")
        assert await answer(remediator, notified(60.0)) == ""
        found = await cluster.client.get(PODS, POD, "default")
        assert found["metadata"]["annotations"][names.ANNOTATION_DRAIN_AT]
        assert await answer(remediator, notified(None)) == ""
        found = await cluster.client.get(PODS, POD, "default")
        assert names.ANNOTATION_DRAIN_AT not in found["metadata"].get("annotations", {})
        conditions = {c["type"]: c["status"] for c in found["status"]["conditions"]}
        assert conditions[names.CONDITION_DRAIN_PLANNED] == "False"
        forced = request(SetDisruptionTarget(**about, at=0.0, message="m")).body
        assert await answer(remediator, forced or {}) == ""
        gate = {"status": {"conditions": [{"type": "example.com/gate", "status": "True"}]}}
        assert "only the conditions" in await answer(remediator, gate)
        assert "only the annotation" in await answer(
            remediator, {"metadata": {"annotations": {"team": "b"}}}
        )
        assert "only the conditions" in await answer(remediator, {"status": {"phase": "Failed"}})
        other = {**notified(60.0), "metadata": {"uid": "another"}}
        with pytest.raises(ApiError) as refused:
            await written(remediator, other)
        kinds = error_kinds(str(refused.value))
        assert ErrorKind.OTHER_UID in kinds, "the UID is a precondition"


async def test_a_drain_is_reported_on_a_quarantined_node_and_withdrawn(cluster: Cluster) -> None:
    uid = (await cluster.node(NODE))["metadata"]["uid"]
    token = await cluster.plane.service_account_token(OURS, "gpuward-remediator")
    async with cluster.plane.client_of(token) as remediator:

        async def report(kind: str, holds: bool, *, dry_run: bool = False) -> str:
            write = SetDrainConditions(
                node=NODE, node_uid=uid, session="s", states=((kind, holds),), at=0.0, message="m"
            )
            try:
                await remediator.patch(
                    NODES, NODE, request(write).body,
                    subresource="status", content_type=STRATEGIC_PATCH, dry_run=dry_run,
                )  # fmt: skip
            except ApiError as error:
                return str(error)
            return ""

        async def in_force() -> bool:
            return "report a drain" in await report("Drained", True, dry_run=True)

        await cluster.until(in_force, "no report about a node in service")
        note = {"metadata": {"annotations": {names.ANNOTATION_SESSION: "{}"}}}
        await cluster.client.patch(NODES, NODE, note)
        for kind in names.DRAIN_CONDITIONS:
            assert await report(kind, True) == ""
        assert "no condition but" in await report("MaintenanceInProgress", True)
        for kind in names.DRAIN_CONDITIONS:
            assert await report(kind, False) == ""
        found = {
            c["type"]: c["status"] for c in (await cluster.node(NODE))["status"]["conditions"]
        }
        assert {found[kind] for kind in names.DRAIN_CONDITIONS} == {"False"}
