"""The API calls of one session, counted at the API server, against the table of the docs."""

import asyncio
import re
from collections import Counter
from pathlib import Path

from hack.sim.cluster.controllers.nodes import node_info
from hack.sim.cluster.fleet.fleet import Pool, Serving
from hack.sim.cluster.fleet.fleet_health import XID_79
from hack.sim.cluster.resource import NODES, STRATEGIC_MERGE_PATCH
from tests.support.remediator.remediator_process import (
    RemediatorProcess,
    leads,
    phase,
    prepare,
    running,
)

DOCS = Path(__file__).parents[3] / "docs" / "performance.md"
POLICY = """
mode: Enforce
budget: {maxUnavailable: {percent: 100, atMost: 1}}
drain: {settle: 1s, gangWindow: 1s}
release: {healthyFor: 1s}
"""
QUIET_S = 2.0
ROW = re.compile(r"^\| `(\w+ [\w/?=]+)` \| (\d+) \|", re.MULTILINE)
CACHED = "resourceVersion"
"""The API server answers such a list from its cache."""


def documented() -> Counter[str]:
    """The table *Calls of one session*: call and number."""
    section = DOCS.read_text(encoding="utf-8").partition("## Calls of one session")[2]
    return Counter({call: int(number) for call, number in ROW.findall(section)})


def counted(cluster) -> Counter[str]:
    """The calls of the remediator so far, but for those of its lease."""
    return Counter(
        f"{one.verb} {one.resource}{'/' if one.subresource else ''}{one.subresource}"
        f"{'?' + CACHED if one.verb == 'list' and CACHED in one.path else ''}"
        for one in cluster.plane.requests.all
        if one.agent.startswith("gpuward-remediator") and one.resource != "leases"
    )


async def recorded(cluster) -> bool:
    return counted(cluster)["patch gpurecords/status"] > 0


async def quiet(cluster) -> Counter[str]:
    """The calls so far, once there was none for `QUIET_S`."""
    while True:
        before = counted(cluster)
        await asyncio.sleep(QUIET_S)
        if counted(cluster) == before:
            return before


async def test_a_session_with_four_pods_needs_no_more_calls_than_documented(cluster, tmp_path):
    await prepare(cluster)
    web = Serving(name="web", replicas=4, pool="gpu")
    await cluster.add(pool=Pool(name="other", nodes=1))
    await cluster.add(web, pool=Pool(name="gpu", nodes=1))
    await cluster.ready_pods("web", 4)
    await cluster.health.all_healthy(["gpu-0000", "other-0000"])
    with running(RemediatorProcess(tmp_path, cluster.plane.kubeconfig, policy=POLICY)):
        await leads(cluster, "one")
        before = await quiet(cluster)
        await cluster.health.fail("gpu-0000", XID_79)
        await phase(cluster, "gpu-0000", "Quarantined")
        await cluster.health.keep_evidence("gpu-0000")
        rebooted = {"status": {"nodeInfo": node_info("gpu-0000", boot=1)}}
        await cluster.client.patch(
            NODES, "gpu-0000", rebooted,
            subresource="status", content_type=STRATEGIC_MERGE_PATCH,
        )  # fmt: skip
        await cluster.health.recreated("gpu-0000")
        await phase(cluster, "gpu-0000", "Released")
        calls = await quiet(cluster) - before
        await cluster.until(lambda: recorded(cluster), "the record of the fault")
        # Until then other parts read health statuses, too: the record needs one.
        after = await quiet(cluster) - before
        calls |= Counter({call: after[call] for call in after if "gpurecords" in call})
        calls["get gpunodehealths"] += 1
    more = calls - documented()
    assert not more, f"more calls than documented: {dict(more)}; all: {dict(calls)}"
    assert documented().total() - calls.total() <= 2, f"document fewer calls: {dict(calls)}"
