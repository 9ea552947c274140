"""A node's page."""

from __future__ import annotations

import pytest

from remediator.page.rendering import aligned
from remediator.view.node_view import node_page
from rules.api.health import GpuStatus, IncidentStatus, PublisherPod, Topology
from rules.api.nodes import ObjectMeta, PauseView
from rules.api.quarantine import PauseScope, PauseSpec
from tests.support.remediator.page_fleet import (
    XID_79,
    ago,
    node,
    node_html,
    node_of,
    session,
    sick,
    state,
    verdict,
)


def test_gpus_incidents_and_evidence_of_a_sick_node() -> None:
    said = node_html(state([sick("b")], [session("b-1", "b")], [verdict("b")]), "b")

    assert "GPU 3 fell off the bus." in said
    assert said.count('scope="row"') >= 8
    assert "GPU-b-3" in said
    assert "S3" in said
    assert f"<code>{XID_79}</code>" in said
    assert 'id="session-b-1"' in said


def test_a_healthy_node_shows_the_verdict_that_was_read() -> None:
    read = verdict("a", health="Healthy", message="All checks pass.", incidents=())
    of = state([node("a")], read={"a": read})

    assert node_of(of, "a").verdict == "read"
    assert "All checks pass." in node_html(of, "a")


def test_of_usable_gpus_it_says_how_many_are_degraded() -> None:
    gpus = tuple(
        GpuStatus(uuid=f"GPU-{n}", health="Healthy" if n else "Degraded") for n in range(8)
    )
    read = verdict("a", health="Degraded", gpus=gpus)
    of = state([node("a", labels={"gpuward.io/health": "degraded"})], read={"a": read})
    assert "<dt>Usable GPUs</dt><dd>8 of 8, 1 of them degraded</dd>" in node_html(of, "a")


def test_without_a_verdict_the_page_says_so() -> None:
    of = state([node("a")])

    assert node_of(of, "a").verdict == "none"
    assert "No health status is at hand" in node_html(of, "a")
    assert "never been quarantined" in node_html(of, "a")


@pytest.mark.parametrize("silent_since", ["", ago(420)])
def test_old_words_of_a_silent_agent_are_not_told_as_new(silent_since: str) -> None:
    """The node counts as unknown, and its last verdict says that all is well."""
    read = verdict("a", health="Healthy", message="All checks pass.", incidents=(),
                   node_uid="uid-a", publisher=PublisherPod(pod="p/a", pod_uid="gone"),
                   silent_since=silent_since)  # fmt: skip
    of = state([node("a", labels={"gpuward.io/health": "unknown"})], read={"a": read})
    said = node_html(of, "a")
    told = "the agent&#39;s pod is gone. Last reported: All checks pass."
    assert f"Its health is unknown: {told}" in said
    assert "8 of 8 when last seen" in said
    assert "As they were when last seen." in said
    assert ("<dt>Silent</dt>" in said) is bool(silent_since)
    assert node_of(of, "a").stale == "the agent's pod is gone"


def test_what_people_wrote_on_it() -> None:
    held = node(
        "a",
        labels={"gpuward.io/opt-out": "true"},
        metadata={"annotations": {"gpuward.io/hold": "waiting for <parts>"}},
    )
    pauses = [
        PauseView(
            metadata=ObjectMeta(name="mine"),
            spec=PauseSpec(scope=PauseScope(nodes=("a",)), by="ana", reason="lab"),
        ),
        PauseView(
            metadata=ObjectMeta(name="other"),
            spec=PauseSpec(scope=PauseScope(nodes=("z",)), reason="elsewhere"),
        ),
    ]

    assert node_of(state([held], (), (), pauses), "a").notes == (
        "Held: waiting for <parts>",
        "Opted out: this node is watched and reported, never touched.",
        "Paused by ana (mine, a): lab",
    )


def test_a_label_that_opts_nothing_out_is_said_beside_the_node() -> None:
    meant = node("a", labels={"gpuward.io/opt-out": "yes"})
    (note,) = node_of(state([meant], (), (), ()), "a").notes
    assert note.startswith("The label gpuward.io/opt-out=yes opts nothing out")


def test_closed_incidents_stand_after_the_active_ones() -> None:
    incidents = (
        IncidentStatus(id="2", reason="Closed1", closed_at=ago(50), closed_by="Reboot"),
        IncidentStatus(id="1", reason="Active1", active=True),
    )
    said = node_html(state([sick("b")], (), [verdict("b", incidents=incidents)]), "b")

    assert said.index("Active1") < said.index("Recently closed") < said.index("Closed1")


def test_sessions_come_newest_first() -> None:
    of = state(
        [node("a")],
        [session("a-1", "a", "Released", opened_s=900), session("a-2", "a", opened_s=9)],
    )

    assert [one.session.name for one in node_of(of, "a").sessions] == ["a-2", "a-1"]


def test_the_link_matrix_keeps_its_columns() -> None:
    links = "\tGPU0\tGPU1\nGPU0\tX\tNV18\nGPU1\tNV18\tX"

    assert aligned(links) == ["      GPU0  GPU1", "GPU0  X     NV18", "GPU1  NV18  X"]
    of = state([sick("b")], (), [verdict("b", topology=Topology(links=links))])
    assert "<code>GPU0  X     NV18</code>" in node_html(of, "b")


def test_a_node_that_is_not_there() -> None:
    assert node_page("nope", state([node("a")])) is None
