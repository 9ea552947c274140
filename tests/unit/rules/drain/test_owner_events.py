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
HEALTH = HealthStatus(
    gpus=(GpuStatus(uuid="GPU-aa", index=3, pci="0000:3b:00.0"),),
    incidents=(IncidentStatus(id="i1", reason=XID.reason, gpus=("GPU-aa",)),),
)


def event_of(*causes: Cause, gone: EvictPod | DeletePod = EVICTED, health=HEALTH) -> EmitEvent:
    return owner_event(gone, "gpu-1-5e55", causes, health, 1_750_000_000.0)


def test_an_owner_event_has_node_cause_session_and_command() -> None:
    event = event_of(XID)
    assert event.message == (
        "Evicted from node gpu-1, which is out of service for Xid95UncontainedMemoryError "
        "(Fatal) on GPU 3 (GPU-aa). GPUQuarantine: gpu-1-5e55. Run kubectl gpuward why gpu-1, or "
        "ask the cluster operator."
    )
    assert (event.kind, event.reason) == ("Normal", "QuarantineEvicted")


def test_a_pod_gets_one_event_and_its_successor_another() -> None:
    def name(gone: EvictPod) -> str:
        body = request(event_of(XID, gone=gone)).body
        assert body is not None
        return body["metadata"]["name"]

    again = EvictPod(**{**POD, "uid": "u-next"}, session="gpu-1-5e55")
    assert name(EVICTED) == name(EVICTED) != name(again)


@pytest.mark.parametrize(
    ("causes", "expected"),
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
def test_the_event_names_the_cause(causes: tuple[Cause, ...], expected: str) -> None:
    assert expected in event_of(*causes).message


def test_a_gpu_without_an_index_is_named_by_its_uuid() -> None:
    lost = HealthStatus(incidents=HEALTH.incidents)
    assert "on GPU GPU-aa. " in event_of(XID, health=lost).message
    assert " on " not in event_of(XID, health=None).message


def test_hostile_text_is_escaped_and_bounded_in_bytes() -> None:
    evil = Cause(reason="\x1b[2J\n" + "x" * 500, source="Detector", incident="i1")
    many = tuple("GPU-\u202e" + "\U0001f4a5" * 300 for _ in range(60))
    health = HealthStatus(incidents=(IncidentStatus(id="i1", reason="r", gpus=many),))
    operator = Cause(by="\x00" * 300, message="é" * 5000)
    for causes in ((evil,), (operator,)):
        event = event_of(*causes, health=health)
        body = request(event).body
        assert event.message.isprintable()
        assert body is not None
        assert len(body["message"].encode()) <= 1024
        assert "GPUQuarantine: gpu-1-5e55" in body["message"]
