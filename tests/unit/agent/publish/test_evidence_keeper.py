"""The agent saves evidence once per session, retries, and survives errors."""

import itertools
import threading
from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest

from agent.publish.client import UNREACHABLE, KubeError
from agent.publish.evidence import EvidenceKeeper, Waits


class Server:
    """Returns the given status codes and records the requests."""

    def __init__(self, *answers: int) -> None:
        self.answers = list(answers)
        self.there: set[str] = set()
        self.created: list[Mapping[str, Any]] = []

    def has_evidence(self, name: str) -> bool:
        return name in self.there

    def create_evidence(self, body: Mapping[str, Any]) -> None:
        if self.answers and (status := self.answers.pop(0)) != 201:
            raise KubeError(status, "No", "because")
        self.created.append(body)
        self.there.add(body["name"])


SHORT = Waits(first_retry_s=0.001, longest_retry_s=0.002, poll_s=0.001, settle_s=0.0)


def keeper_of(server: Server, **options: Any) -> EvidenceKeeper:
    given = {"compose": lambda session: {"name": session}, "notify": lambda *_: None, **options}
    return EvidenceKeeper(cast("Any", server), waits=SHORT, **given)


def kept(server: Server, *sessions: str, **options: Any) -> list[tuple[str, bool]]:
    reports: list[tuple[str, bool]] = []
    keeper = keeper_of(server, notify=lambda *report: reports.append(report), **options)
    for session in sessions:
        keeper.taint_seen(session)
        keeper.join(5)
    return reports


def test_each_session_gets_one_object() -> None:
    server = Server()
    reports = kept(server, "", "s1", "s1", "s1", "", "s2")
    assert [body["name"] for body in server.created] == ["s1", "s2"]
    assert reports == [
        ("Saved the evidence of session s1.", True),
        ("Saved the evidence of session s2.", True),
    ]


def test_a_restarted_agent_finds_the_object() -> None:
    server = Server()
    server.there.add("s1")
    assert kept(server, "s1") == []
    assert not server.created


def test_an_object_of_another_agent_is_kept() -> None:
    server = Server(409)
    assert kept(server, "s1") == []


@pytest.mark.parametrize("status", [UNREACHABLE, 403, 404, 429, 500])
def test_it_retries_and_reports_the_cause_once(status: int) -> None:
    server = Server(status, status, status)
    reports = kept(server, "s1")
    assert len(server.created) == 1
    assert [well for _, well in reports] == [False, True]
    assert "Retrying" in reports[0][0]


@pytest.mark.parametrize("status", [400, 413, 422])
def test_an_invalid_object_is_not_retried(status: int) -> None:
    server = Server(status, 201)
    reports = kept(server, "s1", "s2")
    assert "Gave up" in reports[0][0]
    assert [body["name"] for body in server.created] == ["s2"]


def test_it_gives_up_after_15_minutes() -> None:
    times = itertools.count(0.0, 60.0)
    server = Server(*[500] * 100)
    reports = kept(server, "s1", clock=lambda: next(times))
    assert "Gave up" in reports[-1][0]
    assert not server.created


def test_a_bug_ends_with_a_sentence() -> None:
    def broken(_: str) -> dict[str, Any]:
        raise ZeroDivisionError

    ((sentence, well),) = kept(Server(), "s1", compose=broken)
    assert "a bug in gpuward" in sentence
    assert not well


def test_it_reads_the_gpus_first() -> None:
    order: list[str] = []
    looks = iter([False, False, True])

    def refresh() -> Callable[[], bool]:
        order.append("refresh")
        return answered

    def answered() -> bool:
        order.append("answered?")
        return next(looks)

    def compose(session: str) -> dict[str, Any]:
        order.append("composed")
        return {"name": session}

    kept(Server(), "s1", refresh=refresh, compose=compose)
    assert order == ["refresh", *["answered?"] * 3, "composed"]


def test_gpus_that_never_answer_are_not_waited_for() -> None:
    server = Server()
    kept(server, "s1", refresh=lambda: lambda: False, clock=itertools.count(0.0, 7.0).__next__)
    assert len(server.created) == 1


def test_a_taint_that_is_removed_before_the_gpus_answer_gets_no_evidence() -> None:
    """Repeated taints of a session create one object and leave no thread."""
    server, answered = Server(), threading.Event()
    keeper = keeper_of(server, refresh=lambda: answered.is_set)
    before = threading.active_count()
    for number in range(50):
        keeper.taint_seen(f"s{number}")
    answered.set()
    keeper.join(5)
    for thread in threading.enumerate():
        if thread.name == "evidence":
            thread.join(5)
    assert [body["name"] for body in server.created] == ["s49"]
    assert threading.active_count() <= before


def test_evidence_in_progress_is_saved_after_the_taint_is_removed() -> None:
    """A short session gets its evidence too."""
    server, answered = Server(), threading.Event()
    keeper = keeper_of(server, refresh=lambda: answered.is_set)
    keeper.taint_seen("s1")
    keeper.taint_seen("")
    answered.set()
    keeper.join(5)
    assert [body["name"] for body in server.created] == ["s1"]
