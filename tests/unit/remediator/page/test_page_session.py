"""A session on the page of its node."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest

from remediator.view.state import PageState
from rules.api.metadata import ObjectMeta
from rules.api.nodes import QuarantineView
from rules.api.quarantine import (
    Cause,
    QuarantineSpec,
    TimelineEntry,
)
from tests.support.remediator.page_fleet import (
    ago,
    blocked_session,
    fleet_html,
    history_html,
    node,
    node_html,
    session,
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
