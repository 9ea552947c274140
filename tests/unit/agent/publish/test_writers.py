"""What is written to the API server and when: in virtual time, against a simulated one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest
from msgspec.structs import replace

from agent.publish.writers import REPAIR_SPACING_S, HealthWriter, NodeWriter
from hack.sim.cluster.errors import ApiError
from rules.api.health import GpuReadings, GpuStatus, PublisherPod
from rules.judge.health_object import Publication
from tests.support.agent.publish_parts import (
    Server,
    a_server,
    counted,
    health_status,
    with_evidence,
)

WALL = 1_800_000_000.0
_numbers = count(1)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with a_server() as running:
        yield running


@pytest.fixture(scope="module")
def bare_server() -> Iterator[Server]:
    """A server without gpuward's CRDs."""
    with a_server(defined=False) as running:
        yield running


class Publishing:
    """Both writers of a node, at a time that the test sets."""

    def __init__(self, server: Server, *, exists: bool = True) -> None:
        self.server = server
        self.name = f"node-{next(_numbers)}"
        if exists:
            server.add_node(self.name)
        self.now = 1000.0
        self.nodes = NodeWriter(server.kube, self.name, uniform=lambda: 0.5)
        self.healths = HealthWriter(server.kube, self.name, uniform=lambda: 0.5)

    @property
    def writes(self) -> tuple[int, int]:
        return self.nodes.writes, self.healths.writes

    @property
    def health(self) -> str:
        health = self.server.health(self.name)
        return "" if health is None else health.get("status", {}).get("health", "")

    def turn(self, wanted: Publication) -> bool:
        """Write all that is due; return whether both objects have the health status."""
        for _ in range(10):
            node = self.server.kube.node(self.name)
            node_turn = self.nodes.turn(wanted, node, self.now, WALL + self.now)
            health_turn = self.healths.turn(wanted, node, self.now)
            if min(node_turn.until, health_turn.until) > self.now:
                return node_turn.settled and health_turn.settled
        raise AssertionError("the queues do not come to rest")

    def later(self, seconds: float) -> Publishing:
        self.now += seconds
        return self


@pytest.fixture
def publishing(server: Server) -> Iterator[Publishing]:
    yield Publishing(server)
    server.faults.clear()


def settled(publishing: Publishing, wanted: Publication) -> None:
    publishing.turn(wanted)
    assert publishing.later(1).turn(wanted)


def test_times_and_cursor_alone_cause_no_write(publishing: Publishing) -> None:
    settled(publishing, health_status())
    before = publishing.writes
    moved = health_status(observed_at="2026-01-02T04:00:00Z")
    assert publishing.later(100).turn(moved)
    assert publishing.writes == before


def test_a_reassertion_is_not_stored(publishing: Publishing) -> None:
    settled(publishing, health_status())
    versions, writes = publishing.server.stored(publishing.name), publishing.writes
    assert publishing.later(400).turn(health_status())
    assert publishing.writes == (writes[0] + 1, writes[1] + 1)
    assert publishing.server.stored(publishing.name) == versions


def test_new_readings_are_stored_with_the_next_reassertion(publishing: Publishing) -> None:
    def read(celsius: int) -> Publication:
        readings = GpuReadings(temperature_celsius=celsius)
        return health_status("Unhealthy", gpus=(GpuStatus(uuid="GPU-1", readings=readings),))

    settled(publishing, read(70))
    before = publishing.writes
    assert publishing.later(100).turn(read(80))
    assert publishing.writes == before
    assert publishing.later(300).turn(read(90))
    assert publishing.writes == (before[0] + 1, before[1] + 1)
    (gpu,) = publishing.server.health(publishing.name)["status"]["gpus"]
    assert gpu["readings"] == {"temperatureCelsius": 90}


def test_counts_are_written_once_a_minute(publishing: Publishing) -> None:
    sick = health_status("Unhealthy")
    settled(publishing, sick)
    before = publishing.writes
    assert publishing.later(10).turn(counted(sick, 2))
    assert publishing.writes == before
    publishing.later(60).turn(counted(sick, 3))
    assert publishing.writes == (before[0], before[1] + 1)
    health = publishing.server.health(publishing.name)
    assert health["status"]["incidents"][0]["count"] == 3


def test_new_evidence_is_written_at_once_and_then_every_five_seconds(
    publishing: Publishing,
) -> None:
    """The evidence is on the server soon after the health status."""
    sick = health_status("Unhealthy")
    settled(publishing, sick)
    before = publishing.writes
    assert publishing.later(10).turn(with_evidence(sick, "the second line"))
    assert publishing.writes == (before[0], before[1] + 1)
    health = publishing.server.health(publishing.name)
    assert health["status"]["incidents"][0]["evidence"][-1] == "the second line"
    for number in range(40):
        publishing.later(0.25).turn(with_evidence(sick, f"line {number}"))
    assert publishing.writes == (before[0], before[1] + 3)


def test_the_transition_time_moves_with_the_status_only(publishing: Publishing) -> None:
    def since() -> str:
        conditions = publishing.server.node(publishing.name)["status"]["conditions"]
        return next(c["lastTransitionTime"] for c in conditions if c["type"] == "GPUHealthy")

    settled(publishing, health_status())
    first = since()
    reworded = replace(
        health_status(), conditions=(replace(health_status().conditions[0], reason="Other"),)
    )
    settled(publishing.later(50), reworded)
    assert since() == first
    settled(publishing.later(50), health_status("Unhealthy"))
    assert since() != first


