"""What `why` says of the time to come, of whose the cordon is, and what a release would take off.

A tired reader acts on these lines: none may promise what does not happen by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from remediator.kubectl.why_causes import goes_further
from rules.api.health import IncidentStatus
from rules.api.nodes import FreshNode
from tests.support.remediator.kubectl_looks import NAME, SESSION, look
from tests.support.remediator.kubectl_looks import told as in_one_line
from tests.support.remediator.kubectl_objects import (
    Object,
    ago,
    marked,
    node,
    session,
    sick,
)


def note(**more: Any) -> str:
    found = {"session": SESSION, "at": ago(14), "mark": "CordonAndTaint", **more}
    return msgspec.json.encode(found).decode()


def on(prior: bool = False) -> FreshNode:
    annotations = {"gpuward.io/session": note(priorUnschedulable=prior)}
    return msgspec.convert(marked(NAME, SESSION, annotations=annotations), FreshNode)


def told(
    phase: str,
    *conditions: Object,
    level: str = "Drain",
    prior: bool = False,
    asked: Object | None = None,
    labels: Mapping[str, str] | None = None,
    **status: Any,
) -> str:
    health = sick(NAME, level=level, publisher={"heartbeat": ago(5)})
    health["status"]["observedAt"] = ago(2)
    spec = {"level": level, **({"release": asked} if asked else {})}
    opened = session(
        SESSION, NAME, phase, "So it stands.", conditions=list(conditions), spec=spec, **status
    )
    there = msgspec.convert(node(NAME), FreshNode) if phase == "Released" else on(prior)
    there.metadata.labels.update(labels or {})
    return in_one_line(replace(look(health, opened), node=there))


def test_walk_what_a_person_gave_back_says_who_and_why_and_how_it_is_taken_again() -> None:
    said = told("Released", asked={"by": "ann", "reason": "need it"})
    assert "the last Released 14m ago by ann (need it)" in said
    assert f'kubectl gpuward quarantine {NAME} --reason "..."' in said


def acting(reason: str, action: str) -> IncidentStatus:
    return IncidentStatus(id=reason, reason=reason, severity="Fatal", recommended_action=action)


def test_walk_nobody_resets_a_gpu_of_a_node_that_is_to_be_replaced() -> None:
    active = [acting("A", "ReplaceNode"), acting("B", "ResetGPU"), acting("C", "Investigate")]
    assert [goes_further(one, active) for one in active] == ["", "A", ""]
    assert goes_further(active[1], active[1:]) == ""
