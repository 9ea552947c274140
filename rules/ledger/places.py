"""Where the GPUs of a node were before and are now: so a machine that came back under another name
is found from either one. Pure.

Known is what a verdict and a record say: of a GPU that never failed there is no record, so a
machine whose GPUs were all sound leaves no trace that could lead from one name to the other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from rules.api.nodes import HealthView
from rules.api.object_name import is_object_name
from rules.api.sentences import some
from rules.ledger.record import GPU_SCOPE, RecordView


@dataclass(frozen=True, slots=True)
class Moved:
    """GPUs of one node that are, or were, in another."""

    node: str
    """The other one."""
    gpus: tuple[str, ...]
    before: bool
    """They were there before; else they are there now."""

    @property
    def clause(self) -> str:
        """What a person is told."""
        one = len(self.gpus) == 1
        who = f"GPU {self.gpus[0]}" if one else f"{len(self.gpus)} of its GPUs"
        is_ = ("was" if one else "were") if self.before else ("is" if one else "are")
        named = "" if one else f" ({some(self.gpus)})"
        return f"{who} {is_} in {self.node} {'before' if self.before else 'now'}{named}"


def came_from(
    node: str, health: HealthView | None, records: Iterable[RecordView]
) -> tuple[Moved, ...]:
    """The nodes in which GPUs of this one were last before, by its verdict and their records."""
    there = {gpu.uuid for gpu in health.status.gpus if gpu.uuid} if health is not None else set()
    found: defaultdict[str, list[str]] = defaultdict(list)
    for record in records:
        status = record.status
        if record.doubt or status.scope != GPU_SCOPE or status.uuid not in there:
            continue
        before = [place.node for place in status.places if place.node not in {"", node}]
        if before:
            found[before[-1]].append(status.uuid)
    return _moved(found, before=True)


def went_to(
    node: str, healths: Iterable[HealthView], records: Iterable[RecordView]
) -> tuple[Moved, ...]:
    """The nodes in which the GPUs of a node that is gone are now, those whose record names it; by
    the verdicts at hand, else by their records.
    """
    at: dict[str, str] = {}
    wanted = set()
    for record in records:
        status = record.status
        if record.doubt or status.scope != GPU_SCOPE:
            continue
        if any(place.node == node for place in status.places):
            wanted.add(status.uuid)
        at[status.uuid] = status.node
    for health in healths:
        for gpu in health.status.gpus:
            if gpu.uuid in wanted:
                at[gpu.uuid] = health.metadata.name
    found: defaultdict[str, list[str]] = defaultdict(list)
    for uuid in sorted(wanted):
        if at.get(uuid, "") not in {"", node}:
            found[at[uuid]].append(uuid)
    return _moved(found, before=False)


def _moved(found: dict[str, list[str]], *, before: bool) -> tuple[Moved, ...]:
    return tuple(
        Moved(node, tuple(sorted(gpus)), before)
        for node, gpus in sorted(found.items())
        if is_object_name(node)
    )
