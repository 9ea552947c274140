"""Names, causes and levels: who opens what, and what two writers would call it."""

from typing import Any

import msgspec
import pytest

from rules.api.health import IncidentStatus
from rules.api.nodes import HealthView, QuarantineView
from rules.api.quarantine import Cause, most_severe_reason
from rules.policy.policy import Policy
from rules.policy.reader import load_policy
from rules.session.causes import actionable, cause_of, session_name, worst
from tests.support.scenario.drain_objects import node


def ended(name: str, incident: str = "i1") -> QuarantineView:
    value = {
        "metadata": {"name": name, "uid": name},
        "spec": {"nodeName": "n0", "causes": [{"source": "Detector", "incident": incident}]},
        "status": {"phase": "Released"},
    }
    return msgspec.convert(value, QuarantineView)


def test_the_name_is_deterministic_and_counts_ended_sessions() -> None:
    first = session_name(node(), "i1", [])
    assert first == session_name(node(), "i1", [])
    second = session_name(node(), "i1", [ended(first)])
    assert second not in {first, session_name(node(), "i2", [])}
    assert first != session_name(node(metadata={"uid": "other"}), "i1", [])


def test_a_forgotten_session_does_not_make_a_name_collide() -> None:
    first = session_name(node(), "i1", [])
    second = session_name(node(), "i1", [ended(first)])
    third = session_name(node(), "i1", [ended(second)])
    assert third not in {first, second}


def test_long_node_names_leave_room() -> None:
    assert len(session_name(node("n" * 253), "i1", [])) == 209


def health(*incidents: dict[str, Any]) -> HealthView:
    rows = [{"id": str(i), "active": True, **row} for i, row in enumerate(incidents)]
    return msgspec.convert({"metadata": {"name": "n0"}, "status": {"incidents": rows}}, HealthView)


@pytest.mark.parametrize(
    ("row", "overrides", "acts"),
    [
        pytest.param({"reason": "A", "level": "Drain"}, {}, True, id="drain"),
        pytest.param({"reason": "A", "level": "Cordon"}, {}, True, id="cordon"),
        pytest.param({"reason": "A", "level": "Report"}, {}, False, id="report"),
        pytest.param({"reason": "A", "level": "Drain", "active": False}, {}, False, id="closed"),
        pytest.param({"reason": "A", "level": "Explode"}, {}, False, id="a-newer-agents-level"),
        pytest.param(
            {"reason": "A", "level": "Drain"}, {"A": {"level": "Report"}}, False, id="less"
        ),
        pytest.param(
            {"reason": "A", "level": "Report"}, {"A": {"level": "Drain"}}, True, id="more"
        ),
    ],
)
def test_what_opens_a_session(row: dict[str, Any], overrides: dict[str, Any], acts: bool) -> None:
    policy = load_policy({"reasons": overrides})
    assert isinstance(policy, Policy)
    assert bool(actionable(health(row), (), policy)) == acts


def test_fatal_first_then_oldest() -> None:
    rows = [
        {
            "reason": "C",
            "severity": "Degraded",
            "level": "Cordon",
            "firstSeen": "2026-01-01T00:00:00Z",
        },
        {
            "reason": "B",
            "severity": "Fatal",
            "level": "Drain",
            "firstSeen": "2026-01-01T00:00:09Z",
        },
        {
            "reason": "A",
            "severity": "Fatal",
            "level": "Drain",
            "firstSeen": "2026-01-01T00:00:01Z",
        },
    ]
    found: tuple[IncidentStatus, ...] = actionable(health(*rows), (), Policy())
    assert [incident.reason for incident in found] == ["A", "B", "C"]


def test_an_unknown_severity_ranks_as_degraded() -> None:
    assert worst([Cause(severity="Info"), Cause(severity="Apocalyptic")]) == "Apocalyptic"
    assert worst([Cause(severity="Fatal"), Cause(severity="Apocalyptic")]) == "Fatal"
    assert worst([]) == "Degraded"


def test_a_cause_fits_its_schema_for_any_agent_text() -> None:
    odd = IncidentStatus(id="i", reason="R" * 99, severity="Apocalyptic", evidence=("x" * 9999,))
    cause = cause_of(odd)
    assert len(cause.reason) == 63
    assert cause.severity == "Degraded"
    assert len(cause.message) == 512
    assert [
        cause_of(IncidentStatus(id="i", reason="R", severity=s)).severity
        for s in ("Info", "Fatal")
    ] == [
        "Info",
        "Fatal",
    ]


WEAR = Cause(source="Detector", reason="EccUncorrectableVolatile", severity="Degraded")
LOST = Cause(source="Detector", reason="Xid79GPUFallenOffBus", severity="Fatal")
WORSE = Cause(source="Detector", reason="Xid95UncontainedMemoryError", severity="Fatal")
HUNG = Cause(source="Detector", reason="Xid119GSPTimeout", severity="Fatal")
GONE = Cause(source="Detector", reason="GPULost", severity="Fatal")
OTHERS = Cause(source="External", reason="SomebodysOwn", severity="Fatal")
OPERATOR = Cause(source="Human", severity="Degraded")


@pytest.mark.parametrize(
    ("causes", "expected"),
    [
        pytest.param((), "", id="none"),
        pytest.param(
            (WEAR, LOST, WORSE), LOST.reason, id="the-most-severe-and-of-equals-the-first"
        ),
        pytest.param((HUNG, GONE), GONE.reason, id="of-equals-the-one-that-asks-for-more"),
        pytest.param((OTHERS, HUNG), HUNG.reason, id="what-no-catalog-knows-asks-for-nothing"),
        pytest.param((OPERATOR,), "Human", id="its-source"),
    ],
)
def test_walk_a_drain_that_got_worse_is_named_by_the_worst(
    causes: tuple[Cause, ...], expected: str
) -> None:
    assert most_severe_reason(causes) == expected
