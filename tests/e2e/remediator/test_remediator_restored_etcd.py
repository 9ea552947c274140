"""A real remediator whose cluster goes back to a backup of etcd. Only with a real etcd."""

import asyncio
import os
import secrets
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hack.sim.cluster.client import Client, HttpClient, kubeconfig_text
from hack.sim.cluster.controllers.nodes import node_object
from hack.sim.cluster.controllers.suite import utc_now
from hack.sim.cluster.fleet.fleet import create_node
from hack.sim.cluster.fleet.fleet_health import XID_79, FleetHealth
from hack.sim.cluster.resource import NODES
from hack.sim.control_plane import ADMIN, ADMIN_GROUPS, ASSETS
from hack.sim.manifests import post_manifests, read_manifests
from hack.sim.real_control_plane import (
    Binaries,
    RealControlPlane,
    api_server_command,
    etcd_command,
    find_binaries,
    start_real_control_plane,
)
from tests.support.cluster.either_cluster import DEFINITIONS, until
from tests.support.remediator.remediator_process import (
    RemediatorProcess,
    leads,
    phase,
    prepare,
    running,
    sessions,
    taints_of,
)

pytestmark = pytest.mark.skipif(
    not os.environ.get(ASSETS), reason=f"{ASSETS} names no etcd whose data could be put back"
)
ALL = BEFORE, AFTER, *_ = ("gpu-0000", "gpu-0001", "gpu-0002", "gpu-0003")
OVER = {"Cancelled", "Released"}


@dataclass(slots=True)
class Backed:
    """A control plane of which a backup can be made and put back."""

    plane: RealControlPlane
    binaries: Binaries
    token: str
    client: Client
    health: FleetHealth

    @property
    def kubeconfig(self) -> Path:
        return self.plane.layout.kubeconfig

    async def until(self, check: Any, what: str) -> Any:
        return await until(check, what)

    async def backup(self, to: Path, *, put_back: bool = False) -> None:
        """Stop both programs, copy the data (or put it back), start them again."""
        await asyncio.to_thread(self.plane.stop)
        data = self.plane.layout.folder / "etcd"
        if put_back:
            shutil.rmtree(data)
        shutil.copytree(*((to, data) if put_back else (data, to)))
        layout = self.plane.layout
        self.plane.start("etcd", etcd_command(self.binaries.etcd, layout))
        await self.plane.answers("etcd", f"{layout.etcd_url}/health")
        self.plane.start("kube-apiserver", api_server_command(self.binaries.api_server, layout))
        await self.plane.answers("kube-apiserver", f"{layout.url}/readyz", self.token)


@pytest.fixture
async def backed(tmp_path: Path) -> AsyncIterator[Backed]:
    binaries, token = find_binaries(Path(os.environ[ASSETS])), secrets.token_hex(16)
    folder = tmp_path / "plane"
    folder.mkdir()
    plane = await start_real_control_plane(binaries, folder, {token: (ADMIN, ADMIN_GROUPS)}, token)
    try:
        ca = (plane.layout.certificates / "apiserver.crt").read_bytes()
        plane.layout.kubeconfig.write_text(
            kubeconfig_text(plane.layout.url, ca_pem=ca, token=token), encoding="utf-8"
        )
        async with HttpClient.from_kubeconfig(plane.layout.kubeconfig) as client:
            await post_manifests(client, read_manifests(DEFINITIONS))
            for name in ALL:
                await create_node(client, node_object(name, now=utc_now(), gpus=8, labels={}))
            health = FleetHealth(client, utc_now)
            await health.all_healthy(ALL)
            yield Backed(plane, binaries, token, client, health)
    finally:
        await asyncio.to_thread(plane.stop)


async def test_after_a_restore_of_etcd_failing_nodes_stay_quarantined_without_a_release_request(
    backed: Backed, tmp_path: Path
) -> None:
    await prepare(backed)
    one = RemediatorProcess(tmp_path, backed.kubeconfig)
    with running(one):
        await leads(backed, "one")
        await backed.health.fail(BEFORE, XID_79)
        kept = await phase(backed, BEFORE, "Quarantined")
        await backed.backup(tmp_path / "backup")
        await backed.health.fail(AFTER, XID_79)
        await phase(backed, AFTER, "Quarantined")

        await backed.backup(tmp_path / "backup", put_back=True)
        assert await sessions(backed, AFTER) == []
        assert not taints_of(await backed.client.get(NODES, AFTER))["unschedulable"]
        # The node goes on as it is: its agent publishes what it sees.
        await backed.health.fail(AFTER, XID_79)
        await phase(backed, AFTER, "Quarantined")
        await asyncio.sleep(35)  # a write to what is gone came every 30 s

    (still,) = await sessions(backed, BEFORE)
    assert still["metadata"]["uid"] == kept["metadata"]["uid"]
    assert still["status"]["phase"] == "Quarantined"
    for node in (BEFORE, AFTER):
        assert taints_of(await backed.client.get(NODES, node))["taints"]
        assert not OVER & {s["status"]["phase"] for s in await sessions(backed, node)}
