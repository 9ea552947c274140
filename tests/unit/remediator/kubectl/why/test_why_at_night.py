"""What somebody who is woken at night reads of a GPU that is gone, of a driver that an owner took
away, of a switch, and of what a pause stops beside what it was meant for.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from remediator.kubectl.command import CommandError
from remediator.kubectl.evidence import LATER, rma_folder
from remediator.kubectl.request import join
from rules.api.health import IncidentStatus
from rules.api.nodes import QuarantineView
from rules.api.quarantine import Cause
from tests.support.remediator.kubectl_evidence import kept
from tests.support.remediator.kubectl_looks import NAME, SESSION, look
from tests.support.remediator.kubectl_looks import told as in_one_line
from tests.support.remediator.kubectl_objects import (
    Object,
    ago,
    marked,
    node,
    session,
    verdict,
)

UPGRADE = "nvidia.com/gpu-driver-upgrade-state"


def told(
    health: Object,
    *,
    opened: Object | None = None,
    labels: dict[str, str] | None = None,
    **more: Any,
) -> str:
    there = marked(NAME, SESSION) if opened is not None else node(NAME)
    there["metadata"]["labels"] |= labels or {}
    sessions = (opened,) if opened is not None else ()
    return in_one_line(look(health, *sessions, on=there, **more))


def test_a_driver_that_was_let_go_on_request_is_no_agent_to_be_looked_for() -> None:
    released = {"name": "nvml", "state": "Released", "reason": "Released", "since": ago(3)}
    said = told(verdict(NAME, sources=[released]), labels={UPGRADE: "pod-restart-required"})
    assert "its agent let go of the driver 3m ago, as it should: the GPU Operator is" in said
    assert "kubectl get pods -A" not in said


class _Outrun:
    """A cluster in which somebody else writes the session before us, so often."""

    def __init__(self, times: int, newest: Object) -> None:
        self.times, self.newest = times, newest
        self.written: dict[str, Any] = {}

    async def patch(self, _: str, body: dict[str, Any]) -> None:
        if self.times:
            self.times -= 1
            raise CommandError("somebody else changed it", outrun=True)
        self.written = body

    async def session(self, _: str) -> QuarantineView:
        return msgspec.convert(self.newest, QuarantineView)


def added(there: _Outrun) -> str:
    before = msgspec.convert(session(SESSION, NAME, "Pending", "x"), QuarantineView)
    cause = Cause(source="Human", reason="Requested", by="ann")
    return asyncio.run(join(there, before, cause, "Drain", stops=False))  # type: ignore[arg-type]


def test_a_persons_word_is_written_on_the_newest_session_however_often_it_was_outrun() -> None:
    newest = session(SESSION, NAME, "Pending", "x")
    newest["metadata"]["resourceVersion"] = "7"
    newest["spec"]["causes"].append({"source": "Detector", "reason": "GPULost"})
    there = _Outrun(2, newest)
    assert "your reason was added" in added(there)
    assert there.written["metadata"] == {"resourceVersion": "7"}
    reasons = [cause["reason"] for cause in there.written["spec"]["causes"]]
    assert reasons == ["Xid95UncontainedMemoryError", "GPULost", "Requested"]


@pytest.mark.parametrize(("times", "phase"), [(99, "Pending"), (1, "Released")])
def test_it_gives_up_in_the_end_and_at_once_where_the_session_has_ended(
    times: int, phase: str
) -> None:
    with pytest.raises(CommandError):
        added(_Outrun(times, session(SESSION, NAME, phase, "x")))


def test_what_came_after_the_evidence_is_written_beside_it_and_said_to_be_missing() -> None:
    spec = kept()["spec"]
    later = IncidentStatus(id="i2", reason="RowRemapFailure", severity="Fatal", active=True)
    record = IncidentStatus(id="i3", reason="Xid43", severity="Info", active=True)
    same = IncidentStatus(id="i1", reason="Xid79GPUFallenOffBus", severity="Fatal", active=True)
    made = rma_folder(spec, (later, record, same))
    assert made is not None
    assert made.files[LATER].startswith("  RowRemapFailure (Fatal, active)")
    assert "Xid43" not in made.files[LATER]
    assert made.missing[0].startswith("RowRemapFailure, of ")
    assert LATER in made.files["summary.txt"]
    alone = rma_folder(spec, (same,))
    assert alone is not None
    assert LATER not in alone.files
    assert LATER not in alone.files["summary.txt"]
