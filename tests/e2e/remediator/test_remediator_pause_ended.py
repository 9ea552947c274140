"""A pause that a person resumes is over at once for a running remediator, and stays on record."""

from __future__ import annotations

import asyncio
from pathlib import Path

from hack.sim.cluster.fleet.fleet_health import XID_79
from rules.api.timestamps import parse_time
from tests.support.cluster.either_cluster import Cluster
from tests.support.remediator.kubectl_cluster import run_command
from tests.support.remediator.remediator_process import (
    PAUSES,
    RemediatorProcess,
    leads,
    phase,
    prepare,
    running,
    sessions,
)


async def test_a_resumed_pause_lets_the_session_go_on_and_says_who_ended_it(
    cluster: Cluster, tmp_path: Path
) -> None:
    await prepare(cluster)
    nodes = ("n1", "n2", "n3")
    await cluster.add_nodes(*nodes)
    await cluster.health.all_healthy(list(nodes))

    async def kubectl(*words: str) -> tuple[int, str, str]:
        place = ("--kubeconfig", str(cluster.plane.kubeconfig))
        return await asyncio.to_thread(run_command, *words, *place)

    with running(RemediatorProcess(tmp_path, cluster.plane.kubeconfig)):
        await leads(cluster, "one")
        code, out, err = await kubectl("pause", "--until", "2h", "--reason", "fire drill")
        assert (code, err) == (0, ""), out
        await cluster.health.fail("n1", XID_79)
        await phase(cluster, "n1", "Pending")
        await asyncio.sleep(2)
        await phase(cluster, "n1", "Pending")
        code, out, err = await kubectl("resume", "--yes")
        assert (code, err) == (0, ""), out
        await phase(cluster, "n1", "Quarantined")
    ((kept,), _) = await cluster.client.list(PAUSES)
    ended = kept["spec"]["ended"]
    assert ended["by"]
    assert (parse_time(kept["spec"]["until"]) or 0.0) < (parse_time(ended["until"]) or 0.0)
    code, _, err = await kubectl("quarantine", "n2", "--reason", "it hums", "--yes")
    assert (code, err) == (0, "")
    (made,) = await sessions(cluster, "n2")
    assert parse_time(made["spec"]["causes"][0]["at"]) is not None
