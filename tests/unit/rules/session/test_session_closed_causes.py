"""What a verdict that is stale still says of a cause: that it had closed, if it says anything."""

from __future__ import annotations

import pytest

from rules.api.health import HealthStatus, IncidentStatus
from rules.api.metadata import ObjectMeta, TimedMeta
from rules.api.nodes import HealthView, NodeView, QuarantineView
from rules.api.quarantine import Cause, QuarantineSpec
from rules.policy.policy import Policy
from rules.session.causes import CauseSight, open_causes

UID, SEEN = "uid-of-n0", "2026-11-23T10:00:00Z"
FAULT = Cause(source="Detector", reason="GPULost", severity="Fatal", incident="i")
WISH = Cause(source="Human", reason="Requested")


def incident(*, active: bool) -> IncidentStatus:
    return IncidentStatus(id="i", reason="GPULost", severity="Fatal", level="Drain", active=active)


def held(verdict: HealthStatus, *causes: Cause, doubt: str = "") -> list[str]:
    """The reasons that hold, by a verdict that is stale."""
    node = NodeView(metadata=ObjectMeta(name="n0", uid=UID))
    session = QuarantineView(
        metadata=ObjectMeta(name="n0-1"),
        spec=QuarantineSpec(node_name="n0", node_uid=UID, causes=causes),
    )
    sight = CauseSight(
        node=node,
        health=HealthView(metadata=TimedMeta(name="n0"), status=verdict, doubt=doubt),
        stale="the agent is silent",
        policy=Policy(),
        now=1e9,
    )
    return [cause.reason for cause in open_causes(session, sight)]


CLOSED = HealthStatus(node_uid=UID, observed_at=SEEN, incidents=(incident(active=False),))


def test_what_had_closed_stays_closed_where_a_person_keeps_the_node_out() -> None:
    assert held(CLOSED, FAULT, WISH) == ["Requested"]
    assert held(CLOSED, FAULT) == ["GPULost"], "what closed is booked as Validating"


@pytest.mark.parametrize(
    ("verdict", "doubt"),
    [
        pytest.param(HealthStatus(), "", id="nobody has filled it"),
        pytest.param(HealthStatus(node_uid=UID), "", id="only its node is named"),
        pytest.param(HealthStatus(node_uid="another", observed_at=SEEN), "", id="another machine"),
        pytest.param(CLOSED, "it cannot be understood", id="in doubt"),
        pytest.param(
            HealthStatus(node_uid=UID, observed_at=SEEN, incidents=(incident(active=True),)),
            "",
            id="the fault was active",
        ),
    ],
)
def test_what_says_nothing_closes_nothing(verdict: HealthStatus, doubt: str) -> None:
    assert held(verdict, FAULT, WISH, doubt=doubt) == ["GPULost", "Requested"]
