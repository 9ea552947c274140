"""A session on the page of its node."""

from __future__ import annotations

import itertools
import re
from typing import Any

import msgspec
import pytest

from remediator.view.shapes import GpuIdentity, IncidentEvidence, NodeMark
from remediator.view.state import PageState
from rules.api.nodes import ObjectMeta, QuarantineView
from rules.api.quarantine import (
    Cause,
    Condition,
    QuarantineSpec,
    RepairAttempt,
    RepairRequest,
    TimelineEntry,
)
from rules.policy.policy import Policy
from rules.policy.reader import load_policy
from tests.support.remediator.page_fleet import (
    XID_79,
    ago,
    blocked_session,
    fleet_html,
    history_html,
    node,
    node_html,
    node_of,
    session,
    session_of,
    sick,
    state,
    verdict,
)

MARKED = {
    "unschedulable": True,
    "taints": [
        {"key": "gpuward.io/quarantine", "value": "Xid79GPUFallenOffBus", "effect": "NoSchedule"},
        {"key": "example.com/mine", "value": "x", "effect": "NoExecute"},
        {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
    ],
}
NOTE = {"annotations": {"gpuward.io/session": '{"session": "b-1", "priorUnschedulable": true}'}}


def page(of: PageState, name: str) -> str:
    return node_html(of, of.snapshot.quarantines[name].spec.node_name)


def blocked() -> PageState:
    return state(
        [sick("b", spec=MARKED, metadata=NOTE)], [blocked_session("b-1", "b")], [verdict("b")]
    )


def test_the_page_names_budget_pods_owner_and_remedy() -> None:
    said = page(blocked(), "b-1")

    for text in (
        "serving/solo", "serving/solo-0", "Deployment serving/solo",
        "minAvailable 1 keeps 1 of 1 expected", "add a replica or relax the PDB",
        "waiting cannot help",
    ):  # fmt: skip
        assert text in said


def test_what_the_session_kept_survives_the_node() -> None:
    of = state((), [blocked_session("b-1", "b")])
    detail = session_of(of, "b-1")

    assert detail.evidence == (
        IncidentEvidence(
            reason="Xid79GPUFallenOffBus", severity="Fatal", first_seen=ago(600),
            recommended_action="ResetGPU", lines=(XID_79,),
        ),
    )  # fmt: skip
    assert detail.gpus == (GpuIdentity(uuid="GPU-b-3", serial="", index=-1),)
    assert f"<code>{XID_79}</code>" in page(of, "b-1")


def test_a_gpu_has_its_serial_while_the_verdict_is_known() -> None:
    assert session_of(blocked(), "b-1").gpus == (
        GpuIdentity(uuid="GPU-b-3", serial="S3", index=3),
    )


def test_every_mark_has_an_owner() -> None:
    assert node_of(blocked(), "b").marks == (
        NodeMark(
            what="taint gpuward.io/quarantine=Xid79GPUFallenOffBus:NoSchedule", owner="gpuward"
        ),
        NodeMark(what="taint example.com/mine=x:NoExecute", owner="not gpuward"),
        NodeMark(
            what="cordoned",
            owner="not gpuward: it was cordoned before, and stays so after a release",
        ),
    )


def test_the_drain_bar_says_its_numbers_in_words() -> None:
    """A pod that was evicted and is on its way out is not counted as gone, too."""
    words = "2 gone, 1 leaving or waiting, 1 blocked, 0 left by failure"
    assert f'aria-label="{words}"' in page(blocked(), "b-1")


def test_before_the_drain_begins_the_page_says_so() -> None:
    of = state([node("a")], [session("a-1", "a", "Pending", drain=None, evidence={}, timeline=())])
    said = page(of, "a-1")

    assert "the drain has not begun" in said
    assert XID_79 in said


def test_a_session_nobody_has_looked_at_yet() -> None:
    asked = QuarantineView(
        metadata=ObjectMeta(name="by-hand", creation_timestamp=ago(5)),
        spec=QuarantineSpec(
            node_name="a", causes=(Cause(message="smells burnt", by="ana@example.com"),)
        ),
    )
    said = page(state([node("a")], [asked]), "by-hand")

    assert "The remediator has not reconciled it yet." in said
    assert "asked by ana@example.com: smells burnt" in said
    assert "Pending for" in said


@pytest.mark.parametrize(
    "evidence",
    [
        pytest.param({"incidents": "text", "gpus": "text"}, id="no lists"),
        pytest.param({"incidents": [1, None, []], "gpus": [1, {}]}, id="no objects"),
        pytest.param({"incidents": [{"evidence": 5, "reason": ["x"]}]}, id="no texts"),
    ],
)
def test_evidence_of_any_shape_breaks_nothing(evidence: dict[str, Any]) -> None:
    assert "What you can do" in page(
        state([node("a")], [session("a-1", "a", evidence=evidence)]), "a-1"
    )


def test_hostile_text_in_every_place_stays_text() -> None:
    bad = "<script>alert(1)</script>"
    causes = (Cause(source="Detector", reason=bad, message=bad, severity=bad, by=bad),)
    of = state(
        [node("a")],
        [
            QuarantineView(
                metadata=ObjectMeta(name=bad, creation_timestamp=bad),
                spec=QuarantineSpec(node_name=bad, causes=causes, level=bad),
                status=session(
                    "x", "a", bad, mode=bad, phase_since=bad, message=bad, line=bad,
                    timeline=(TimelineEntry(at=bad, step=bad, message=bad, by=bad),),
                ).status,
            )
        ],
    )  # fmt: skip
    for said in (fleet_html(of), history_html(of), node_html(of, bad)):
        assert "<script>a" not in said
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in said


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        pytest.param("a\x1b[2Jb", "a\\x1b[2Jb", id="control character"),
        pytest.param("a\u202eb", "a\\u202eb", id="direction"),
        pytest.param("x" * 9000, "x" * 1999 + "…", id="length"),
        pytest.param('" onclick="x', "&#34; onclick=&#34;x", id="quote"),
    ],
)
def test_every_text_is_bounded_and_spelled_out(text: str, seen: str) -> None:
    of = state([node("a", rack=text)], [session("a-1", "a", message=text)])
    for said in (fleet_html(of), node_html(of, "a")):
        assert seen in said
        assert text not in said


