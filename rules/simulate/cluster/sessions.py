"""GPUQuarantine objects as the simulated API server keeps them."""

from __future__ import annotations

from collections import defaultdict

import msgspec

from rules.api.metadata import ObjectMeta
from rules.api.nodes import QuarantineView
from rules.api.quarantine import QuarantineStatus
from rules.api.requests import request
from rules.api.timestamps import format_time
from rules.api.writes import CreateSession, PatchSessionSpec
from rules.session.observation import is_open, sessions_by_node


class Sessions:
    """All sessions, open and ended, by name."""

    def __init__(self) -> None:
        self.objects: dict[str, QuarantineView] = {}
        self._by_node: defaultdict[str, dict[str, QuarantineView]] = defaultdict(dict)
        self._serial = 0

    def create(self, write: CreateSession, now: float) -> None:
        """POST."""
        if write.name in self.objects:
            raise RuntimeError(f"session {write.name} is there already")
        self._serial += 1
        meta = ObjectMeta(
            name=write.name,
            uid=f"gq-{self._serial}",
            resource_version=str(self._serial),
            creation_timestamp=format_time(now),
        )
        self._keep(QuarantineView(metadata=meta, spec=write.spec))

    def patch(self, write: PatchSessionSpec) -> None:
        """PATCH of the spec."""
        session = self.objects[write.name]
        body = request(write).body or {}
        stored = {**msgspec.to_builtins(session.spec), **body["spec"]}
        spec = msgspec.convert(stored, type(session.spec))
        self.put(msgspec.structs.replace(session, spec=spec))

    def put(self, session: QuarantineView) -> None:
        """The object as it is now, under another version."""
        self._serial += 1
        meta = msgspec.structs.replace(session.metadata, resource_version=str(self._serial))
        self._keep(msgspec.structs.replace(session, metadata=meta))

    def delete(self, name: str) -> None:
        """DELETE."""
        session = self.objects.pop(name)
        del self._by_node[session.spec.node_name][name]

    def _keep(self, session: QuarantineView) -> None:
        self.objects[session.name] = session
        self._by_node[session.spec.node_name][session.name] = session

    def on(self, node: str) -> dict[str, QuarantineView]:
        """Those of one node."""
        return self._by_node[node]

    def open_on(self, node: str) -> list[QuarantineView]:
        """Those of one node that have not ended, oldest first."""
        return [s for s in sessions_by_node(self.on(node)).get(node, ()) if is_open(s)]


def as_stored(status: QuarantineStatus) -> QuarantineStatus:
    """A merge patch removes what is null."""
    evidence = {key: value for key, value in status.evidence.items() if value is not None}
    return msgspec.structs.replace(status, evidence=evidence)
