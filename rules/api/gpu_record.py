"""GPURecord as it travels: what happened to one GPU, wherever it was plugged in, or to one node.

The remediator's leader writes `status` (`rules.fleet.record_update`). A GPU's record is named
after its UUID and not after its node: it outlives the Node, a re-image and a move to another slot.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Final

from rules.api.health import Wire, plain
from rules.api.metadata import DOUBT_FIELD, ObjectMeta, View
from rules.api.object_name import is_object_name, name_from
from rules.api.timestamps import parse_time

DAY_S: Final = 86_400.0
MAX_EVENTS: Final = 64
MAX_PLACES: Final = 8
MAX_SAID: Final = 8
MAX_STEPS: Final = 5
GPU_SCOPE: Final = "GPU"
NODE_SCOPE: Final = "Node"
_GPU_PREFIX: Final = "gpu-"
_NODE_PREFIX: Final = "node-"
_MOST_CHARS: Final = 120
"""No GPU's UUID comes near it; names of nodes may, and end in a hash then."""


class FaultOutcome(StrEnum):
    """What became of one fault."""

    ACTIVE = "Active"
    CLOSED = "Closed"
    """It ended without the node being taken out."""
    RELEASED = "Released"
    """The node came back after a session."""
    UNDONE = "Undone"
    """A person ended the session while the fault was still there: probably no fault."""
    NODE_GONE = "NodeGone"


class RecordPlace(Wire, frozen=True):
    """Where the GPU was plugged in."""

    node: str
    slot: str = ""
    since: str = ""


class RecordEvent(Wire, frozen=True):
    """One fault: when, what, what was done about it, and when it came back."""

    at: str
    last_at: str = ""
    times: int = 1
    node: str = ""
    reason: str = ""
    severity: str = ""
    driver: str = ""
    session: str = ""
    steps: tuple[str, ...] = ()
    ended_at: str = ""
    outcome: str = FaultOutcome.ACTIVE
    came_back_after: int | None = None


class RecordWord(Wire, frozen=True):
    """What a person said about it."""

    at: str
    word: str
    reason: str = ""


class RecordReplaced(Wire, frozen=True):
    """Another GPU came in its place: when and where, which, and during which repair step."""

    at: str
    node: str = ""
    slot: str = ""
    uuid: str = ""
    serial: str = ""
    session: str = ""
    step: str = ""

    @property
    def clause(self) -> str:
        """`replaced by serial 165 (GPU-...) in gpu-1 0000:3b:00.0 on 2026-11-23, during ...`."""
        by = f"serial {self.serial} ({self.uuid})" if self.serial else self.uuid
        where = " ".join(filter(None, (self.node, self.slot)))
        during = f", during {self.step}" if self.step else ""
        return f"replaced by {by} in {where} on {self.at[:10]}{during}"


class RecordCounters(Wire, frozen=True):
    """Over the whole life of the record, also of events that it no longer lists."""

    faults: int = 0


class RecordStatus(Wire, frozen=True):
    """`status` of a GPURecord."""

    scope: str = GPU_SCOPE
    uuid: str = ""
    serial: str = ""
    product: str = ""
    places: tuple[RecordPlace, ...] = ()
    events: tuple[RecordEvent, ...] = ()
    forgotten_until: str = ""
    counters: RecordCounters = RecordCounters()
    said: tuple[RecordWord, ...] = ()
    replaced: RecordReplaced | None = None
    message: str = ""

    @property
    def node(self) -> str:
        """Where it was seen last; "" where nobody knows."""
        return self.places[-1].node if self.places else ""

    @property
    def gone_for(self) -> RecordReplaced | None:
        """What came in its place, while it was not seen anywhere since."""
        seen = parse_time(self.places[-1].since) if self.places else None
        out = parse_time(self.replaced.at) if self.replaced is not None else None
        return self.replaced if out is not None and (seen or 0.0) <= out else None

    @property
    def called(self) -> str:
        """What a person calls it."""
        if self.scope != GPU_SCOPE:
            return f"node {self.node}"
        return self.uuid if self.uuid.startswith("GPU-") else f"GPU {self.uuid}"


class RecordView(View, frozen=True, kw_only=True):
    """A GPURecord."""

    metadata: ObjectMeta
    status: RecordStatus = RecordStatus()
    doubt: str = DOUBT_FIELD

    @property
    def name(self) -> str:
        """The object's name."""
        return self.metadata.name


def record_patch(status: RecordStatus) -> dict[str, Any]:
    """The whole status as a merge patch: what is empty is removed by null."""
    return {**dict.fromkeys(status.__struct_encode_fields__), **plain(status)}


def gpu_record_name(uuid: str) -> str:
    """The name of a GPU's record: `gpu-<uuid>` in lower case, a hash for what is no such name."""
    name = f"{_GPU_PREFIX}{uuid.lower().removeprefix(_GPU_PREFIX)}"
    if is_object_name(name) and len(name) <= _MOST_CHARS:
        return name
    return f"{_GPU_PREFIX}{_digest(uuid)}"


def node_record_name(node: str) -> str:
    """The name of a node's own record: cables, NICs, power supplies and slots belong to it."""
    name = f"{_NODE_PREFIX}{node}"
    if is_object_name(name) and len(name) <= _MOST_CHARS:
        return name
    return name_from(name, f"-{_digest(node)[:8]}", _MOST_CHARS)


def record_names(node: str, uuids: Iterable[str]) -> list[str]:
    """The records that may say something about a node with these GPUs."""
    return [node_record_name(node), *(gpu_record_name(uuid) for uuid in uuids if uuid)]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:32]
