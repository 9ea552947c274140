"""Exported from a running cluster and replayed: the same nodes, the same steps, at the same
times.
"""

from __future__ import annotations

import asyncio
import json

from hack.sim.cluster.fleet.fleet import Pool
from hack.sim.cluster.fleet.fleet_health_objects import XID_79
from hack.sim.cluster.resource import Resource
from remediator.cli import main as remediator_main
from rules.api.timestamps import parse_time
from tests.support.remediator.kubectl_cluster import run_command
from tests.support.remediator.remediator_process import (
    QUICK,
    RemediatorProcess,
    leads,
    phase,
    prepare,
    running,
    sessions,
)

RECORDS = Resource("gpuward.io", "v1alpha1", "gpurecords", False, "GPURecord")
BUDGET = QUICK.replace("percent: 50, atMost: 50", "percent: 50, atMost: 2")
NEAR_S = 4.0


async def test_issue14_the_back_test_of_a_running_cluster_is_what_happened(
    cluster, tmp_path, capsys
):
    await prepare(cluster)
    await cluster.add(pool=Pool(name="gpu", nodes=4))
    names = [f"gpu-000{n}" for n in range(4)]
    await cluster.health.all_healthy(names)
    one = RemediatorProcess(tmp_path, cluster.plane.kubeconfig, policy=BUDGET)
    with running(one):
        await leads(cluster, "one")
        for name in names[:3]:
            await cluster.health.fail(name, XID_79)
            await phase(cluster, name, "Pending" if name == names[2] else "Quarantined")
        # Records count whole seconds: what follows within one has no order in them.
        await asyncio.sleep(2.5)
        await cluster.health.healthy(names[0])
        await phase(cluster, names[0], "Released")
        await phase(cluster, names[2], "Quarantined")
        await asyncio.sleep(2.5)
        await cluster.health.healthy(names[2])
        await phase(cluster, names[2], "Released")

        async def recorded():
            found, _ = await cluster.client.list(RECORDS)
            ended = [r for r in found if r.get("status", {}).get("events")]
            return len(ended) == 3

        await cluster.until(recorded, "the records of three GPUs")
        export = tmp_path / "cluster.tar.gz"
        kubeconfig = ("--kubeconfig", str(cluster.plane.kubeconfig))
        code, _, err = await asyncio.to_thread(
            run_command, *kubeconfig, "export", "-f", str(export)
        )
        assert code == 0, err
        real = {name: (await sessions(cluster, name))[-1] for name in names[:3]}
    command = ["backtest", "--records", str(export), "--policy", str(one.policy), "--json"]
    assert remediator_main(command) == 0
    report = json.loads(capsys.readouterr().out)
    really, again = report["policies"]
    assert [t["node"] for t in again["taken"]] == [t["node"] for t in really["taken"]]
    for was, is_now in zip(really["taken"], again["taken"], strict=True):
        assert (was["reason"], was["phase"]) == (is_now["reason"], is_now["phase"])
        for step in ("at", "drained", "ended"):
            assert bool(was[step]) == bool(is_now[step]), (was, is_now)
            if was[step]:
                apart = abs((parse_time(was[step]) or 0) - (parse_time(is_now[step]) or 0))
                assert apart <= NEAR_S, (step, was, is_now)
    waited = {w["node"]: w["reason"] for w in again["waited"]}
    assert waited == {names[2]: "Budget"}
    assert all(session["status"]["phase"] for session in real.values())
