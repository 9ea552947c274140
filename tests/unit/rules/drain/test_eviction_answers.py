"""Every answer of the Eviction API, and what follows from it."""

import json
from typing import Any

import pytest

from rules.api.timestamps import parse_time
from rules.drain.eviction import EvictionKind, classify, no_answer
from tests.support.scenario.drain_objects import pdb, pod

NOW = parse_time("2026-01-01T01:00:00Z") or 0.0
YOUNG = "2026-01-01T00:59:30Z"


def status(message: str = "", *, kind: str = "", cause: str = "", text: str = "") -> bytes:
    details: dict[str, Any] = {}
    if kind:
        details["kind"] = kind
    if cause:
        details["causes"] = [{"reason": cause, "message": text}]
    return json.dumps({"kind": "Status", "message": message, "details": details}).encode()


BUDGET = status("Cannot evict pod", cause="DisruptionBudget", text="keep needs 3 healthy pods")
STALE = status("Cannot evict pod", cause="DisruptionBudget", text="still being processed")
TWO = status("This pod has more than one PodDisruptionBudget, which the eviction subresource ...")
RBAC = status('pods "x" is forbidden: User "y" cannot create resource "pods/eviction" in API')
UNSYNCED = {"observedGeneration": 0, "expectedPods": 0, "desiredHealthy": 0, "currentHealthy": 0}
FAILED = {
    **UNSYNCED,
    "conditions": [
        {
            "type": "DisruptionAllowed",
            "status": "False",
            "reason": "SyncFailed",
            "message": "jobs.batch does not implement the scale subresource",
        }
    ],
}


@pytest.mark.parametrize(
    ("code", "headers", "body", "pdbs", "kind"),
    [
        pytest.param(201, {}, status(), (), EvictionKind.ACCEPTED, id="accepted"),
        pytest.param(404, {}, status(kind="pods"), (), EvictionKind.POD_GONE, id="pod-gone"),
        pytest.param(404, {}, b"", (), EvictionKind.POD_GONE, id="404-without-kind"),
        pytest.param(
            404,
            {},
            status(kind="poddisruptionbudgets"),
            (),
            EvictionKind.BUDGET_VANISHED,
            id="pdb-vanished",
        ),
        pytest.param(
            409,
            {},
            status("Precondition failed: UID in precondition: a, UID in object meta: b"),
            (),
            EvictionKind.OTHER_POD,
            id="other-uid",
        ),
        pytest.param(
            409,
            {},
            status(kind="poddisruptionbudgets"),
            (),
            EvictionKind.CONTENTION,
            id="contention",
        ),
        pytest.param(
            409,
            {},
            status("Precondition failed: ResourceVersion in precondition"),
            (),
            EvictionKind.POD_CHANGED,
            id="pod-changed",
        ),
        pytest.param(429, {}, BUDGET, (pdb(),), EvictionKind.BUDGET_FULL, id="budget-full"),
        pytest.param(
            429,
            {"Retry-After": "10"},
            STALE,
            (pdb(created=YOUNG, status=UNSYNCED),),
            EvictionKind.BUDGET_STALE,
            id="stale-while-young",
        ),
        pytest.param(
            429,
            {"Retry-After": "10"},
            STALE,
            (pdb(created=YOUNG, status=FAILED),),
            EvictionKind.PERMANENT,
            id="sync-failed-is-never-stale",
        ),
        pytest.param(
            429,
            {"Retry-After": "10"},
            STALE,
            (pdb(status=UNSYNCED),),
            EvictionKind.PERMANENT,
            id="stale-for-too-long-expects-no-pods",
        ),
        pytest.param(
            429,
            {},
            BUDGET,
            (pdb(status={"desiredHealthy": 4, "currentHealthy": 4}),),
            EvictionKind.PERMANENT,
            id="keeps-all",
        ),
        pytest.param(
            429,
            {"Retry-After": "1"},
            b"Too many requests, please try again later.",
            (pdb(),),
            EvictionKind.API_BUSY,
            id="priority-and-fairness",
        ),
        pytest.param(
            429,
            {},
            status("Eviction triggered evacuation of VMI"),
            (),
            EvictionKind.IN_PROGRESS,
            id="webhook-took-over",
        ),
        pytest.param(500, {}, TWO, (pdb("a"), pdb("b")), EvictionKind.PERMANENT, id="two-pdbs"),
        pytest.param(500, {}, status("boom"), (), EvictionKind.UNKNOWN, id="500"),
        pytest.param(502, {}, b"<html>", (), EvictionKind.UNKNOWN, id="502"),
        pytest.param(503, {"Retry-After": "5"}, b"", (), EvictionKind.UNKNOWN, id="503"),
        pytest.param(504, {}, b"", (), EvictionKind.UNKNOWN, id="504"),
        pytest.param(
            403,
            {},
            status("forbidden", cause="NamespaceTerminating"),
            (),
            EvictionKind.NAMESPACE_ENDING,
            id="namespace-ending",
        ),
        pytest.param(403, {}, RBAC, (), EvictionKind.MISSING_PERMISSION, id="rbac"),
        pytest.param(
            403,
            {},
            status("pdb disruptions allowed is negative"),
            (),
            EvictionKind.REFUSED,
            id="negative-allowance",
        ),
        pytest.param(401, {}, status("Unauthorized"), (), EvictionKind.UNAUTHORIZED, id="401"),
        pytest.param(400, {}, status("name mismatch"), (), EvictionKind.REFUSED, id="400"),
        pytest.param(422, {}, status("invalid"), (), EvictionKind.REFUSED, id="422"),
    ],
)
def test_answers(
    code: int, headers: dict[str, str], body: bytes, pdbs: tuple[Any, ...], kind: EvictionKind
) -> None:
    outcome = classify(code, headers, body, pod(), pdbs, NOW)
    assert outcome.kind is kind
    assert not (outcome.done and outcome.backs_off)


def test_silence_leaves_the_outcome_open() -> None:
    outcome = no_answer("timed out after 30 s")
    assert outcome.kind is EvictionKind.UNKNOWN
    assert not outcome.done


def test_a_text_429_blames_no_pdb_and_has_a_delay() -> None:
    outcome = classify(429, {"retry-after": "7"}, b"Too many requests", pod(), (pdb(),), NOW)
    assert outcome.retry_after_s == 7
    assert not outcome.backs_off, "the queue as a unit waits, not this PDB"


def test_both_pdbs_are_named() -> None:
    outcome = classify(500, {}, TWO, pod(), (pdb("a"), pdb("b")), NOW)
    assert "team-a/a and team-a/b" in outcome.message
    assert outcome.remedy


@pytest.mark.parametrize(
    "body",
    [b"", b"null", b"[]", b'"x"', b"\xff\xfe", b'{"details": 3}', b'{"details":{"causes":7}}'],
)
@pytest.mark.parametrize("code", [403, 404, 409, 429, 500])
def test_no_body_breaks_it(code: int, body: bytes) -> None:
    assert classify(code, {}, body, pod(), (), NOW).kind in EvictionKind
