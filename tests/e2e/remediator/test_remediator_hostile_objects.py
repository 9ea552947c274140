"""A real remediator while the API server serves mutated objects of every kind that it watches.

No part stops, no error is raised, and the sessions of the other nodes continue.
`GPUWARD_TEST_HOSTILE_S` sets the duration (default 40 s); docs/invariants.md has the results of
ten minutes. The seed is printed and can be set with `GPUWARD_TEST_HOSTILE_SEED`.
"""

import asyncio
import os
import random
import sys
import time
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from hack.sim.cluster.client import Object, kubeconfig_text
from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.fleet.fleet import Budget, Pool, Serving
from hack.sim.cluster.fleet.fleet_health import GPU_NODE_HEALTHS, XID_79
from hack.sim.cluster.resource import (
    DAEMON_SETS,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    REPLICATION_CONTROLLERS,
)
from hack.sim.control_plane import ADMIN
from hack.sim.proxy.server import proxy_before
from remediator.kube.resources import AGENT_SELECTOR
from tests.support.cluster.hostile_objects import HOSTILE, Mutator
from tests.support.cluster.made import made
from tests.support.remediator.remediator_process import (
    PAUSES,
    QUARANTINES,
    RemediatorProcess,
    leads,
    phase,
    prepare,
    running,
)

FOR_S = float(os.environ.get("GPUWARD_TEST_HOSTILE_S", "40"))
SEED = int(os.environ.get("GPUWARD_TEST_HOSTILE_SEED", "0")) or random.randrange(1, 2**31)
AT_LEAST = frozenset({"nodes", "gpunodehealths", "pods", "gpuwardpauses"})
LONGER_S = 120.0
"""A slow machine may go on for so long until each of `AT_LEAST` was served."""
SOUND = [f"gpu-000{number}" for number in range(3)]
HOSTILE_NODE = "gpu-0003"
KINDS = frozenset(
    {
        *("nodes", "gpunodehealths", "gpuquarantines", "pods", "poddisruptionbudgets"),
        *("daemonsets", "replicationcontrollers"),
    }
)
AGENT_LABELS = dict(text_part.split("=") for text_part in AGENT_SELECTOR.split(","))
LONG_S = 300.0
HOSTILE_PODS = 6
TURNS_PER_SESSION = 20
"""A turn takes 0.2 s and what its writes take."""
POLICY = """
mode: Enforce
budget:
  maxUnavailable: {percent: 100, atMost: 1000}
  maxNew: {count: 1000, window: 1s}
  perReason: {count: 1000, window: 1s}
drain: {settle: 1s, gangWindow: 1s, unmanaged: Evict}
release: {healthyFor: 1s, cancelExpiry: 1s, replaceAfter: 1000}
"""


def concerns_hostile(plural, obj):
    metadata, spec = obj.get("metadata") or {}, obj.get("spec") or {}
    name = str(metadata.get("name", ""))
    return HOSTILE_NODE in {name, spec.get("nodeName")} or name.startswith("hostile")


async def add_hostile(cluster):
    """One object of each kind, about the hostile node."""
    await cluster.add_namespace("hostile")
    container = {"name": "agent", "image": "registry.example/agent:1"}
    spec: Object = {"nodeName": HOSTILE_NODE, "containers": [container]}
    meta = {"labels": AGENT_LABELS}
    await made(cluster.client, PODS, "hostile-agent", "gpuward", meta=meta, spec=spec)
    await cluster.add_budget("hostile-0", "hostile", minAvailable=100)
    template = {
        "metadata": {"labels": {"app": "hostile-ds"}},
        "spec": {
            "nodeSelector": {"nvidia.com/gpu.present": "never"},
            "containers": [{"name": "c", "image": "registry.example/x:1"}],
        },
    }
    spec = {"selector": {"matchLabels": {"app": "hostile-ds"}}, "template": template}
    await made(cluster.client, DAEMON_SETS, "hostile-ds", "hostile", spec=spec)


async def add_owner(cluster, number):
    """A new owner, whose selector has a legal, odd key: what is known of one is not read again."""
    template = {
        "metadata": {"labels": {"matchLabels": "x"}},
        "spec": {"containers": [{"name": "c", "image": "registry.example/x:1"}]},
    }
    spec = {"replicas": 0, "selector": {"matchLabels": "x"}, "template": template}
    kind, name = REPLICATION_CONTROLLERS, f"hostile-rc-{number}"
    owner = await made(cluster.client, kind, name, "hostile", spec=spec)
    return {
        "apiVersion": "v1", "kind": kind.kind, "name": name, "uid": owner["metadata"]["uid"],
        "controller": True,
    }  # fmt: skip


async def add_pods(cluster, reference):
    """Pods that were evicted are back, with a GPU; the PDB lets every second one not go, and who
    owns such a pod is asked for.
    """
    container = {
        "name": "main",
        "image": "registry.example/workload:1",
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
    }
    for number in range(HOSTILE_PODS):
        labels = {"app": f"hostile-{number % 2}"}
        meta = {"labels": labels, "ownerReferences": [reference]}
        spec = {
            "nodeName": HOSTILE_NODE,
            "terminationGracePeriodSeconds": 0,
            "volumes": [{"name": "v", "emptyDir": {}}],
            "containers": [container],
        }
        with suppress(ApiError):
            await made(cluster.client, PODS, f"hostile-{number}", "hostile", meta=meta, spec=spec)


def hostile_of(kinds: set[str], plural: str, obj: Any) -> bool:
    """Whether the object is of these kinds and about the hostile node."""
    return plural in kinds and concerns_hostile(plural, obj)