def test_failures_are_retried_with_back_off(publishing: Publishing) -> None:
    fault = publishing.server.faults.fail(
        ApiError(503, "ServiceUnavailable", "not now"), path=publishing.name, times=None
    )
    waits = []
    for _ in range(4):
        turn = publishing.healths.read(publishing.now)
        waits.append(turn.until - publishing.now)
        publishing.later(waits[-1])
    assert waits == sorted(waits)
    assert waits[-1] >= 4 * waits[0]
    assert "503" in publishing.healths.trouble
    publishing.server.faults.clear()
    assert fault.hits == 4
    settled(publishing, health_status())
    assert publishing.healths.trouble == ""


def test_repeated_conflicts_back_off_and_are_reported(
    publishing: Publishing,
) -> None:
    """Successful reads between the writes must not reset the back-off."""
    settled(publishing, health_status())
    refused = publishing.server.faults.fail(
        ApiError(409, "Conflict", "denied by a webhook"), method="PUT", times=None
    )
    node = publishing.server.kube.node(publishing.name)
    for _ in range(240):
        publishing.healths.turn(health_status("Unhealthy"), node, publishing.now)
        publishing.later(0.5)
    assert 4 <= refused.hits <= 12, "in two minutes"
    assert publishing.healths.failures == refused.hits
    assert "denied by a webhook" in publishing.healths.trouble
    publishing.server.faults.clear()
    settled(publishing.later(60), health_status("Unhealthy"))
    assert publishing.healths.failures == 0
    assert publishing.healths.trouble == ""


def test_retry_after_is_honoured(publishing: Publishing) -> None:
    publishing.server.faults.throttle(path=publishing.name, retry_after_s=20)
    turn = publishing.healths.read(publishing.now)
    assert turn.until - publishing.now >= 10


def test_an_edit_of_the_health_object_is_corrected(publishing: Publishing) -> None:
    settled(publishing, health_status())
    health = publishing.server.health(publishing.name)
    publishing.server.put_health({**health, "status": {**health["status"], "health": "Unknown"}})
    publishing.later(400).turn(health_status())
    settled(publishing.later(1), health_status())
    assert publishing.health == "Healthy"


def test_the_newer_of_two_agents_publishes(publishing: Publishing) -> None:
    def signed(pod: str, health: str = "Healthy") -> Publication:
        return health_status(health, publisher=PublisherPod(pod=f"ns/{pod}", pod_uid=pod))

    def publisher() -> str:
        status = publishing.server.health(publishing.name)["status"]
        return str(status["publisher"]["podUID"])

    old, new = (
        HealthWriter(publishing.server.kube, publishing.name, uniform=lambda: 0.5)
        for _ in range(2)
    )
    publishing.healths = old
    settled(publishing, signed("old"))
    publishing.healths = new
    settled(publishing.later(1), signed("new"))
    for health in ("Unhealthy", "Healthy"):
        publishing.healths = old
        publishing.later(1).turn(signed("old", health))
        assert not publishing.later(1).turn(signed("old", health)), "it was never stored"
        assert publisher() == "new"
        publishing.healths = new
        settled(publishing.later(1), signed("new", health))
    publishing.healths = old
    publishing.later(700).turn(signed("old", "Unhealthy"))
    assert not publishing.later(1).turn(signed("old", "Unhealthy"))
    assert publisher() == "new", "it has written since"
    settled(publishing.later(700), signed("old", "Unhealthy"))
    assert publisher() == "old", "the newer agent is gone"
    publishing.healths = new
    settled(publishing.later(1), signed("new", "Unhealthy"))
    assert publisher() == "new"


def test_a_deleted_health_object_is_created_again_within_a_minute(
    publishing: Publishing,
) -> None:
    """Replacing the CRD deletes all objects while the health status stays the same."""
    settled(publishing, health_status())
    publishing.server.delete_health(publishing.name)
    publishing.later(48).turn(health_status())
    assert publishing.health == "Healthy"


def test_an_edit_of_the_node_is_corrected_at_a_limited_rate(publishing: Publishing) -> None:
    def tamper() -> None:
        patch = {"metadata": {"labels": {"gpuward.io/health": "unhealthy"}}}
        publishing.server.patch_node(publishing.name, patch)

    def label() -> str:
        return publishing.server.node(publishing.name)["metadata"]["labels"]["gpuward.io/health"]

    same = health_status()
    settled(publishing, same)
    tamper()
    publishing.turn(same)
    assert label() == "healthy"
    tamper()
    publishing.later(1).turn(same)
    assert label() == "unhealthy"
    publishing.later(REPAIR_SPACING_S).turn(same)
    assert label() == "healthy"


def test_a_new_health_status_does_not_wait_for_a_correction(
    publishing: Publishing,
) -> None:
    same = health_status()
    settled(publishing, same)
    publishing.server.patch_node(
        publishing.name, {"metadata": {"labels": {"gpuward.io/health": "unknown"}}}
    )
    publishing.turn(same)
    publishing.later(1).turn(health_status("Unhealthy"))
    assert publishing.server.condition(publishing.name, "GPUHealthy") == "False"


def test_without_the_crds_the_node_still_gets_its_conditions(bare_server: Server) -> None:
    publishing = Publishing(bare_server)
    assert not publishing.turn(health_status())
    assert bare_server.condition(publishing.name, "GPUHealthy") == "True"
    assert "Apply the CRDs" in publishing.healths.trouble
    bare_server.define()
    settled(publishing.later(120), health_status())
    assert publishing.health == "Healthy"


def test_a_missing_node_is_reported_with_its_name(server: Server) -> None:
    existing, missing = Publishing(server), Publishing(server, exists=False)
    node = server.kube.node(existing.name)
    missing.nodes.turn(health_status(), node, 1000.0, WALL)
    assert missing.nodes.trouble.startswith(f"Node {missing.name} does not exist")
    assert "--node-name" in missing.nodes.trouble
