"""How much the sweep over new nodes reads: pods only where something is to be learned of them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from remediator.upkeep.new_nodes import NewNodeTests
from rules.api.nodes import NodeView
from rules.api.pods import PodView
from rules.validate.jobs import ANNOTATION_NODE, ANNOTATION_OF, LABEL_JOB, JobView
from tests.support.remediator.some_edge import some_edge
from tests.support.remediator.virtual_clock import VirtualClock

MADE, TOLD = "2026-03-01T10:00:00Z", "2026-03-01T10:05:00Z"


class Listing:
    """An API server that knows Jobs and keeps what it was asked."""

    def __init__(self, jobs: list[JobView]) -> None:
        self.jobs = jobs
        self.asked: list[list[str]] = []

    async def items(self, path: str, kind: type, *, query: dict[str, str]) -> Any:
        if path.endswith("/jobs"):
            return SimpleNamespace(found=tuple(self.jobs))
        names = query["labelSelector"].partition("(")[2].rstrip(")").split(",")
        self.asked.append(names)
        pods = [{"metadata": {"name": name, "labels": {LABEL_JOB: name}}} for name in names]
        return SimpleNamespace(found=msgspec.convert(pods, tuple[PodView, ...]))


def job(index: int, *, over: bool) -> JobView:
    notes = {ANNOTATION_OF: f"u{index}", ANNOTATION_NODE: f"n{index}"}
    meta = {"name": f"j{index}", "annotations": notes, "creationTimestamp": MADE}
    conditions = [{"type": "Complete", "status": "True"}] if over else []
    return msgspec.convert({"metadata": meta, "status": {"conditions": conditions}}, JobView)


def node(index: int, *, told: bool) -> NodeView:
    said = {"type": "GPUValidated", "status": "True", "message": f"j{index}: ok"}
    said |= {"lastHeartbeatTime": TOLD}
    meta = {"name": f"n{index}", "uid": f"u{index}"}
    return msgspec.convert(
        {"metadata": meta, "status": {"conditions": [said] if told else []}}, NodeView
    )


@pytest.mark.parametrize(
    ("over", "told", "lists"),
    [(True, True, []), (True, False, [100, 100, 50]), (False, True, [100, 100, 50])],
    ids=["on the node", "not on the node", "goes on"],
)
def test_pods_are_read_in_chunks_and_only_of_jobs_that_are_not_known(
    over: bool, told: bool, lists: list[int]
) -> None:
    api = Listing([job(index, over=over) for index in range(250)])
    nodes = {f"n{index}": node(index, told=told) for index in range(250)}
    world = SimpleNamespace(snapshot=lambda: SimpleNamespace(own_namespace="gpuward", nodes=nodes))
    sweep = NewNodeTests(some_edge(VirtualClock(), api=api, world=world))
    jobs = asyncio.run(sweep._jobs())
    assert [len(names) for names in api.asked] == lists
    assert all([p.metadata.name for p in seen.pods] == [seen.name] for seen in jobs if lists)
    assert len(jobs) == 250