@pytest.mark.parametrize(
    ("phase", "command"),
    [
        pytest.param("Quarantined", "kubectl gpuward release a --reason", id="open"),
        pytest.param("Released", "kubectl gpuward quarantine a --reason", id="ended"),
    ],
)
def test_the_page_says_what_a_person_can_do(phase: str, command: str) -> None:
    assert command in page(state([node("a")], [session("a-1", "a", phase)]), "a-1")


@pytest.mark.parametrize("name", ["fleet", "node", "history"])
def test_headings_and_landmarks_tell_the_page_to_a_screen_reader(name: str) -> None:
    of = blocked()
    pages = {"fleet": fleet_html(of), "node": node_html(of, "b"), "history": history_html(of)}
    said = pages[name]
    levels = [int(level) for level in re.findall(r"<h([1-4])[ >]", said)]

    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    for landmark in ("<main ", "<header ", "<nav aria-label", 'role="search"', "<footer>"):
        assert landmark in said
    named = set(re.findall(r' id="([^"]+)"', said))
    assert set(re.findall(r'aria-labelledby="([^"]+)"', said)) <= named
    assert len(re.findall(r' id="', said)) == len(named)


def test_a_reason_breaks_between_its_words_only() -> None:
    assert "Xid79<wbr>GPUFallen<wbr>Off<wbr>Bus" in fleet_html(blocked())


def test_the_ladder_shows_what_was_tried_and_what_is_next() -> None:
    steps = {step: {"adapter": "NodeConditions"} for step in ("ResetGPU", "RestartNode")}
    policy = load_policy({"mode": "Enforce", "repair": {"mode": "Auto", "steps": steps}})
    assert isinstance(policy, Policy)
    failed = RepairAttempt(
        step="ResetGPU",
        adapter="NodeConditions",
        state="Failed",
        started_at=ago(900),
        ended_at=ago(300),
        proof="not proven within 10 min: <b>no reset</b> was seen",
    )
    of = state(
        [sick("b", spec=MARKED, metadata=NOTE)],
        [session("b-1", "b", "Quarantined", repair=(failed,))],
        policy=policy,
    )
    ladder = session_of(of, "b-1").ladder
    assert [(rung.step, rung.state) for rung in ladder][:3] == [
        ("ResetGPU", "Failed"), ("RestartDriver", "Passed"), ("RestartNode", "Next"),
    ]  # fmt: skip
    said = page(of, "b-1")
    assert "&lt;b&gt;no reset&lt;/b&gt; was seen" in said
    assert "attempt 1 on this node" in said


def test_without_a_repair_there_is_no_ladder() -> None:
    assert session_of(blocked(), "b-1").ladder == ()
    assert "<h4>Repair</h4>" not in page(blocked(), "b-1")


def test_the_commands_fit_what_the_session_waits_for() -> None:
    proposed = Condition(type="RepairProposed", status="True", reason="RestartNode", message="It.")
    of = state([node("a")], [session("a-1", "a", "Quarantined", conditions=(proposed,))])
    said = page(of, "a-1")
    assert "kubectl gpuward repair a<" in said
    assert "let RestartNode go" in said
    held = page(state([node("a")], [session("a-1", "a", hold=True)]), "a-1")
    assert "kubectl gpuward unhold a<" in held
    assert "kubectl gpuward hold a " not in held
    assert "kubectl gpuward repair a<" not in held


def test_a_page_says_who_let_a_step_go_and_why() -> None:
    asked = RepairRequest(step="RestartNode", by="ann", reason="<b>vendor</b> on site")
    there = session("a-1", "a", "Quarantined")
    there = msgspec.structs.replace(there, spec=msgspec.structs.replace(there.spec, repair=asked))
    of = state([node("a")], [there])
    said = page(of, "a-1")
    assert "RestartNode: ann let it go, &lt;b&gt;vendor&lt;/b&gt; on site" in said
    assert "let it go" not in page(state([node("a")], [session("a-1", "a")]), "a-1")
    assert session_of(of, "a-1").repair_asked == asked
