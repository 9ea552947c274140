"""Back-off of refused writes on a node, and when they are reported."""

import json

import pytest

from remediator.kube.answer import Answer
from remediator.kube.refusals import Refusals
from rules.api import writes as d
from rules.api.quarantine import QuarantineSpec, QuarantineStatus
from rules.api.refusal import NodeWrite
from rules.api.repair_writes import SetRepairCondition
from tests.support.remediator.virtual_clock import VirtualClock

QUARANTINE = d.TaintAndCordon(node="n", node_uid="u", session="s", patch={})
LABEL = d.RelabelNode(node="n", node_uid="u", session="s", patch={})
REMOVE_TAINT = d.RemoveTaint(node="n", node_uid="u", session="s", patch={})
OPEN = d.CreateSession(name="s", spec=QuarantineSpec(node_name="n"))
SPEC = d.PatchSessionSpec(name="s", node="n", resource_version="1")
STATUS = d.WriteSessionStatus(name="s", node="n", resource_version="1", status=QuarantineStatus())


def answer(code: int, message: str = "no") -> Answer:
    body = json.dumps({"kind": "Status", "message": message}).encode()
    return Answer(code=code, body=body, content_type="application/json")


def waits(code: int, times: int) -> list[float]:
    """Seconds from each refusal to the next try."""
    clock = VirtualClock()
    kept, found = Refusals(clock), []
    for _ in range(times):
        kept.note(QUARANTINE, answer(code))
        refusal = kept.of("n").get(NodeWrite.TAINT)
        found.append(round((refusal.until or 0.0) - clock.now(), 3) if refusal else 0.0)
        clock.at += found[-1]
        assert kept.of("n") == {}, "its time is over"
    return found


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        pytest.param(403, [10, 20, 40, 80, 120, 120], id="what an operator repairs"),
        pytest.param(429, [0, 4, 8, 16, 30, 30], id="busy: the first is tried again at once"),
    ],
)
def test_it_is_tried_again_less_and_less_often(code: int, expected: list[float]) -> None:
    assert waits(code, len(expected)) == expected


def test_only_a_success_ends_it() -> None:
    kept = Refusals(VirtualClock())
    kept.note(QUARANTINE, answer(403))
    kept.note(QUARANTINE, answer(200))
    assert kept.of("n") == {}


@pytest.mark.parametrize("code", [404, 408, 409, 410, 500, 502, 503, 504])
def test_an_answer_of_the_moment_that_comes_again_and_again_is_a_refusal(code: int) -> None:
    """A webhook may deny with any code, a conflict among them."""
    kept = Refusals(VirtualClock())
    for _ in range(4):
        kept.note(QUARANTINE, answer(code, "denied by\tguard\u202e"))
        assert kept.of("n") == {}, "trying again may help"
    kept.note(QUARANTINE, answer(code, "denied by\tguard\u202e"))
    refusal = kept.of("n")[NodeWrite.TAINT]
    assert f"{code} denied by guard\\u202e" in refusal.why
    assert len(refusal.why) < 600
    assert not refusal.permanent


@pytest.mark.parametrize("write", [QUARANTINE, REMOVE_TAINT, LABEL, OPEN, SPEC, STATUS])
def test_any_answer_that_lasts_for_half_a_minute_is_a_refusal(write: d.Write) -> None:
    clock = VirtualClock()
    kept = Refusals(clock)
    kept.note(write, answer(503))
    assert kept.of("n") == {}
    clock.at += 31
    kept.note(write, answer(503))
    (refusal,) = kept.of("n").values()
    assert not refusal.permanent
    for _ in range(10):
        clock.at += 30
        kept.note(write, answer(409))
    (refusal,) = kept.of("n").values()
    assert refusal.permanent is (write is not LABEL), "nobody has to come for a label"


def test_a_request_that_is_gone_was_taken_back() -> None:
    kept = Refusals(VirtualClock())
    taken_back = SetRepairCondition(
        node="n", node_uid="u", session="s", step="Reset", kind="k", asks=False, message="", at=0.0
    )
    for _ in range(9):
        assert kept.note(taken_back, answer(404)) is None


def test_each_kind_of_write_and_each_node_stands_for_itself() -> None:
    kept = Refusals(VirtualClock())
    kept.note(QUARANTINE, answer(403))
    kept.note(LABEL, answer(200))
    assert set(kept.of("n")) == {NodeWrite.TAINT}
    assert kept.of("m") == {}


def test_a_refusal_in_back_off_survives_the_last_check() -> None:
    clock = VirtualClock()
    kept = Refusals(clock)
    kept.note(QUARANTINE, answer(403))
    kept.forget("n")
    assert set(kept.of("n")) == {NodeWrite.TAINT}
    clock.at += 11
    kept.forget("n")
    kept.note(QUARANTINE, answer(403))
    assert kept.of("n")[NodeWrite.TAINT].until == clock.now() + 10, "forgotten: from the start"
