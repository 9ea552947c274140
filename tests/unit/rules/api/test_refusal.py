"""What a refused quarantine means, and when an answer is no refusal."""

import pytest

from rules.api.refusal import NodeWrite, refusal_of

RBAC = 'nodes "n" is forbidden: User "x" cannot patch resource "nodes" in API group ""'


@pytest.mark.parametrize(
    ("code", "message", "reason", "expected"),
    [
        pytest.param(403, RBAC, "MissingPermission", "Grant it patch on nodes", id="RBAC"),
        pytest.param(401, "Unauthorized", "MissingPermission", "token", id="token"),
        pytest.param(
            403,
            'admission webhook "w.example" denied the request: no',
            "MarkRefused",
            "w.example",
            id="webhook",
        ),
        pytest.param(422, "spec.taints: Invalid", "MarkRefused", "spec.taints", id="invalid"),
        pytest.param(413, "too large", "MarkRefused", "too large", id="size"),
        pytest.param(
            500,
            'failed calling webhook "w.example": no endpoints available',
            "MarkRefused",
            "w.example",
            id="webhook away",
        ),
        pytest.param(429, "Too many requests", "ApiBusy", "retried", id="busy"),
    ],
)
def test_a_refusal_names_what_to_do(code: int, message: str, reason: str, expected: str) -> None:
    refusal = refusal_of(NodeWrite.TAINT, code, message)
    assert refusal is not None
    assert refusal.reason == reason
    assert expected in refusal.why


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("gpuward-remediator-mark", "Install the component of its adapter"),
        ("somebody-elses", "Check the adapter in the policy"),
    ],
)
def test_a_policy_of_base_that_refuses_a_repair_asks_for_a_component(
    by: str, expected: str
) -> None:
    message = f"nodes \"n\" is forbidden: ValidatingAdmissionPolicy '{by}' denied request: no"
    refusal = refusal_of(NodeWrite.REPAIR, 403, message)
    assert refusal is not None
    assert refusal.reason == "RepairRefused"
    assert expected in refusal.why


@pytest.mark.parametrize("code", [0, 200, 404, 409, 410, 500, 503])
def test_what_may_pass_by_itself_is_no_refusal(code: int) -> None:
    assert refusal_of(NodeWrite.TAINT, code, "x") is None


@pytest.mark.parametrize("write", NodeWrite)
def test_it_names_the_write(write: NodeWrite) -> None:
    refusal = refusal_of(write, 403, RBAC)
    assert refusal is not None
    assert f"may not {write} (" in refusal.why


@pytest.mark.parametrize("code", [401, 403, 422])
@pytest.mark.parametrize("write", NodeWrite)
def test_a_lagging_label_calls_for_nobody(write: NodeWrite, code: int) -> None:
    refusal = refusal_of(write, code, "no")
    assert refusal is not None
    assert refusal.permanent == (write is not NodeWrite.LABEL)


def test_a_hostile_answer_stays_one_short_clause() -> None:
    refusal = refusal_of(NodeWrite.TAINT, 403, "line\n" * 10_000)
    assert refusal is not None
    assert "\n" not in refusal.why
    assert len(refusal.why) < 500
