"""A machine that came back under another name is found from either one, where records say so."""

from __future__ import annotations

from rules.api.gpu_record import RecordPlace, RecordStatus, RecordView, came_from, went_to
from rules.api.health import GpuStatus, HealthStatus
from rules.api.metadata import ObjectMeta, TimedMeta
from rules.api.nodes import HealthView


def record(uuid: str, *nodes: str, doubt: str = "") -> RecordView:
    places = tuple(RecordPlace(node=node) for node in nodes)
    status = RecordStatus(uuid=uuid, places=places)
    return RecordView(metadata=ObjectMeta(name=uuid.lower()), status=status, doubt=doubt)


def verdict(node: str, *gpus: str) -> HealthView:
    status = HealthStatus(gpus=tuple(GpuStatus(uuid=uuid) for uuid in gpus))
    return HealthView(metadata=TimedMeta(name=node), status=status)


NEW = verdict("new", "GPU-1", "GPU-2", "GPU-3")


def test_a_node_names_the_one_in_which_its_gpus_were_before() -> None:
    kept = [record("GPU-1", "old"), record("GPU-2", "old", "new"), record("GPU-9", "old")]
    (moved,) = came_from("new", NEW, kept)
    assert moved.node == "old"
    assert moved.clause == "2 of its GPUs were in old before (GPU-1, GPU-2)"
    assert came_from("old", None, kept) == ()
    assert came_from("new", NEW, [record("GPU-1", "new")]) == ()


def test_a_node_that_is_gone_names_the_one_in_which_its_gpus_are_now() -> None:
    kept = [record("GPU-1", "old"), record("GPU-8", "old", "third"), record("GPU-9", "old")]
    moved = went_to("old", [NEW], kept)
    assert [(one.node, one.clause) for one in moved] == [
        ("new", "GPU GPU-1 is in new now"),
        ("third", "GPU GPU-8 is in third now"),
    ]
    assert went_to("old", [verdict("old", "GPU-1")], kept[:1]) == ()


def test_what_cannot_be_read_or_named_leads_nowhere() -> None:
    assert came_from("new", NEW, [record("GPU-1", "old", doubt="x")]) == ()
    assert came_from("new", NEW, [record("GPU-1", "no\nname")]) == ()
    assert went_to("old", [verdict("$(x)", "GPU-1")], [record("GPU-1", "old")]) == ()
