"""Keep GPURecords: the leader records the outcome of each fault, and deletes it after 90 days.

Listeners queue nodes that changed. A sweep compares them with `rules.fleet.record_changes` and
writes the differences. Nothing else depends on records: gpuward works without them and without
their CRD.
"""

from typing import Final

import structlog

from remediator.kube import resources
from remediator.kube.answer import ApiError, Result, Sent
from remediator.world import Edge, EdgePart
from rules.api import gpu_record, object_name, refusal
from rules.api.gpu_record import RecordView
from rules.api.names import ANNOTATION_REPAIRED
from rules.api.nodes import HealthView, NodeView, QuarantineView
from rules.api.writes import CreateRecord, DeleteObject, Write
from rules.fleet.record_changes import RecordChange, aged, record_changes, room_for_records

_LOG = structlog.get_logger()

_SWEEP_S: Final = 10.0
_NODES_PER_SWEEP: Final = 50
_AGED_PER_SWEEP: Final = 50
"""Records checked for expiry in one sweep: each record about once an hour."""
_COLLECTED_S: Final = 20.0
"""How long a changed node waits for its check, so that records do not slow down the drains of a
storm."""
_CHECK_AGAIN_S: Final = 60.0
"""Shortest interval between two checks of a node, so that a flapping fault is one entry."""
_FORBIDDEN_S: Final = 60.0
"""How long all records wait after a missing permission."""
_REFUSED_S: Final = 600.0
"""How long a node waits after one of its records was refused for its content."""
MOST_RECORDS: Final = 20_000
"""Upper limit of records: a hostile GPUNodeHealth may name any number of GPUs."""


