"""What the owner of a pod that had to go is reported."""

from typing import Any

import pytest

from rules.api.health import GpuStatus, HealthStatus, IncidentStatus
from rules.api.quarantine import Cause
from rules.api.requests import request
from rules.api.writes import DeletePod, EmitEvent, EvictPod
from rules.drain.blockers import owner_event

POD: dict[str, Any] = {
    "node": "gpu-1", "namespace": "team-a", "name": "train-0", "uid": "u-pod",
}  # fmt: skip
EVICTED = EvictPod(**POD, session="gpu-1-5e55")
XID = Cause(source="Detector", incident="i1", reason="Xid95UncontainedMemoryError",
            severity="Fatal")  # fmt: skip
VERDICT = HealthStatus(
    gpus=(GpuStatus(uuid="GPU-aa", index=3, pci="0000:3b:00.0"),),
    incidents=(IncidentStatus(id="i1", reason=XID.reason, gpus=("GPU-aa",)),),
)


def told(*causes: Cause, gone: EvictPod | DeletePod = EVICTED, verdict=VERDICT) -> EmitEvent:
    return owner_event(gone, "gpu-1-5e55", causes, verdict, 1_750_000_000.0)


def test_one_sentence_says_what_where_why_under_what_and_where_to_look() -> None:
    event = told(XID)
    assert event.message == (
        "Evicted from node gpu-1, which is out of service for Xid95UncontainedMemoryError "
        "(Fatal) on GPU 3 (GPU-aa). GPUQuarantine: gpu-1-5e55. Run kubectl gpuward why gpu-1, or "
        "ask the cluster operator."
    )
    assert (event.kind, event.reason) == ("Normal", "QuarantineEvicted")


def test_the_same_pod_is_told_of_once_and_its_successor_of_that_name_again() -> None:
    def name(gone: EvictPod) -> str:
        body = request(told(XID, gone=gone)).body
        assert body is not None
        return body["metadata"]["name"]

    again = EvictPod(**{**POD, "uid": "u-next"}, session="gpu-1-5e55")
    assert name(EVICTED) == name(EVICTED) != name(again)


@pytest.mark.parametrize(
    ("causes", "says"),
    [
        pytest.param(
            (Cause(reason="Requested", by="ann", message="fire drill"),),
            "for a request of ann (fire drill). ",
            id="an operator's",
        ),
        pytest.param(
            (Cause(),), "for a request of an operator. ", id="an operator's without a reason"
        ),
        pytest.param(
            tuple(
                Cause(source="Detector", incident=reason, reason=reason, severity="Fatal")
                for reason in ("GPULost", "RowRemapFailure")
            ),
            "for RowRemapFailure (Fatal) and 1 more. ",
            id="the one that asks for most, as the lists name it",
        ),
        pytest.param(
            (Cause(source="External", incident="x", reason="KernelDeadlock"),),
            "for KernelDeadlock (Degraded). ",
            id="an external cause names no GPU",
        ),
        pytest.param(
            (Cause(reason="Requested", by="ann"), XID),
            "(Fatal) on GPU 3 (GPU-aa) and 1 more. ",
            id="the most severe first",
        ),
        pytest.param((), "for a cause that is closed now. ", id="none any more"),
    ],
)
def test_the_cause_is_said_in_words(causes: tuple[Cause, ...], says: str) -> None:
    assert says in told(*causes).message


def test_of_a_gpu_that_the_verdict_does_not_number_the_uuid_is_said() -> None:
    lost = HealthStatus(incidents=VERDICT.incidents)
    assert "on GPU GPU-aa. " in told(XID, verdict=lost).message
    assert " on " not in told(XID, verdict=None).message


def test_hostile_text_is_escaped_and_bounded_in_bytes() -> None:
    evil = Cause(reason="\x1b[2J\n" + "x" * 500, source="Detector", incident="i1")
    many = tuple("GPU-\u202e" + "\U0001f4a5" * 300 for _ in range(60))
    verdict = HealthStatus(incidents=(IncidentStatus(id="i1", reason="r", gpus=many),))
    person = Cause(by="\x00" * 300, message="é" * 5000)
    for causes in ((evil,), (person,)):
        event = told(*causes, verdict=verdict)
        body = request(event).body
        assert event.message.isprintable()
        assert body is not None
        assert len(body["message"].encode()) <= 1024
        assert "GPUQuarantine: gpu-1-5e55" in body["message"]
