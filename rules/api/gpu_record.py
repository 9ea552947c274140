"""GPURecord as it travels: what happened to one GPU, wherever it was plugged in, or to one node.

The remediator's leader writes `status` (`rules.fleet.record_update`). A GPU's record is named
after its UUID and not after its node: it outlives the Node, a re-image and a move to another slot.
A repeat offender (Meta's paper calls such a node a repeat offender) is never a cause: nothing is
taken out of service for it. The record, the page and `kubectl gpuward why` show it.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Final

from rules.api import health, object_name, timestamps
from rules.api.health import Wire
from rules.api.metadata import DOUBT_FIELD, ObjectMeta, View

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
    """An operator ended the session while the fault was still there: probably no fault."""
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
    """What an operator said about it."""

    at: str
    word: str
    reason: str = ""


class RecordCounters(Wire, frozen=True):
    """Over the entire life of the record, also of events that it no longer lists."""

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
    message: str = ""

    @property
    def node(self) -> str:
        """Where it was seen last; "" where nobody knows."""
        return self.places[-1].node if self.places else ""

    @property
    def called(self) -> str:
        """What an operator calls it."""
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
    """The entire status as a merge patch: what is empty is removed by null."""
    return {**dict.fromkeys(status.__struct_encode_fields__), **health.plain(status)}


def gpu_record_name(uuid: str) -> str:
    """The name of a GPU's record: `gpu-<uuid>` in lower case, a hash for what is no such name."""
    name = f"{_GPU_PREFIX}{uuid.lower().removeprefix(_GPU_PREFIX)}"
    if object_name.is_object_name(name) and len(name) <= _MOST_CHARS:
        return name
    return f"{_GPU_PREFIX}{_digest(uuid)}"


def node_record_name(node: str) -> str:
    """The name of a node's own record: cables, NICs, power supplies and slots belong to it."""
    name = f"{_NODE_PREFIX}{node}"
    if object_name.is_object_name(name) and len(name) <= _MOST_CHARS:
        return name
    return object_name.name_from(name, f"-{_digest(node)[:8]}", _MOST_CHARS)


def record_names(node: str, uuids: Iterable[str]) -> list[str]:
    """The records that may say something about a node with these GPUs."""
    return [node_record_name(node), *(gpu_record_name(uuid) for uuid in uuids if uuid)]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:32]


REPEAT_FAULTS: Final = 5
REPEAT_DAYS: Final = 90
"""So many faults in so many days make a repeat offender. In the trace of 400 eight-GPU servers
(SIGCOMM 2025, InfiniteHBD) 30 % of the faults come back within a week, so a shorter series is one
bad repair; a record is kept for 90 days."""
WEEK_S: Final = 7 * DAY_S
FATAL: Final = "Fatal"
REPAIRED: Final = "repaired"


def counted(status: RecordStatus) -> list[RecordEvent]:
    """The events that count: Fatal ones and those with a session; not what an operator undid, nor
    what was before an operator said that it was repaired, unless the same fault came back within a
    week. What was only reported does not count: heat would.
    """
    since = max(
        (
            timestamps.parse_time(said.at) or 0.0
            for said in status.said
            if not in_vain(said, status)
        ),
        default=0.0,
    )
    return [
        event
        for event in status.events
        if event.outcome != FaultOutcome.UNDONE
        and (event.severity == FATAL or event.session)
        and (at := timestamps.parse_time(event.last_at or event.at)) is not None
        and at > since
    ]


def in_vain(said: RecordWord, status: RecordStatus) -> bool:
    """Whether an operator said that it was repaired and the same fault was back within a week, of
    this very part: another one has another record.
    """
    word = timestamps.parse_time(said.at)
    if said.word != REPAIRED or word is None:
        return False
    seen = {
        (event.reason, at)
        for event in status.events
        if event.outcome != FaultOutcome.UNDONE
        for text in (event.at, event.last_at)
        if (at := timestamps.parse_time(text)) is not None
    }
    before = {reason for reason, at in seen if at <= word}
    return any(reason in before and 0 < at - word <= WEEK_S for reason, at in seen)


def is_repeat_offender(status: RecordStatus, now: float) -> bool:
    """Whether it had `REPEAT_FAULTS` faults in `REPEAT_DAYS`."""
    return _is_repeated(_within(counted(status), REPEAT_DAYS, now))


def faults_said(status: RecordStatus, now: float) -> str:
    """`GPU-1: repeat offender: 6 faults in 90 days (GPULost), back within a week after 2.`"""
    recent = _within(counted(status), REPEAT_DAYS, now)
    if not recent:
        return f"{status.called}: no fault in {REPEAT_DAYS} days counts against it."[:1024]
    reasons = [reason for reason, _ in Counter(event.reason for event in recent).most_common(3)]
    faults, back = _faults(recent), sum(map(_returned, recent))
    returned = f", back within a week after {back} of them" if back else ""
    repeat = "repeat offender: " if _is_repeated(recent) else ""
    return (
        f"{status.called}: {repeat}{faults} {'fault' if faults == 1 else 'faults'} "
        f"in {REPEAT_DAYS} days ({', '.join(reasons)}){returned}."
    )[:1024]


def _within(events: Iterable[RecordEvent], days: float, now: float) -> list[RecordEvent]:
    return [
        event for event in events if now - (timestamps.parse_time(event.at) or 0.0) <= days * DAY_S
    ]


def _is_repeated(events: Iterable[RecordEvent]) -> bool:
    return _faults(events) >= REPEAT_FAULTS


def _faults(events: Iterable[RecordEvent]) -> int:
    """How many faults they are: what one session found at once is one."""
    return len({event.session or event.at for event in events})


def _returned(event: RecordEvent) -> bool:
    return event.came_back_after is not None and event.came_back_after <= WEEK_S
