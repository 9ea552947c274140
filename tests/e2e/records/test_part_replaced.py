"""A part is replaced while its node is in quarantine: the session says so, and so does history."""

from __future__ import annotations

from hack.sim.cluster.fleet.fleet import Pool
from hack.sim.cluster.fleet.fleet_health_objects import XID_79
from hack.sim.cluster.resource import Resource
from tests.support.remediator.remediator_process import (
    RemediatorProcess,
    leads,
    phase,
    prepare,
    running,
    sessions,
)

HEALTHS = Resource("gpuward.io", "v1alpha1", "gpunodehealths", False, "GPUNodeHealth")
NODE = "gpu-0000"


async def test_which_part_was_put_in_for_which_is_said_by_the_session_and_by_history(
    cluster, tmp_path
):
    await prepare(cluster)
    await cluster.add(pool=Pool(name="gpu", nodes=2))
    await cluster.health.all_healthy([NODE, "gpu-0001"])
    with running(RemediatorProcess(tmp_path, cluster.plane.kubeconfig)):
        await leads(cluster, "one")
        await cluster.health.fail(NODE, XID_79)
        await phase(cluster, NODE, "Quarantined")
        verdict = await cluster.client.get(HEALTHS, NODE)
        bad = verdict["status"]["gpus"][3]
        old, bad["uuid"], bad["serial"] = dict(bad), "GPU-put-in", "1654999999"
        for incident in verdict["status"]["incidents"]:
            incident["active"] = False
        await cluster.client.update_status(HEALTHS, verdict)

        async def said():
            timeline = (await sessions(cluster, NODE))[-1]["status"]["timeline"]
            return next((one for one in timeline if one["step"] == "GPUReplaced"), None)

        entry = await cluster.until(said, "the swap in the timeline")
        assert old["uuid"] in entry["message"]
        assert "was replaced by serial 1654999999 (GPU-put-in)" in entry["message"]
