"""One look at one fact: what is remembered, when it is, and the thresholds in force.

Made by `judge.judge` for each observation and handed on from judge to judge, each of which answers
with the same look and what it changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
from msgspec import structs

from rules.catalog.thresholds import Thresholds
from rules.judge.gauge import Memory
from rules.judge.incident import Incident, Named, closed, without_gpu
from rules.judge.state import GpuView, NodeState, with_gpu


class Judging(msgspec.Struct, frozen=True):
    """The state so far, the time of judgement (wall seconds) and the numbers it rests on."""

    state: NodeState
    now: float
    thresholds: Thresholds

    def then(self, state: NodeState) -> Judging:
        """The same look after a change."""
        return Judging(state, self.now, self.thresholds)

    def with_gpu(self, view: GpuView) -> Judging:
        """The same look with another view of one GPU."""
        return self.then(with_gpu(self.state, view))

    def current(self, view: GpuView) -> GpuView:
        """The view of the same GPU as it is by now."""
        return self.state.gpus.get(view.seen.uuid or view.pci, view)

    def remember(
        self, reason: str, memory: Mapping[str, Memory], view: GpuView | None = None
    ) -> Judging:
        """The same look with what a check remembers, of a GPU or of the node."""
        old = self.state.checks if view is None else view.checks
        others = {key: kept for key, kept in old.items() if key[0] != reason}
        checks = {**others, **{(reason, what): kept for what, kept in memory.items()}}
        if view is None:
            return self.then(structs.replace(self.state, checks=checks))
        return self.with_gpu(structs.replace(view, checks=checks))


def close_where(on: Judging, wanted: Callable[[Incident], bool], by: str) -> Judging:
    """Close every active incident that `wanted` picks."""
    if not any(incident.active and wanted(incident) for incident in on.state.incidents):
        return on
    incidents = tuple(
        closed(incident, on.now, by) if incident.active and wanted(incident) else incident
        for incident in on.state.incidents
    )
    return on.then(structs.replace(on.state, incidents=incidents))


def close_for(
    on: Judging,
    who: Named,
    wanted: Callable[[Incident], bool],
    by: str,
    at: float | None = None,
) -> Judging:
    """Close what `wanted` picks for one GPU: an incident that others share goes on without it."""

    def leave(incident: Incident) -> Incident:
        if not incident.active or not incident.concerns(who) or not wanted(incident):
            return incident
        return without_gpu(incident, who) or closed(incident, on.now if at is None else at, by)

    incidents = tuple(map(leave, on.state.incidents))
    same = all(new is old for new, old in zip(incidents, on.state.incidents, strict=True))
    return on if same else on.then(structs.replace(on.state, incidents=incidents))
