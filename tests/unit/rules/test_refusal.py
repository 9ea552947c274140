"""What a refused mark means, and when an answer is no refusal."""

import pytest

from rules.refusal import refusal_of

RBAC = 'nodes "n" is forbidden: User "x" cannot patch resource "nodes" in API group ""'


@pytest.mark.parametrize(
    ("code", "message", "reason", "words"),
    [
        pytest.param(403, RBAC, "MissingPermission", "grant it patch on nodes", id="RBAC"),
        pytest.param(401, "Unauthorized", "MissingPermission", "token", id="token"),
        pytest.param(
            403,
            'admission webhook "w.example" denied the request: no',
            "MarkRefused",
            "w.example",
            id="webhook",
        ),
        pytest.param(422, "spec.taints: Invalid", "MarkRefused", "spec.taints", id="invalid"),
    ],
)
def test_a_refusal_names_what_to_do(code: int, message: str, reason: str, words: str) -> None:
    refusal = refusal_of(code, message)
    assert refusal is not None
    assert refusal.reason == reason
    assert words in refusal.clause


@pytest.mark.parametrize("code", [0, 200, 404, 409, 410, 429, 500, 503])
def test_what_may_pass_by_itself_is_no_refusal(code: int) -> None:
    assert refusal_of(code, "x") is None


def test_a_hostile_answer_stays_one_short_clause() -> None:
    refusal = refusal_of(403, "line\n" * 10_000)
    assert refusal is not None
    assert "\n" not in refusal.clause
    assert len(refusal.clause) < 500
