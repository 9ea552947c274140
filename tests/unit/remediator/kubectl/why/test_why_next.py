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


def test_walk_a_node_that_is_only_cordoned_shows_how_its_pods_are_moved() -> None:
    move = f'kubectl gpuward quarantine {NAME} --reason "..."'
    assert move in told("Marked", level="Cordon")
    assert move not in told("Marked", level="Drain")


def test_walk_a_cordon_that_was_there_before_is_nobody_elses_than_its_maker_s() -> None:
    before = f"cordon, not gpuward's: it was cordoned before session {SESSION}"
    assert f"{before}, and it stays after a release" in told("Quarantined", prior=True)
    assert "cordon, gpuward's" in told("Quarantined")


def test_walk_whose_work_was_moved_is_said() -> None:
    drain = {"evicted": 3, "recent": ["training/llm-0-0", "training/llm-0-1"]}
    said = told("Quarantined", drain=drain, evidence={"gangs": ["Job training/llm-0"]})
    assert "pods evicted, the last: training/llm-0-0, training/llm-0-1" in said
    assert "gang: Job training/llm-0" in said
    assert "evicted:" not in told("Pending", drain={"evicted": 0})


def test_walk_what_a_person_gave_back_says_who_and_why_and_how_it_is_taken_again() -> None:
    said = told("Released", asked={"by": "ann", "reason": "need it"})
    assert "the last Released 14m ago by ann (need it)" in said
    assert f'kubectl gpuward quarantine {NAME} --reason "..."' in said


def test_a_fault_that_comes_and_goes_says_until_when_it_waits() -> None:
    ended = []
    for number in range(6):
        cause = {"source": "Detector", "incident": f"old-{number}", "severity": "Fatal"}
        over = {"spec": {"causes": [cause]}, "evidence": {"joined": "another"}}
        one = session(f"{NAME}-{number}", NAME, "Cancelled", "Joined another.", **over)
        one["metadata"]["creationTimestamp"] = ago(14)
        ended.append(one)
    said = in_one_line(look(sick(NAME), *ended))
    assert "its fault comes and goes, and its last sessions ended before anything" in said
    assert "opened within seconds" not in said
    assert "opened within seconds" in in_one_line(look(sick(NAME), *ended[1:]))


def acting(reason: str, action: str) -> IncidentStatus:
    return IncidentStatus(id=reason, reason=reason, severity="Fatal", recommended_action=action)


def test_walk_nobody_resets_a_gpu_of_a_node_that_is_to_be_replaced() -> None:
    active = [acting("A", "ReplaceNode"), acting("B", "ResetGPU"), acting("C", "Investigate")]
    assert [goes_further(one, active) for one in active] == ["", "A", ""]
    assert goes_further(active[1], active[1:]) == ""
