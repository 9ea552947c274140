"""A node's page."""

from __future__ import annotations

import pytest

from remediator.page.answers import NotThereError, api_node, document_of
from remediator.page.markup import render
from remediator.page.node_page import aligned
from remediator.view.state import PageState
from rules.api.health import GpuStatus, IncidentStatus, PublisherPod, Topology
from rules.api.nodes import ObjectMeta, PauseView
from rules.api.quarantine import PauseScope, PauseSpec
from tests.support.remediator.page_fleet import XID_79, ago, node, session, sick, state, verdict


def page(of: PageState, name: str) -> str:
    return render(document_of(of, f"/nodes/{name}", {}))


def test_gpus_incidents_and_evidence_of_a_sick_node() -> None:
    said = page(state([sick("b")], [session("b-1", "b")], [verdict("b")]), "b")

    assert "GPU 3 fell off the bus." in said
    assert said.count('scope="row"') >= 8
    assert "GPU-b-3" in said
    assert "S3" in said
    assert f"<code>{XID_79}</code>" in said
    assert 'href="/sessions/b-1"' in said


def test_a_healthy_node_shows_the_verdict_that_was_read() -> None:
    read = verdict("a", health="Healthy", message="All checks pass.", incidents=())
    of = state([node("a")], read={"a": read})

    assert api_node(of, "a").verdict == "read"
    assert "All checks pass." in page(of, "a")


def test_of_usable_gpus_it_says_how_many_are_degraded() -> None:
    gpus = tuple(
        GpuStatus(uuid=f"GPU-{n}", health="Healthy" if n else "Degraded") for n in range(8)
    )
    read = verdict("a", health="Degraded", gpus=gpus)
    of = state([node("a", labels={"gpuward.io/health": "degraded"})], read={"a": read})
    assert "<dt>Usable GPUs</dt><dd>8 of 8, 1 of them degraded</dd>" in page(of, "a")


def test_without_a_verdict_the_page_says_so() -> None:
    of = state([node("a")])

    assert api_node(of, "a").verdict == "none"
    assert "No verdict is at hand" in page(of, "a")
    assert "never been in quarantine" in page(of, "a")


@pytest.mark.parametrize("silent_since", ["", ago(420)])
def test_old_words_of_a_silent_agent_are_not_told_as_new(silent_since: str) -> None:
    """The node counts as unknown, and its last verdict says that all is well."""
    read = verdict("a", health="Healthy", message="All checks pass.", incidents=(),
                   node_uid="uid-a", publisher=PublisherPod(pod="p/a", pod_uid="gone"),
                   silent_since=silent_since)  # fmt: skip
    of = state([node("a", labels={"gpuward.io/health": "unknown"})], read={"a": read})
    said = page(of, "a")
    told = "the agent's pod is gone. Its last word was: All checks pass."
    assert f"Nobody knows how its GPUs are now: {told}" in said
    assert "8 of 8 when last seen" in said
    assert "As they were when last seen." in said
    assert ("<dt>Silent</dt>" in said) is bool(silent_since)
    assert api_node(of, "a").stale == "the agent's pod is gone"


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

    assert api_node(state([held], (), (), pauses), "a").notes == (
        "Held: waiting for <parts>",
        "Opted out: this node is watched and reported, never touched.",
        "Paused by ana (mine, a): lab",
    )


def test_walk1_16_a_label_that_opts_nothing_out_is_said_beside_the_node() -> None:
    meant = node("a", labels={"gpuward.io/opt-out": "yes"})
    (note,) = api_node(state([meant], (), (), ()), "a").notes
    assert note.startswith("The label gpuward.io/opt-out=yes opts nothing out")


def test_closed_incidents_stand_after_the_active_ones() -> None:
    incidents = (
        IncidentStatus(id="2", reason="Closed1", closed_at=ago(50), closed_by="Reboot"),
        IncidentStatus(id="1", reason="Active1", active=True),
    )
    said = page(state([sick("b")], (), [verdict("b", incidents=incidents)]), "b")

    assert said.index("Active1") < said.index("Recently closed") < said.index("Closed1")


def test_sessions_come_newest_first() -> None:
    of = state(
        [node("a")],
        [session("a-1", "a", "Released", opened_s=900), session("a-2", "a", opened_s=9)],
    )

    assert [row.name for row in api_node(of, "a").sessions] == ["a-2", "a-1"]


def test_the_link_matrix_keeps_its_columns() -> None:
    links = "\tGPU0\tGPU1\nGPU0\tX\tNV18\nGPU1\tNV18\tX"

    assert aligned(links) == ["      GPU0  GPU1", "GPU0  X     NV18", "GPU1  NV18  X"]
    of = state([sick("b")], (), [verdict("b", topology=Topology(links=links))])
    assert "<code>GPU0  X     NV18</code>" in page(of, "b")


def test_a_node_that_is_not_there() -> None:
    with pytest.raises(NotThereError, match="No GPU node nope"):
        api_node(state([node("a")]), "nope")
