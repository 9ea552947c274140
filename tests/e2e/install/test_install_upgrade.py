"""An upgrade and a rollback in the middle of a drain end as if nothing had happened.

The definitions of the other release have one status field less; the remediator of the next release
starts while the one before is still there, as a Deployment rolls.
"""

import asyncio
import copy
from collections.abc import Callable
from pathlib import Path

import pytest

from hack.sim.cluster.client import Object
from hack.sim.cluster.controllers.pods import node_of
from hack.sim.cluster.fleet.fleet import Budget, Pool, Serving
from hack.sim.cluster.fleet.fleet_health import XID_79
from hack.sim.cluster.resource import CUSTOM_RESOURCE_DEFINITIONS, POD_DISRUPTION_BUDGETS
from hack.sim.manifests import read_manifests
from tests.support.cluster.either_cluster import Cluster
from tests.support.remediator.remediator_process import (
    RemediatorProcess,
    condition_of,
    leads,
    not_quarantined,
    phase,
    prepare,
    running,
    sessions,
    steps,
)

pytestmark = pytest.mark.slow  # two sessions, each with a change of leader

DEFINITIONS = Path(__file__).parents[3] / "daemonset" / "crds"
# An optional status field that the older release did not know.
LATER_FIELDS = {"GPUQuarantine": "evidence", "GPUNodeHealth": "topology"}
WEB = Serving(name="web", replicas=2, pool="gpu", gpus=8, budget=Budget(min_available=2))


def newer() -> list[Object]:
    return read_manifests(DEFINITIONS)


def older() -> list[Object]:
    definitions = copy.deepcopy(newer())
    for definition in definitions:
        schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        if (kind := definition["spec"]["names"]["kind"]) in LATER_FIELDS:
            del schema["properties"]["status"]["properties"][LATER_FIELDS[kind]]
    return definitions


async def apply(cluster: Cluster, definitions: list[Object]) -> None:
    for definition in definitions:
        name = definition["metadata"]["name"]
        there = await cluster.client.get(CUSTOM_RESOURCE_DEFINITIONS, name)
        await cluster.client.update(
            CUSTOM_RESOURCE_DEFINITIONS, {**there, "spec": {**there["spec"], **definition["spec"]}}
        )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(older, newer, id="upgrade"),
        pytest.param(newer, older, id="rollback"),
    ],
)
async def test_a_change_of_release_in_the_middle_of_a_drain_changes_nothing(
    cluster: Cluster,
    tmp_path: Path,
    before: Callable[[], list[Object]],
    after: Callable[[], list[Object]],
) -> None:
    await prepare(cluster)
    await apply(cluster, before())
    await cluster.add(WEB, pool=Pool(name="gpu", nodes=4))
    await cluster.health.all_healthy([f"gpu-000{n}" for n in range(4)])
    node = node_of((await cluster.ready_pods("web", 2))[0])
    kubeconfig = cluster.plane.kubeconfig
    one = RemediatorProcess(tmp_path, kubeconfig, name="one")
    two = RemediatorProcess(tmp_path, kubeconfig, name="two")
    with running(one):
        await leads(cluster, "one")
        await cluster.health.fail(node, XID_79)

        async def blocked() -> bool:
            found = await sessions(cluster, node)
            return bool(found) and condition_of(found[-1], "Blocked").get("status") == "True"

        await cluster.until(blocked, "a drain that waits for its budget")
        await apply(cluster, after())
        two.start()
        # Not in this thread: the server must answer while it gives up its lease.
        await asyncio.to_thread(one.stop)
        try:
            await leads(cluster, "two")
            allow = {"spec": {"minAvailable": 1}}
            await cluster.client.patch(POD_DISRUPTION_BUDGETS, "web", allow, "serving")
            session = await phase(cluster, node, "Quarantined")
            assert session["status"]["drain"]["evicted"] == 1
            await cluster.health.healthy(node)
            session = await phase(cluster, node, "Released")
            await not_quarantined(cluster, node)
        finally:
            two.stop()
    assert len(await sessions(cluster, node)) == 1
    assert steps(session) == [
        "Pending", "Marked", "Draining", "Quarantined", "Validating", "Released",
    ]  # fmt: skip
    assert len(await cluster.ready_pods("web", 2)) == 2
