"""A simulated API server, an agent's client, and health statuses to publish."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from agent.publish.client import Kube
from hack.sim.cluster.client import Object
from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.fleet.fleet_health import GPU_NODE_HEALTHS
from hack.sim.cluster.resource import EVENTS, NODES
from hack.sim.cluster.server import HostedServer, run_in_thread
from hack.sim.manifests import post_manifests, read_manifests
from rules.api.health import HealthStatus, IncidentStatus, SourceStatus
from rules.api.kube_config import KubeConfig
from rules.judge.health_object import Publication, PublishedCondition

DEFINITIONS = Path(__file__).parents[3] / "daemonset" / "crds"
AGENT = "gpuward-agent/test"


class Server:
    """The server, with direct access for tests."""

    def __init__(self, hosted: HostedServer) -> None:
        self.hosted = hosted
        self.kube = Kube(KubeConfig(server=hosted.url), user_agent=AGENT)

    @property
    def faults(self) -> Any:
        return self.hosted.server.faults

    def define(self) -> None:
        self.hosted.run(post_manifests(self._client, read_manifests(DEFINITIONS)))

    def add_node(self, name: str) -> Object:
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
        return self.hosted.run(self._client.create(NODES, body))

    def node(self, name: str) -> Object:
        return self.hosted.run(self._client.get(NODES, name))

    def condition(self, name: str, kind: str) -> str:
        conditions = self.node(name).get("status", {}).get("conditions") or ()
        return next((each["status"] for each in conditions if each["type"] == kind), "")

    def patch_node(self, name: str, patch: Object) -> None:
        self.hosted.run(self._client.patch(NODES, name, patch, "application/merge-patch+json"))

    def health(self, name: str) -> Any:
        """Return the object; None if it does not exist."""
        try:
            return self.hosted.run(self._client.get(GPU_NODE_HEALTHS, name))
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    def put_health(self, obj: Object) -> None:
        self.hosted.run(self._client.update_status(GPU_NODE_HEALTHS, obj))

    def delete_health(self, name: str) -> None:
        self.hosted.run(self._client.delete(GPU_NODE_HEALTHS, name))

    def events(self) -> list[Object]:
        return self.hosted.run(self._client.list(EVENTS, "default"))[0]

    def stored(self, name: str) -> tuple[str, str]:
        """Return the versions of both objects, which only change with a stored write."""
        health = self.health(name)
        assert health is not None
        versions = (self.node(name), health)
        return tuple(each["metadata"]["resourceVersion"] for each in versions)  # type: ignore[return-value]  # of two

    @property
    def _client(self) -> Any:
        return self.hosted.server.client


@contextmanager
def a_server(*, defined: bool = True) -> Iterator[Server]:
    with run_in_thread() as hosted:
        server = Server(hosted)
        if defined:
            server.define()
        yield server
        server.kube.close()


XID = IncidentStatus(
    id="0123456789abcdef",
    reason="Xid79GPUFallenOffBus",
    klass="Decisive",
    severity="Fatal",
    level="Drain",
    recommended_action="RestartNode",
    pci=("0000:3b:00",),
    xids=(79,),
    active=True,
    first_seen="2026-01-02T03:04:05.000000Z",
    last_seen="2026-01-02T03:04:05.000000Z",
    closes_on="Reboot",
)


def health_status(health: str = "Healthy", **changes: Any) -> Publication:
    """Return a publication like `rules.judge.health_object.publish`, with a changed status."""
    sick = health == "Unhealthy"
    status = HealthStatus(
        boot_id="boot-1",
        observed_at="2026-01-02T03:04:05Z",
        agent_version="test",
        rules_version="test",
        health=health,
        reason=XID.reason if sick else "AllChecksPassing",
        message="what it is",
        sources=(
            SourceStatus(name="kernel-log", state="Up", reason="", since="2026-01-02T03:04:05Z"),
        ),
        incidents=(XID,) if sick else (),
    )
    return Publication(
        status=replace(status, **changes),
        conditions=(
            PublishedCondition(
                type="GPUHealthy",
                status="False" if sick else "True",
                reason=status.reason,
                message="what it is",
            ),
            PublishedCondition(
                type="GPUDegraded", status="False", reason="NotDegraded", message="nothing"
            ),
        ),
        labels={"gpuward.io/health": health.lower(), "gpuward.io/nvlink-domain": None},
    )


def counted(publication: Publication, count: int) -> Publication:
    """Return the health status with this count of the incident."""
    return _changed(publication, count=count)


def with_evidence(publication: Publication, line: str) -> Publication:
    """Return the health status with one more line of evidence."""
    (incident,) = publication.status.incidents
    return _changed(publication, evidence=(*incident.evidence, line))


def _changed(publication: Publication, **changes: Any) -> Publication:
    (incident,) = publication.status.incidents
    more = replace(incident, **changes)
    return replace(publication, status=replace(publication.status, incidents=(more,)))