class RecordKeeping(EdgePart):
    """The record keeper of one process; it writes on the leader only."""

    def __init__(self, edge: Edge, *, aged_per_sweep: int = _AGED_PER_SWEEP) -> None:
        super().__init__(edge)
        self._aged_per_sweep = aged_per_sweep
        self._due: dict[str, float] = {}
        """When each changed node may be checked (CLOCK_BOOTTIME)."""
        self._checked_at: dict[str, float] = {}
        self._round: list[str] = []
        self._forbidden_until = float("-inf")
        self._forbidden = False

    def node_changed(self, name: str) -> None:
        """Queue the node: its GPUNodeHealth or one of its sessions changed."""
        self._queue(name, self._clock.elapsed() + _COLLECTED_S)

    def _queue(self, name: str, at: float) -> None:
        again_at = self._checked_at.get(name, float("-inf")) + _CHECK_AGAIN_S
        self._due.setdefault(name, max(at, again_at))

    def repair_reported(self, before: NodeView | None, after: NodeView | None) -> None:
        """Queue the node if its `repaired` annotation changed."""
        if after is not None and before is not None and _repaired(before) != _repaired(after):
            self.node_changed(after.name)

    def took_over(self) -> None:
        """Check every node once: it may have changed while there was no leader."""
        for name in {*self._world.sessions, *self._world.healths}:
            self._queue(name, self._clock.elapsed())

    async def run(self) -> None:
        """Sweep until cancelled."""
        while True:
            await self._clock.sleep(_SWEEP_S)
            if self._may_act() and self._world.caches.records.synced:
                await self.sweep()

    async def sweep(self) -> None:
        """Update the records of nodes that are due, and expire old records."""
        now = self._clock.elapsed()
        if now < self._forbidden_until:
            return
        due = [name for name, at in self._due.items() if at <= now]
        for name in due[:_NODES_PER_SWEEP]:
            self._due.pop(name, None)
            self._checked_at[name] = now
            with self._isolation.guard("records", f"node {name}"):
                if await self._node(name):
                    continue
            self.node_changed(name)
        self._checked_at = {
            n: at for n, at in self._checked_at.items() if now - at < _CHECK_AGAIN_S
        }
        with self._isolation.guard("records", "records that grow old"):
            await self._aged()

    async def _node(self, name: str) -> bool:
        """Write the records of the node; return whether all are up to date."""
        world = self._world
        health = world.healths.get(name) or await self._read(name)
        sessions = world.sessions.get(name, [])
        records = world.caches.records.items
        node = world.caches.nodes.items.get(name)
        changes = record_changes(name, node, health, sessions, records, self._clock.now())
        opens = any(change.known is None for change in changes)
        room = room_for_records(name, records.values()) if opens else 0
        done = True
        for change in changes:
            if change.known is None and len(records) >= MOST_RECORDS:
                _LOG.warning("record keeping", node=name, why=f"{MOST_RECORDS} records are kept")
                continue
            # The limit is for GPU records only; each node has one record of its own.
            if change.known is None and change.status.scope == gpu_record.GPU_SCOPE:
                if room <= 0:
                    why = "so many GPUs have failed there that no further record is opened"
                    _LOG.warning("record keeping", node=name, record=change.name, why=why)
                    continue
                room -= 1
            done = await self._write(change) and done
        return done

    async def _read(self, name: str) -> HealthView | None:
        """The health status of a node that is well again; None where there is none."""
        if not object_name.is_object_name(name):
            return None
        try:
            return await self._api.get(object_name.api_path(resources.HEALTHS, name), HealthView)
        except ApiError as error:
            if error.answer.code != 404:
                raise
            return None

    async def _aged(self) -> None:
        items = self._world.caches.records.items
        self._round = self._round or list(items)
        most = self._aged_per_sweep
        names, self._round = self._round[:most], self._round[most:]
        records = [items[name] for name in names if name in items]
        for due in aged(records, self._clock.now()):
            if isinstance(due, DeleteObject):
                sent = await self._gateway.send(due)
                if sent.result is Result.GONE:
                    items.pop(due.name, None)
            else:
                await self._write(due)

    async def _write(self, change: RecordChange) -> bool:
        """Write the record; return whether it is up to date. The next check repeats a failure."""
        if self._clock.elapsed() < self._forbidden_until:
            return False
        write: Write = change.write()
        sent = await self._gateway.send(write)
        if sent.result is Result.REFUSED:
            return self._refused(change, sent)
        if not sent.done or sent.answer is None:
            return await self._catch_up(change.name)
        stored = sent.answer.decode(RecordView)
        if isinstance(write, CreateRecord):
            filled = await self._gateway.send(change.write(stored.metadata.resource_version))
            if filled.result is Result.REFUSED:
                return self._refused(change, filled)
            if not filled.done or filled.answer is None:
                return await self._catch_up(change.name)
            stored = filled.answer.decode(RecordView)
        self._world.caches.records.learn(stored)
        if self._forbidden:
            _LOG.warning("record keeping", why="GPURecords are written again")
        self._forbidden = False
        return True

    def _refused(self, change: RecordChange, sent: Sent) -> bool:
        """Delay all records after a missing permission, which is logged once; delay only the node
        after the API server or a webhook refused one record.
        """
        now = self._clock.elapsed()
        if sent.answer is not None and refusal.lacks_right(
            sent.answer.code, sent.answer.sentence()
        ):
            self._forbidden_until = now + _FORBIDDEN_S
            if not self._forbidden:
                why = f"no GPURecord is written ({sent.why}); preflight shows what is missing"
                _LOG.warning("record keeping", why=why)
            self._forbidden = True
            return False
        if change.node:
            self._due[change.node] = now + _REFUSED_S
        _LOG.warning("record keeping", record=change.name, why=sent.why)
        return False

    async def _catch_up(self, name: str) -> bool:
        """Read a record after a conflict or an unclear answer; always False: check again later."""
        try:
            self._world.caches.records.learn(
                await self._api.get(object_name.api_path(resources.RECORDS, name), RecordView)
            )
        except ApiError as error:
            if error.answer.code == 404:
                # Deleted: a cached copy would be written again and again.
                self._world.caches.records.items.pop(name, None)
            else:
                self._isolation.note("records", f"record {name}", error)
        return False


def _repaired(node: NodeView) -> str:
    return node.annotations.get(ANNOTATION_REPAIRED, "")


def session_nodes(before: QuarantineView | None, after: QuarantineView | None) -> set[str]:
    """The nodes of a changed session, if the change affects what records hold."""
    facts = [(_recorded_facts(one) if one is not None else None) for one in (before, after)]
    if facts[0] == facts[1]:
        return set()
    return {one.spec.node_name for one in (before, after) if one is not None}


def _recorded_facts(session: QuarantineView) -> tuple[object, ...]:
    status = session.status
    return session.spec.causes, session.spec.release, status.phase, status.mode, status.repair
