"""Exported from a running cluster and replayed: the same nodes, the same steps, at the same
times.
"""

from __future__ import annotations

import asyncio
import json
import tarfile

import pytest

from hack.sim.cluster.fleet.fleet import Pool
from hack.sim.cluster.fleet.fleet_health_objects import XID_79
from hack.sim.cluster.resource import POD_TEMPLATES, Resource
from hack.sim.demo.repairs import NEEDS_RESET
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


REPAIRED = """
validate: {provider: Builtin, timeout: 2m}
repair:
  mode: Auto
  steps:
    ResetGPU: {adapter: NodeConditions, timeout: 3s}
    RestartNode: {adapter: NodeConditions, timeout: 5m}
"""
SECRET = "hunter2-do-not-leak"


@pytest.mark.slow
async def test_issue14_a_ladder_and_its_test_are_back_tested_decision_by_decision(
    cluster, tmp_path, capsys
):
    """A reset that nobody does, a restart, a test, the release: the same again, and under a policy
    without repair it is said where they part.
    """
    await prepare(cluster)
    await cluster.add(pool=Pool(name="gpu", nodes=3))
    names = [f"gpu-000{n}" for n in range(3)]
    await cluster.health.all_healthy(names)
    await builtin_test(cluster)
    node = names[0]
    one = RemediatorProcess(tmp_path, cluster.plane.kubeconfig, policy=QUICK + REPAIRED)
    with running(one):
        await leads(cluster, "one")
        await cluster.health.fail(node, NEEDS_RESET)
        await cluster.until(lambda: cluster.health.keep_evidence(node), "the mark")

        async def restart_asked():
            conditions = (await cluster.node(node))["status"]["conditions"]
            return any(
                c["type"] == "GPUNeedsRestart" and c["status"] == "True" for c in conditions
            )

        await cluster.until(restart_asked, "the request for a restart")
        await cluster.plane.controllers.kubelets.reboot(node)
        await cluster.health.recreated(node)
        await phase(cluster, node, "Released")
        await asyncio.sleep(1.5)
        export = tmp_path / "repaired.tar.gz"
        code, _, err = await asyncio.to_thread(
            run_command,
            *("--kubeconfig", str(cluster.plane.kubeconfig), "export", "-f", str(export)),
        )
        assert code == 0, err
    with tarfile.open(export) as tar:
        held = b"".join(file.read() for m in tar if (file := tar.extractfile(m)) is not None)
    assert SECRET.encode() not in held
    off = tmp_path / "off.yaml"
    off.write_text(QUICK)
    policies = ("--policy", str(one.policy), "--policy", str(off))
    assert remediator_main(["backtest", "--records", str(export), *policies, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    really, again, without = report["policies"]
    (was,), (is_now,) = really["taken"], again["taken"]
    said = [d["what"] for d in was["decisions"]]
    for step in ("ResetGPU failed", "RestartNode proven", "test pass", "Released"):
        assert step in said
    assert sorted(d["what"] for d in is_now["decisions"]) == sorted(said)
    for what in said:
        one_at, other_at = (
            [parse_time(d["at"]) or 0 for d in taken["decisions"] if d["what"] == what]
            for taken in (was, is_now)
        )
        apart = [abs(a - b) for a, b in zip(one_at, other_at, strict=True)]
        assert max(apart) <= NEAR_S, (what, was, is_now)
    assert without["taken"][0]["phase"] == "Quarantined"
    pairs = {(p["first"], p["second"]): p for p in report["differences"]}
    assert pairs["what really was", one.policy.name]["nodes"] == []
    (differs,) = pairs["what really was", "off.yaml"]["nodes"]
    assert "off.yaml repairs nothing" in differs["parts"]


async def builtin_test(cluster):
    """The PodTemplate of a test that passes after a moment, with a secret in its environment."""
    passes = {"verdict": "pass", "checks": [{"id": "memory", "verdict": "pass"}]}
    annotations = {
        "sim.gpuward.io/finish-after": "500ms",
        "sim.gpuward.io/exit-code": "0",
        "sim.gpuward.io/message": json.dumps(passes),
    }
    container = {
        "name": "validate",
        "image": "registry.example/gpuward:1",
        "env": [{"name": "TOKEN", "value": SECRET}],
    }
    template = {
        "metadata": {"annotations": annotations},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    meta = {"name": "gpuward-validate"}
    body = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": meta, "template": template}
    await cluster.client.create(POD_TEMPLATES, body, "gpuward")
