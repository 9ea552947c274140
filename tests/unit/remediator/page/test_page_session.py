"""A session on the page of its node."""

from typing import Any

import pytest
from msgspec.structs import replace

from remediator.view.state import PageState
from rules.api.metadata import ObjectMeta
from rules.api.nodes import QuarantineView
from rules.api.quarantine import Cause, QuarantineSpec, TimelineEntry
from tests.support.remediator.page_fleet import (
    ago,
    fleet_html,
    health_of,
    history_html,
    node,
    node_html,
    session,
    state,
)


def page(of: PageState, name: str) -> str:
    return node_html(of, of.snapshot.quarantines[name].spec.node_name)


def test_a_session_before_its_first_check() -> None:
    asked = QuarantineView(
        metadata=ObjectMeta(name="by-hand", creation_timestamp=ago(5)),
        spec=QuarantineSpec(
            node_name="a", causes=(Cause(message="smells burnt", by="ana@example.com"),)
        ),
    )
    html = page(state([node("a")], [asked]), "by-hand")

    assert "The remediator has not reconciled it yet." in html
    assert "asked by ana@example.com: smells burnt" in html
    assert "Pending for" in html


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


def test_an_active_incident_shows_the_readings_of_its_gpu() -> None:
    known = health_of("a")
    (active,) = known.status.incidents
    by_address = replace(active, gpus=(), pci=("0000:61:00",))
    gpus = tuple(replace(gpu, pci=f"0000:6{gpu.index}:00.0") for gpu in known.status.gpus)
    gpus = (*gpus[:1], replace(gpus[1], readings=gpus[3].readings), *gpus[2:])
    for incident, shown in (
        (active, "Readings of GPU 3"),
        (by_address, "Readings of GPU 1"),
        (replace(active, active=False), ""),
        (replace(active, gpus=()), ""),
    ):
        of = health_of("a", gpus=gpus, incidents=(incident,))
        html = node_html(state([node("a")], healths=[of]), "a")
        assert html.count("Readings of GPU") == bool(shown)
        assert shown in html


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
    for html in (fleet_html(of), history_html(of), node_html(of, bad)):
        assert "<script>a" not in html
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html


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
    for html in (fleet_html(of), node_html(of, "a")):
        assert seen in html
        assert text not in html