async def stir(cluster, uniform):
    """Every hostile object changes again and again, so that the watches bring it mutated again;
    its session is deleted now and then, so that the next one lists pods and reads owners.
    """
    client = cluster.client
    turns = 0
    while True:
        if turns % TURNS_PER_SESSION == 0:
            reference = await add_owner(cluster, turns)
            found, _ = await client.list(
                QUARANTINES, field_selector=f"spec.nodeName={HOSTILE_NODE}"
            )
            for session in found:
                with suppress(ApiError):
                    await client.delete(QUARANTINES, session["metadata"]["name"])
            for number in range(HOSTILE_PODS):
                with suppress(ApiError):
                    await client.delete(PODS, f"hostile-{number}", "hostile")
        turns += 1
        await add_pods(cluster, reference)
        texts = [
            text_part
            for text_part in HOSTILE
            if isinstance(text_part, str) and len(text_part) < 1000
        ]
        text_part = uniform.choice(texts)
        change = {"metadata": {"annotations": {"example.com/stirred": str(time.time_ns())}}}
        note = {"session": text_part, "at": text_part, "priorAnnotations": {}}
        text = uniform.choice([text_part, str(note).replace("'", '"'), "{}", "[" * 50])
        owned = {"metadata": {"annotations": {"gpuward.io/session": text}}}
        for resource, name, namespace, patch in (
            (NODES, HOSTILE_NODE, None, uniform.choice([change, owned])),
            (GPU_NODE_HEALTHS, HOSTILE_NODE, None, change),
            (PODS, f"hostile-{uniform.randrange(HOSTILE_PODS)}", "hostile", change),
            (PODS, "hostile-agent", "gpuward", change),
            (POD_DISRUPTION_BUDGETS, "hostile-0", "hostile", change),
            (DAEMON_SETS, "hostile-ds", "hostile", change),
            (PAUSES, "hostile-pause", None, change),
        ):
            with suppress(ApiError):
                await client.patch(resource, name, patch, namespace)
        found, _ = await client.list(QUARANTINES, field_selector=f"spec.nodeName={HOSTILE_NODE}")
        for session in found[-2:]:
            with suppress(ApiError):
                await client.patch(QUARANTINES, session["metadata"]["name"], change)
        await asyncio.sleep(0.2)


async def pause_for(cluster, mutator, seconds):
    """A pause that is served mutated may cover everything: it is there for a while, then gone."""
    scope = {"nodes": [HOSTILE_NODE]}
    spec = {"scope": scope, "reason": "hostile", "until": "2099-01-01T00:00:00Z"}
    mutator.chosen = lambda plural, obj: plural == "gpuwardpauses"
    await made(cluster.client, PAUSES, "hostile-pause", spec=spec)
    await asyncio.sleep(seconds)
    await cluster.client.delete(PAUSES, "hostile-pause")


def wrong(one):
    """Log lines that must never appear."""
    text = one.log.read_text(errors="replace")
    lines = [str(line)[:3000] for line in one.lines() if line.get("event") == "unexpected error"]
    return lines[:3], "Traceback (most recent call last)" in text


@pytest.mark.slow
async def test_mutated_objects_of_every_kind_stop_nothing_else(cluster, tmp_path):
    uniform = random.Random(SEED)
    await prepare(cluster)
    await cluster.add(pool=Pool(name="gpu", nodes=4))
    await cluster.health.all_healthy([*SOUND, HOSTILE_NODE])
    await cluster.add(
        Serving(name="web", replicas=2, pool="gpu", gpus=1, budget=Budget(max_unavailable=1))
    )
    await add_hostile(cluster)
    plane = cluster.plane
    mutator = Mutator(SEED)
    async with proxy_before(
        plane.url, ca_pem=plane.ca_pem, users={}, served=mutator.served
    ) as proxy:
        kubeconfig = tmp_path / "hostile.kubeconfig"
        token = plane.tokens.get(ADMIN)
        kubeconfig.write_text(kubeconfig_text(proxy.url, ca_pem=proxy.ca_pem, token=token))
        one = RemediatorProcess(tmp_path, kubeconfig, policy=POLICY)
        rounds = 0
        with running(one):
            await leads(cluster, "one")
            await add_pods(cluster, await add_owner(cluster, "first"))
            mutator.chosen = partial(hostile_of, {"pods"})
            await cluster.health.fail(HOSTILE_NODE, XID_79)

            async def listed() -> bool:
                return "pods" in mutator.count

            # Once drained, its pods are checked every minute or two only.
            await cluster.until(listed, "the pods of the hostile node, mutated")
            stirring = asyncio.create_task(stir(cluster, uniform))
            ends = time.monotonic() + FOR_S
            while (now := time.monotonic()) < ends or (
                now < ends + LONGER_S and not AT_LEAST <= set(mutator.count)
            ):
                kinds = set(uniform.sample(sorted(KINDS), uniform.randint(1, len(KINDS))))
                mutator.chosen = partial(hostile_of, kinds)
                node = SOUND[rounds % len(SOUND)]
                await cluster.health.fail(node, XID_79)
                await phase(cluster, node, "Quarantined")
                await cluster.health.healthy(node)
                await phase(cluster, node, "Released")
                rounds += 1
                assert wrong(one) == ([], False), f"seed {SEED}"
                if rounds % 3 == 0:
                    await pause_for(cluster, mutator, 1.0)
            stirring.cancel()
            assert one.runs, f"it ended (seed {SEED})"
            served = dict(sorted(mutator.count.items()))
            summary = f"{rounds} rounds, {sum(served.values())} mutated objects served: {served}"
            sys.stdout.write(f"\nseed {SEED}: {summary}\n")
        assert wrong(one) == ([], False), f"seed {SEED}"
        assert set(served) >= AT_LEAST
        if FOR_S >= LONG_S:
            assert set(served) >= KINDS
        assert rounds > 0
