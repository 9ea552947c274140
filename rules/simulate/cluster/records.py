"""GPURecords of the simulated cluster, kept by the rules that the leader keeps them by.

It looks at a node whose verdict or sessions changed, at most once a minute, and once a day at what
time does to records. Nothing else is done than `remediator.upkeep.records` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from rules.api.metadata import ObjectMeta
from rules.api.nodes import HealthView, QuarantineView
from rules.api.timestamps import format_time
from rules.api.writes import DeleteRecord
from rules.fleet.happenings import RecordChange, aged, record_changes
from rules.ledger.record import RecordView, record_patch
from rules.simulate.cluster.clockwork import Clockwork
from rules.simulate.cluster.sim_node import SimNode

_LOOK_AGAIN_S: Final = 60.0
_AGED_S: Final = 86_400.0


class SimRecords:
    """Every record there is, and what keeping them took."""

    def __init__(
        self,
        clock: Clockwork,
        healths: Mapping[str, HealthView],
        sessions: Callable[[str], Iterable[QuarantineView]],
    ) -> None:
        """`sessions`: those of a node, open and ended."""
        self._clock = clock
        self._healths = healths
        self._sessions = sessions
        self._due: set[str] = set()
        self.objects: dict[str, RecordView] = {}
        self.lemons: dict[str, float] = {}
        """When a record of each node was first called a lemon."""
        self.writes = 0
        self.most = 0
        """Records at once, at the most."""
        self.largest = 0
        """Bytes of the largest status written."""
        clock.after(_AGED_S, self._age)

    def changed(self, node: SimNode) -> None:
        """Its verdict or one of its sessions is another."""
        if node.name not in self._due:
            self._due.add(node.name)
            self._clock.after(_LOOK_AGAIN_S, lambda: self._look(node))

    def _look(self, node: SimNode) -> None:
        self._due.discard(node.name)
        found = record_changes(
            node.name,
            node.view,
            self._healths.get(node.name),
            self._sessions(node.name),
            self.objects,
            self._clock.now,
        )
        for change in found:
            self._put(change)

    def _age(self) -> None:
        for due in aged(list(self.objects.values()), self._clock.now):
            if isinstance(due, DeleteRecord):
                self.writes += 1
                del self.objects[due.name]
            else:
                self._put(due)
        self._clock.after(_AGED_S, self._age)

    def _put(self, change: RecordChange) -> None:
        """A new record is made first and filled then."""
        now, known = self._clock.now, change.known
        self.writes += 1 if known is not None else 2
        meta = (
            known.metadata
            if known is not None
            else ObjectMeta(
                name=change.name, resource_version="1", creation_timestamp=format_time(now)
            )
        )
        self.objects[change.name] = RecordView(metadata=meta, status=change.status)
        self.most = max(self.most, len(self.objects))
        size = len(msgspec.json.encode(record_patch(change.status)))
        self.largest = max(self.largest, size)
        if change.status.lemon:
            self.lemons.setdefault(change.node, now)
