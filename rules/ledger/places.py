"""Where the GPUs of a node were before and are now: so a machine that came back under another name
is found from either one. Pure.

Known is what health objects and records hold. Of a GPU that never failed there is no record, so a
machine whose GPUs were all sound leaves no trace that leads from one name to the other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from rules.api.nodes import HealthView
from rules.api.object_name import is_object_name
from rules.api.sentences import some
from rules.ledger.record import GPU_SCOPE, RecordStatus, RecordView


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """GPUs of one node that were in another before, or are there now."""

    node: str
    """The other node."""
    clause: str
    """`GPU GPU-1 was in gpu-7 before`, `2 of its GPUs are in gpu-7 now (GPU-1, GPU-2)`."""


def came_from(
    node: str, health: HealthView | None, records: Iterable[RecordView]
) -> tuple[Moved, ...]:
    """The nodes in which GPUs of this one were last before, by its health and their records."""
    there = {gpu.uuid for gpu in health.status.gpus if gpu.uuid} if health is not None else set()
    found: defaultdict[str, list[str]] = defaultdict(list)
    for record in _of_gpus(records):
        before = [place.node for place in record.places if place.node not in {"", node}]
        if record.uuid in there and before:
            found[before[-1]].append(record.uuid)
    return _moved(found, "was", "were", "before")


def went_to(
    node: str, healths: Iterable[HealthView], records: Iterable[RecordView]
) -> tuple[Moved, ...]:
    """The nodes in which the GPUs of a node that is gone are now, of those whose record names it:
    by the health objects at hand, else by their records.
    """
    known = list(_of_gpus(records))
    wanted = {one.uuid for one in known if any(place.node == node for place in one.places)}
    at = {one.uuid: one.node for one in known if one.uuid in wanted}
    at |= {g.uuid: h.metadata.name for h in healths for g in h.status.gpus if g.uuid in wanted}
    found: defaultdict[str, list[str]] = defaultdict(list)
    for uuid, where in at.items():
        if where not in {"", node}:
            found[where].append(uuid)
    return _moved(found, "is", "are", "now")


def _of_gpus(records: Iterable[RecordView]) -> Iterable[RecordStatus]:
    return (r.status for r in records if not r.doubt and r.status.scope == GPU_SCOPE)


def _moved(found: dict[str, list[str]], one: str, many: str, when: str) -> tuple[Moved, ...]:
    moved = []
    for node, uuids in sorted(found.items()):
        gpus = sorted(uuids)
        clause = f"GPU {gpus[0]} {one} in {node} {when}"
        if len(gpus) > 1:
            clause = f"{len(gpus)} of its GPUs {many} in {node} {when} ({some(gpus)})"
        if is_object_name(node):
            moved.append(Moved(node=node, clause=clause))
    return tuple(moved)
