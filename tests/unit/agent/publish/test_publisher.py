"""The publishing thread against a simulated API server: no status is lost or replaced by an older
one.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agent.publish.publish import Accepted, Known, Publisher, Trouble, Wanted
from agent.publish.writers import HealthWriter
from hack.sim.cluster.errors import ApiError
from rules.api.health import PublisherPod
from rules.judge.messages import NodeEvent
from tests.support.agent.publish_parts import Server, a_server, health_status

NODE = "gpu-1"


@pytest.fixture
def server() -> Iterator[Server]:
    with a_server() as running:
        running.add_node(NODE)
        yield running


class Running:
    def __init__(
        self, server: Server, pod: str = "", uniform: Callable[[], float] = lambda: 0.0
    ) -> None:
        self.server = server
        self._signed = PublisherPod(pod=f"ns/{pod}", pod_uid=pod)
        self.messages: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.publisher = Publisher(server.kube, NODE, notify=self.messages.put, uniform=uniform)
        self._serial = 0

    def begin(self) -> Running:
        self.publisher.start()
        self.publisher.node_seen(self.server.kube.node(NODE))
        return self

    def submit(self, health: str = "Healthy") -> int:
        self._serial += 1
        signed = health_status(health, publisher=self._signed)
        self.publisher.submit(Wanted(serial=self._serial, publication=signed))
        return self._serial

    def until(self, kind: type, enough: Callable[[Any], bool] = lambda _: True) -> Any:
        while True:
            message = self.messages.get(timeout=20.0)
            if isinstance(message, kind) and enough(message):
                return message

    def accepted(self, serial: int) -> Accepted:
        found: Accepted = self.until(Accepted, lambda message: message.wanted.serial == serial)
        return found


@pytest.fixture
def running(server: Server) -> Iterator[Running]:
    started = Running(server).begin()
    yield started
    server.faults.clear()
    started.publisher.close(5.0)


def test_the_published_status_is_reported_once_before_any_write(running: Running) -> None:
    assert running.until(Known) == Known(status=None)
    assert running.server.health(NODE) is None
    running.accepted(running.submit())


def test_a_status_that_is_forbidden_at_first_is_waited_for(server: Server) -> None:
    first = Running(server).begin()
    first.until(Known)
    first.accepted(first.submit("Unhealthy"))
    first.publisher.close(10.0)
    refused = ApiError(403, "Forbidden", "rights come later")
    server.faults.fail(refused, method="GET", path=f"gpunodehealths/{NODE}", times=2)
    second = Running(server)
    second.publisher.start()
    known = second.until(Known)
    second.publisher.close(10.0)
    assert known.status is not None
    assert known.status.health == "Unhealthy"


def test_a_status_that_stays_forbidden_does_not_delay_the_node(server: Server) -> None:
    writer = HealthWriter(server.kube, NODE, uniform=lambda: 0.5)
    refused = ApiError(403, "Forbidden", "no rights")
    server.faults.fail(refused, method="GET", path=f"gpunodehealths/{NODE}", times=None)
    now = 0.0
    while not writer.known:
        assert now < 60.0
        now = max(now + 0.1, writer.read(now).until)
    assert now > 5.0
    assert writer.status is None


def test_the_newest_of_many_health_statuses_is_published(running: Running) -> None:
    for number in range(200):
        serial = running.submit("Unhealthy" if number % 2 else "Healthy")
    serial = running.submit("Unhealthy")
    running.accepted(serial)
    assert running.server.health(NODE)["status"]["health"] == "Unhealthy"
    assert running.server.condition(NODE, "GPUHealthy") == "False"


def test_a_health_status_is_retried_until_the_api_server_accepts_it(running: Running) -> None:
    running.until(Known)
    running.server.faults.fail(ApiError(503, "ServiceUnavailable", "away"), path=NODE, times=6)
    serial = running.submit("Unhealthy")
    assert "503" in running.until(Trouble).sentence
    running.until(Trouble, lambda message: not message.sentence)  # it is over
    running.accepted(serial)
    assert running.server.condition(NODE, "GPUHealthy") == "False"
    assert running.publisher.report().failures == 0


def test_closing_without_an_api_server_ends_in_time(server: Server) -> None:
    running = Running(server).begin()
    running.until(Known)
    server.faults.fail(ApiError(500, "InternalError", "away"), path=NODE, times=None)
    running.submit("Unhealthy")
    assert not running.publisher.close(0.2)


def test_a_failing_publisher_closes_after_one_more_attempt(
    server: Server,
) -> None:
    running = Running(server).begin()
    running.until(Known)
    away = server.faults.fail(ApiError(503, "ServiceUnavailable", "away"), path=NODE, times=None)
    running.submit("Unhealthy")
    running.until(Trouble)
    before = away.hits
    assert not running.publisher.close(3600.0)
    assert away.hits > before


def test_the_last_health_status_is_published_after_an_outage(server: Server) -> None:
    running = Running(server).begin()
    running.until(Known)
    server.faults.fail(ApiError(503, "ServiceUnavailable", "away"), path=NODE, times=None)
    running.submit("Unhealthy")
    running.until(Trouble)
    server.faults.clear()
    assert running.publisher.close(3600.0)
    assert server.condition(NODE, "GPUHealthy") == "False"


def test_closing_without_a_node_does_not_wait(server: Server) -> None:
    running = Running(server)
    running.publisher.start()
    running.until(Known)
    running.submit("Unhealthy")
    assert not running.publisher.close(3600.0)


def test_events_name_the_nodes_real_uid(running: Running) -> None:
    running.until(Known)
    running.accepted(running.submit("Unhealthy"))
    running.publisher.announce(NodeEvent("Warning", "Xid79GPUFallenOffBus", "a sentence"))
    deadline = time.monotonic() + 10
    while not (events := running.server.events()) and time.monotonic() < deadline:
        time.sleep(0.02)
    (event,) = events
    assert event["involvedObject"]["uid"] == running.server.node(NODE)["metadata"]["uid"]
    assert (event["type"], event["reason"], event["message"]) == (
        "Warning",
        "Xid79GPUFallenOffBus",
        "a sentence",
    )


def test_a_refused_event_is_dropped_and_publishing_continues(running: Running) -> None:
    running.until(Known)
    running.accepted(running.submit())
    refused = ApiError(403, "Forbidden", "no events for you")
    running.server.faults.fail(refused, path="/events", times=None)
    running.publisher.announce(NodeEvent("Warning", "Xid79GPUFallenOffBus", "a sentence"))
    running.accepted(running.submit("Unhealthy"))
    assert running.server.events() == []


def test_an_agent_replaced_by_a_newer_one_writes_nothing(server: Server) -> None:
    old, new = Running(server, "old"), Running(server, "new")
    for each in (old, new):
        each.begin().accepted(each.submit())
    writes = old.publisher.report().writes
    last = old.submit("Unhealthy")
    assert not old.publisher.close(3600.0), "it did not wait for what cannot be"
    messages = [old.messages.get() for _ in range(old.messages.qsize())]
    assert not [
        each for each in messages if isinstance(each, Accepted) and each.wanted.serial == last
    ]
    assert old.publisher.report().writes == writes
    assert server.condition(NODE, "GPUHealthy") == "True"
    assert new.publisher.close(10.0)


def test_an_unexpected_error_does_not_end_publishing(server: Server) -> None:
    failed: list[Any] = []

    def stumbles() -> float:
        if not failed:
            failed.append(True)
            raise OverflowError("year 0 is out of range")
        return 0.0

    refused = ApiError(500, "InternalError", "once")
    server.faults.fail(refused, method="POST", path="gpunodehealths", times=1)
    started = Running(server, uniform=stumbles).begin()
    started.until(Known)
    serial = started.submit()
    trouble = started.until(Trouble)
    assert "OverflowError in test_publisher.py" in trouble.sentence
    assert "year 0" not in trouble.sentence
    started.accepted(serial)
    assert started.publisher.close(5.0)
