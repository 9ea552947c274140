"""An entire replica while the API server answers every read and write with what it answers on an
ordinary bad day: all parts try again, and nothing of it counts as unexpected.
"""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import islice

from hack.sim.cluster.fleet.fleet_health import GPU_NODE_HEALTHS
from hack.sim.cluster.resource import POD_DISRUPTION_BUDGETS, PODS
from hack.sim.proxy.faults import Fault
from remediator.kube.access import Access
from remediator.replica import Border, Replica
from remediator.settings import make_parser, run_settings
from tests.support.cluster.made import made, with_gpus
from tests.support.remediator.edge import QUARANTINES, NoSkew, SteppedClock, edge
from tests.support.remediator.scripted_server import until

SPEED = 20
"""Seconds of the replica in one of this machine."""
BAD_S = 45.0
"""Longer than each part waits before it asks again, but for the hourly ones."""
ORDINARY = {
    **{
        str(code): Fault(status=code, body=b"{}", headers={"Retry-After": "1"}, times=None)
        for code in (410, 429, 500, 502, 503, 504)
    },
    "proxy": Fault(status=503, body=b"<html>", content_type="text/html", times=None),
    "reset": Fault(action="reset", times=None),
}
ASKED = {
    *("nodes", "pods", "leases", "jobs", "events", "daemonsets", "poddisruptionbudgets"),
    *("gpunodehealths", "gpuquarantines", "gpuwardpauses", "gpuevidences", "gpurecords"),
}
"""What the parts of a replica ask for meanwhile."""
POLICY = "mode: Enforce\nvalidate: {newNodes: true, provider: Job, template: gpu-test}\n"
SESSION = {
    "nodeName": "n1",
    "level": "Drain",
    "causes": [{"source": "Human", "reason": "Requested", "by": "ada"}],
}
LABELS = {"app": "w"}
BUDGET = {"selector": {"matchLabels": LABELS}, "minAvailable": 1}


class FastClock(SteppedClock):
    """Runs ahead of the machine's, so that sweeps come soon."""

    def __init__(self) -> None:
        super().__init__()
        self.skew = NoSkew()

    def elapsed(self) -> float:
        return super().elapsed() * SPEED

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds) / SPEED)


@asynccontextmanager
async def leader(folder):
    """A replica with all its parts, on a cluster with a drain that waits, a silent agent and a
    sick node.
    """
    (folder / "policy").write_text(POLICY)
    expected = [
        "run",
        "--kubeconfig",
        str(folder / "kubeconfig"),
        "--policy",
        str(folder / "policy"),
    ]
    arguments = make_parser({}).parse_args(expected)
    access = Access(arguments.kubeconfig)
    await access.load()
    replica = Replica(run_settings(arguments, {}), access, Border(clock=FastClock))
    await replica.api.open()
    tasks = [asyncio.create_task(part) for part in replica.parts()]
    try:
        yield replica
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await replica.api.close()


@asynccontextmanager
async def busy_cluster(folder):
    """Something to do for every part: a drain that waits and a node without an agent."""
    async with edge(folder) as found:
        for name in ("n1", "n2"):
            await found.add_node(name)
            await made(found.client, GPU_NODE_HEALTHS, name)
        meta, spec = {"labels": LABELS}, with_gpus("n1")
        await made(found.client, PODS, "w0", "default", meta=meta, spec=spec)
        await made(found.client, POD_DISRUPTION_BUDGETS, "w", "default", spec=BUDGET)
        await made(found.client, QUARANTINES, "s-n1", spec=SESSION)
        yield found


def samples(metric) -> list:
    """The samples of a counter."""
    return [s for f in metric.collect() for s in f.samples if s.name.endswith("_total")]


async def meet(folder, fault: Fault) -> tuple[list[str], set[str], set[str]]:
    """What a replica counts as unexpected, the codes that it counts, and the paths that met the
    fault: first all calls but those of lease and watches, then all.
    """
    folder.mkdir()
    async with busy_cluster(folder) as cluster, leader(folder) as replica:
        await until(replica.may_act)
        await until(lambda: replica.world.open_sessions("n1")[0].status.phase == "Draining")
        faults, log = cluster.server.faults, cluster.server.requests
        before = len(log.all)

        def asked() -> set[str]:
            return {request.resource for request in islice(log.all, before, None)}

        faults.add(replace(fault, agent="gpuward-remediator.*", path="^(?!.*/leases)"))
        await asyncio.sleep(BAD_S / SPEED)
        faults.clear()
        faults.add(replace(fault, agent="gpuward-remediator.*"))
        faults.drop_watches()
        await asyncio.sleep(BAD_S / SPEED)
        await until(lambda: asked() >= ASKED - {"events"})
        # Events belong to a status that was written, so here they alone meet the fault.
        faults.clear()
        faults.add(replace(fault, agent="gpuward-remediator.*", path=".*/events"))
        await made(cluster.client, QUARANTINES, "s-n2", spec={**SESSION, "nodeName": "n2"})
        await until(lambda: asked() >= ASKED)
        faults.clear()
        await until(replica.may_act)
        parts = samples(replica.metrics.unexpected_errors)
        unexpected = [part.labels["part"] for part in parts if part.value]
        codes = {s.labels["code"] for s in samples(replica.metrics.api_requests)}
        return unexpected, codes, asked()


async def test_ordinary_answers_are_retried_and_count_in_the_metric_of_calls_alone(
    tmp_path,
) -> None:
    met = dict(
        zip(
            ORDINARY,
            await asyncio.gather(*(meet(tmp_path / n, fault) for n, fault in ORDINARY.items())),
            strict=True,
        )
    )
    assert {name: unexpected for name, (unexpected, _, _) in met.items() if unexpected} == {}
    for name, (_, codes, asked) in met.items():
        assert ("0" if name == "reset" else str(ORDINARY[name].status)) in codes, name
        assert asked >= ASKED, name
