"""A node with a past: faults, a repaired session, a test, a person's act, an open session."""

from __future__ import annotations

import dataclasses

import msgspec

from remediator.view.state import PageState
from rules.api.health import IncidentStatus
from rules.api.nodes import QuarantineView
from rules.api.quarantine import (
    Cause,
    ReleaseRequest,
    RepairAttempt,
    TimelineEntry,
    ValidationAttempt,
)
from rules.ledger.record import RecordView
from tests.support.remediator.page_fleet import ago, node, session, sick, state, verdict
from tests.support.remediator.record_objects import records

NODE = "gpu-healthy"
DAY = 86_400.0


def steps(*told: tuple[float, str, str]) -> tuple[TimelineEntry, ...]:
    return tuple(
        TimelineEntry(at=ago(at), step=step, message=f"{step} then", by=by)
        for at, step, by in told
    )


def repaired() -> QuarantineView:
    """A reset that failed, a restart, a test, released."""
    began = 3 * DAY
    return session(
        "gpu-healthy-1", NODE, "Released", opened_s=began,
        phase_since=ago(began - 4000),
        timeline=steps(
            (began, "Pending", "gpuward"), (began, "Marked", "gpuward"),
            (began, "Draining", "gpuward"), (began - 300, "Quarantined", "gpuward"),
            (began - 310, "Repairing", "gpuward"), (began - 310, "RepairAsked", "gpuward"),
            (began - 2400, "NewBoot", "gpuward"), (began - 2500, "Validating", "gpuward"),
            (began - 4000, "Released", "gpuward"),
        ),
        repair=(
            RepairAttempt(step="ResetGPU", adapter="Job", asked_at=ago(began - 310),
                          ended_at=ago(began - 1210), state="Failed", proof="no reset was seen"),
            RepairAttempt(step="RestartNode", adapter="Job", asked_at=ago(began - 1215),
                          ended_at=ago(began - 2480), state="Proven", proof="new boot, Ready"),
        ),
        validation=(
            ValidationAttempt(object="t-1", provider="Builtin", started_at=ago(began - 2500),
                              ended_at=ago(began - 3300), state="Passed", verdict="pass",
                              message="12 checks"),
        ),
    )  # fmt: skip


def by_hand() -> QuarantineView:
    """A person took it out and gave it back."""
    asked = session(
        "gpu-healthy-by-hand", NODE, "Released", opened_s=9 * DAY, phase_since=ago(8.8 * DAY),
        evidence={},
        timeline=steps((9 * DAY, "Marked", "gpuward"), (8.8 * DAY, "Released", "person")),
    )  # fmt: skip
    spec = msgspec.structs.replace(
        asked.spec,
        causes=(Cause(source="Human", reason="Requested", by="ann", message="fire drill"),),
        release=ReleaseRequest(by="ben", reason="drill is over"),
    )
    return msgspec.structs.replace(asked, spec=spec)


def goes_on() -> QuarantineView:
    return session(
        "gpu-healthy-2", NODE, "Draining", opened_s=900,
        timeline=steps((900, "Pending", "gpuward"), (890, "Draining", "gpuward")),
    )  # fmt: skip


def eventful() -> PageState:
    """The fleet around it."""
    incidents = (
        IncidentStatus(
            id="i-1", reason="Xid79GPUFallenOffBus", severity="Fatal", level="Drain", active=True,
            first_seen=ago(905), gpus=(f"GPU-{NODE}-3",), pci=("0000:61:00",),
        ),
        IncidentStatus(
            id="i-0", reason="Xid95UncontainedMemoryError", severity="Fatal", level="Drain",
            first_seen=ago(3 * DAY), closed_at=ago(3 * DAY - 2450), closed_by="Reboot(GPU reset)",
        ),
    )  # fmt: skip
    of = state(
        [sick(NODE, rack="r1"), node("gpu-blocked", rack="r2")],
        [repaired(), by_hand(), goes_on()],
        [verdict(NODE, incidents=incidents)],
    )
    known = {r.name: r for r in (msgspec.convert(one, RecordView) for one in records())}
    return dataclasses.replace(of, snapshot=dataclasses.replace(of.snapshot, records=known))
