"""The agent keeps evidence once per session, tries again, and never disrupts itself."""

import itertools
import threading
from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest

from agent.publish import evidence as module
from agent.publish.client import UNREACHABLE, KubeError
from agent.publish.evidence import EvidenceKeeper


class Server:
    """Answers as told; remembers what it was asked."""

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


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_RETRY_S", 0.001)
    monkeypatch.setattr(module, "LONGEST_RETRY_S", 0.002)
    monkeypatch.setattr(module, "SIGHT_LOOK_S", 0.001)
    monkeypatch.setattr(module, "SETTLE_S", 0.0)


def keeper_of(server: Server, **options: Any) -> EvidenceKeeper:
    given = {"compose": lambda session: {"name": session}, "tell": lambda *_: None, **options}
    return EvidenceKeeper(cast("Any", server), **given)


def kept(server: Server, *sessions: str, **options: Any) -> list[tuple[str, bool]]:
    said: list[tuple[str, bool]] = []
    keeper = keeper_of(server, tell=lambda *told: said.append(told), **options)
    for session in sessions:
        keeper.taint_seen(session)
        keeper.join(5)
    return said


def test_once_for_each_session_however_often_the_node_is_seen() -> None:
    server = Server()
    said = kept(server, "", "s1", "s1", "s1", "", "s2")
    assert [body["name"] for body in server.created] == ["s1", "s2"]
    assert said == [
        ("evidence of session s1 is kept", True),
        ("evidence of session s2 is kept", True),
    ]


def test_an_agent_that_restarts_finds_it_there() -> None:
    server = Server()
    server.there.add("s1")
    assert kept(server, "s1") == []
    assert not server.created


def test_another_agent_was_first() -> None:
    server = Server(409)
    assert kept(server, "s1") == []


@pytest.mark.parametrize("status", [UNREACHABLE, 403, 404, 429, 500])
def test_it_tries_again_and_says_why_once(status: int) -> None:
    server = Server(status, status, status)
    said = kept(server, "s1")
    assert len(server.created) == 1
    assert [well for _, well in said] == [False, True]
    assert "s1 is not kept yet" in said[0][0]


@pytest.mark.parametrize("status", [400, 413, 422])
def test_what_can_never_be_taken_is_given_up(status: int) -> None:
    server = Server(status, 201)
    said = kept(server, "s1", "s2")
    assert "no evidence of session s1 is kept" in said[0][0]
    assert [body["name"] for body in server.created] == ["s2"]


def test_it_gives_up_after_a_quarter_of_an_hour() -> None:
    times = itertools.count(0.0, 60.0)
    server = Server(*[500] * 100)
    said = kept(server, "s1", clock=lambda: next(times))
    assert "no evidence of session s1" in said[-1][0]
    assert not server.created


def test_a_defect_of_ours_ends_with_a_sentence() -> None:
    def broken(_: str) -> dict[str, Any]:
        raise ZeroDivisionError

    ((sentence, well),) = kept(Server(), "s1", compose=broken)
    assert "a defect of gpuward" in sentence
    assert not well


def test_it_looks_at_the_gpus_first() -> None:
    order: list[str] = []
    looks = iter([False, False, True])

    def look() -> Callable[[], bool]:
        order.append("look")
        return answered

    def answered() -> bool:
        order.append("answered?")
        return next(looks)

    def compose(session: str) -> dict[str, Any]:
        order.append("composed")
        return {"name": session}

    kept(Server(), "s1", look=look, compose=compose)
    assert order == ["look", *["answered?"] * 3, "composed"]


def test_gpus_that_never_answer_are_not_waited_for() -> None:
    server = Server()
    kept(server, "s1", look=lambda: lambda: False, clock=itertools.count(0.0, 7.0).__next__)
    assert len(server.created) == 1


def test_a_mark_that_is_gone_when_the_gpus_have_answered_gets_no_evidence() -> None:
    """However often somebody rewrites the taint and cordon, one object is made and no thread
    stays.
    """
    server, answered = Server(), threading.Event()
    keeper = keeper_of(server, look=lambda: answered.is_set)
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


def test_what_was_begun_for_a_mark_that_came_off_is_ended() -> None:
    """A session that was short is checked afterwards, too."""
    server, answered = Server(), threading.Event()
    keeper = keeper_of(server, look=lambda: answered.is_set)
    keeper.taint_seen("s1")
    keeper.taint_seen("")
    answered.set()
    keeper.join(5)
    assert [body["name"] for body in server.created] == ["s1"]
