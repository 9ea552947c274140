"""How long a refused write on a node is kept back, and when it is said."""

from __future__ import annotations

import json

import pytest

from remediator.kube.answer import Answer
from remediator.kube.refusals import Refusals
from rules.api import writes as d
from rules.api.refusal import NodeWrite
from tests.support.remediator.virtual_clock import VirtualClock

MARK = d.MarkNode(node="n", node_uid="u", session="s", patch={})
LABEL = d.RelabelNode(node="n", node_uid="u", session="s", patch={})


def answer(code: int, message: str = "no") -> Answer:
    body = json.dumps({"kind": "Status", "message": message}).encode()
    return Answer(code=code, body=body, content_type="application/json")


def waits(code: int, times: int) -> list[float]:
    """Seconds from each refusal to the next try."""
    clock = VirtualClock()
    kept, found = Refusals(clock), []
    for _ in range(times):
        kept.note(MARK, answer(code))
        refusal = kept.of("n").get(NodeWrite.MARK)
        found.append(round((refusal.until or 0.0) - clock.now(), 3) if refusal else 0.0)
        clock.at += found[-1]
        assert kept.of("n") == {}, "its time is over"
    return found


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        pytest.param(403, [10, 20, 40, 80, 120, 120], id="what a person repairs"),
        pytest.param(429, [0, 4, 8, 16, 30, 30], id="busy: the first is tried again at once"),
    ],
)
def test_it_is_tried_again_less_and_less_often(code: int, expected: list[float]) -> None:
    assert waits(code, len(expected)) == expected


@pytest.mark.parametrize("code", [200, 404, 409, 503])
def test_any_other_answer_ends_it(code: int) -> None:
    kept = Refusals(VirtualClock())
    kept.note(MARK, answer(403))
    kept.note(MARK, answer(code))
    assert kept.of("n") == {}


def test_each_kind_of_write_and_each_node_stands_for_itself() -> None:
    kept = Refusals(VirtualClock())
    kept.note(MARK, answer(403))
    kept.note(LABEL, answer(200))
    assert set(kept.of("n")) == {NodeWrite.MARK}
    assert kept.of("m") == {}


def test_writes_on_other_objects_are_none_of_its_business() -> None:
    kept = Refusals(VirtualClock())
    kept.note(d.DeleteSession(name="s", node="n", uid="u"), answer(403))
    assert kept.of("n") == {}


def test_what_waits_for_its_turn_outlives_the_last_look() -> None:
    clock = VirtualClock()
    kept = Refusals(clock)
    kept.note(MARK, answer(403))
    kept.forget("n")
    assert set(kept.of("n")) == {NodeWrite.MARK}
    clock.at += 11
    kept.forget("n")
    kept.note(MARK, answer(403))
    assert kept.of("n")[NodeWrite.MARK].until == clock.now() + 10, "forgotten: from the start"
