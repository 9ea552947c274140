"""A real remediator process has a drained node tested by a Job, and believes only a pass of it."""

from typing import Any

import pytest

from hack.sim.cluster.client import Object
from hack.sim.cluster.fleet.fleet import Pool
from hack.sim.cluster.fleet.fleet_health import XID_79
from hack.sim.cluster.resource import JOBS, POD_TEMPLATES, PODS
from tests.support.cluster.made import made
from tests.support.remediator.remediator_process import (
    QUICK,
    RemediatorProcess,
    leads,
    phase,
    prepare,
    running,
    sessions,
)
from tests.support.scenario.repair_world import result_json

TESTED = "validate: {provider: Job, timeout: 2m}\n"
NODES = [f"gpu-000{n}" for n in range(3)]
NODE = NODES[0]


async def ends_with(cluster: Any, exit_code: int, message: str, *, by_itself: bool = True) -> None:
    """The PodTemplate of a pod that the simulated kubelet ends with this result."""
    annotations = {
        **({"sim.gpuward.io/finish-after": "0.3"} if by_itself else {}),
        "sim.gpuward.io/exit-code": str(exit_code),
        "sim.gpuward.io/message": message,
    }
    template: Object = {
        "metadata": {"annotations": annotations},
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "validate", "image": "registry.example/gpuward:1"}],
        },
    }
    await made(cluster.client, POD_TEMPLATES, "gpuward-validate", "gpuward", template=template)


async def three_nodes(cluster: Any) -> None:
    await prepare(cluster)
    await cluster.add(pool=Pool(name="gpu", nodes=len(NODES)))
    await cluster.health.all_healthy(NODES)


async def test_s35_a_node_is_released_after_a_passed_test_under_any_leader(cluster, tmp_path):
    await three_nodes(cluster)
    await ends_with(cluster, 0, result_json("pass"), by_itself=False)
    one = RemediatorProcess(tmp_path, cluster.plane.kubeconfig, policy=QUICK + TESTED)

    async def asked():
        found = [
            t for s in await sessions(cluster, NODE) for t in s["status"].get("validation", ())
        ]
        return found[-1] if found and found[-1].get("jobUID") else None

    with running(one):
        await leads(cluster, "one")
        await cluster.health.fail(NODE, XID_79)
        await phase(cluster, NODE, "Quarantined")
        await cluster.health.healthy(NODE)
        test = await cluster.until(asked, "the test on record")
        one.kill()
        job = await cluster.client.get(JOBS, test["object"], "gpuward")
        assert job["metadata"]["uid"] == test["jobUID"]
        assert job["spec"]["template"]["spec"]["nodeName"] == NODE
        assert (await cluster.node(NODE))["spec"]["unschedulable"]
        one.start()
        await cluster.programs_end("gpuward", test["object"])
        session = await phase(cluster, NODE, "Released")
        (ended,) = session["status"]["validation"]
        assert (ended["state"], ended["verdict"], ended["jobUID"]) == (
            "Passed",
            "pass",
            test["jobUID"],
        )
        jobs, _ = await cluster.client.list(JOBS, "gpuward")
        assert len(jobs) == 1


async def test_a_failed_test_and_one_that_lies_keep_the_node(cluster, tmp_path):
    await three_nodes(cluster)
    await ends_with(cluster, 2, result_json("fail", value=7, unit="errors"))
    one = RemediatorProcess(tmp_path, cluster.plane.kubeconfig, policy=QUICK + TESTED)

    async def called():
        found = (await sessions(cluster, NODE))[-1]
        causes = [c["reason"] for c in found["spec"]["causes"]]
        conditions = {c["type"]: c for c in found["status"].get("conditions", ())}
        needed = conditions.get("NeedsHuman", {"status": ""})
        return found if "ValidationFailed" in causes and needed["status"] == "True" else None

    with running(one):
        await leads(cluster, "one")
        await cluster.health.fail(NODE, XID_79)
        await phase(cluster, NODE, "Quarantined")
        await cluster.health.healthy(NODE)
        session = await cluster.until(called, "an operator called after the failed test")
        assert session["status"]["phase"] == "Quarantined"
        (test,) = session["status"]["validation"]
        assert (test["state"], test["checks"][0]["value"]) == ("Failed", 7)
        assert (await cluster.node(NODE))["spec"]["unschedulable"]
        pods, _ = await cluster.client.list(PODS, "gpuward")
        assert [p["spec"]["nodeName"] for p in pods] == [NODE]


@pytest.mark.slow
@pytest.mark.parametrize("path", [r"/jobs$", r"/gpuquarantines/[^/]+/status$"])
@pytest.mark.parametrize("after", [False, True], ids=["not sent", "done"])
async def test_killed_at_the_job_and_at_its_record_one_job_is_made(cluster, tmp_path, path, after):
    await three_nodes(cluster)
    await ends_with(cluster, 0, result_json("pass"))
    one = RemediatorProcess(tmp_path, cluster.plane.kubeconfig, policy=QUICK + TESTED)

    async def released():
        one.revive()
        found = await sessions(cluster, NODE)
        return found[-1] if found[-1].get("status", {}).get("phase") == "Released" else None

    with running(one):
        await leads(cluster, "one")
        await cluster.health.fail(NODE, XID_79)
        await phase(cluster, NODE, "Quarantined")
        # The first record from here on is that of Validating, the second that of the test.
        number = 1 if path.startswith("/jobs") else 2
        stop = cluster.plane.faults.at_write(
            number, one.kill, agent="^gpuward-remediator", path=path, after=after
        )
        await cluster.health.healthy(NODE)
        session = await cluster.until(released, "the session over")
        assert stop.hits == 1
        assert [t["state"] for t in session["status"]["validation"]] == ["Passed"]
        jobs, _ = await cluster.client.list(JOBS, "gpuward")
        assert len(jobs) == 1
