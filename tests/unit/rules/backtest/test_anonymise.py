"""A field that nobody listed is hidden: no name leaves by a new or forgotten one."""

from __future__ import annotations

import msgspec
import pytest

from rules.api.health import plain
from rules.api.quarantine import (
    Cause,
    QuarantineSpec,
    QuarantineStatus,
    ReleaseRequest,
    RepairAttempt,
    RepairRequest,
    RepairTarget,
    TimelineEntry,
    ValidationAttempt,
)
from rules.backtest.anonymise import Anonymiser
from rules.backtest.archive import Archive, ExportedObject, to_files

SECRET = "acmecorp"


def archive() -> Archive:
    cause = Cause(source="Condition", incident=f"condition {SECRET}", reason=SECRET)
    spec = QuarantineSpec(
        node_name=SECRET,
        causes=(cause,),
        release=ReleaseRequest(by=SECRET, reason=SECRET),
        repair=RepairRequest(step="RestartNode", by=SECRET, reason=SECRET),
    )
    target = RepairTarget(
        api_version=f"{SECRET}/v1", resource=SECRET, namespace=SECRET, name=SECRET, uid=SECRET
    )
    attempt = RepairAttempt(
        step="RestartNode", adapter=SECRET, target=target, state="Proven",
        started_at="2026-11-22T10:00:00Z",
    )  # fmt: skip
    test = ValidationAttempt(object=SECRET, template=SECRET, job_uid=SECRET, provider="Job")
    status = QuarantineStatus(
        phase="Released", repair=(attempt,), validation=(test,),
        timeline=(TimelineEntry(at="2026-11-22T10:00:00Z", step="Marked"),),
    )  # fmt: skip
    session = ExportedObject(name=SECRET, uid=SECRET, spec=plain(spec), status=plain(status))
    policy = {
        "mode": "Enforce",
        "nodeSelector": f"{SECRET}=x",
        "pods": [{"namespaces": [SECRET]}],
        "external": [{"condition": {"type": SECRET}, "reason": SECRET}],
        "repair": {"mode": "Auto", "steps": {"RestartNode": {"template": SECRET}}},
        "validate": {"template": SECRET},
        "budget": {"minimum": 1, "per": [SECRET]},
        "laterKey": SECRET,
    }
    return Archive(sessions=(session,), policy=policy)


def test_issue14_no_field_of_a_session_or_policy_keeps_a_name() -> None:
    hidden = Anonymiser(b"key").archive(archive())
    files = to_files(hidden)
    assert [name for name, body in files.items() if SECRET.encode() in body] == []
    (session,) = hidden.sessions
    assert session.status["repair"][0]["step"] == "RestartNode"
    assert session.status["repair"][0]["startedAt"] == "2026-11-22T10:00:00Z"
    assert session.status["timeline"][0]["step"] == "Marked"
    assert hidden.policy == {"mode": "Enforce", "budget": {"minimum": 1}}


def test_issue14_a_field_of_another_release_is_hidden() -> None:
    one = ExportedObject(name="s", status={"newField": SECRET, "deep": [{"also": [SECRET]}]})
    text = msgspec.json.encode(Anonymiser(b"key").archive(Archive(records=(one,))))
    assert SECRET.encode() not in text


@pytest.mark.parametrize("reason", ["Xid79GPUFallenOffBus", "NVLinkDown", "Requested"])
def test_issue14_reasons_of_the_catalogue_stay(reason: str) -> None:
    cause = plain(Cause(source="Detector", reason=reason))
    one = ExportedObject(name="s", spec={"causes": [cause]})
    hidden = Anonymiser(b"key").archive(Archive(sessions=(one,)))
    assert hidden.sessions[0].spec["causes"][0]["reason"] == reason


def test_issue14_without_a_key_nothing_is_hidden_by_a_known_one() -> None:
    with pytest.raises(ValueError, match="key"):
        Anonymiser(b"")
