"""GPURecord: the fault history of one GPU, in any slot, or of one node.

The remediator's leader writes `status` (`rules.fleet.record_update`). A GPU's record is named
after its UUID, so it outlives the Node, a re-image and a move to another slot. A repeat offender
is a GPU or node with many faults. It is reported by the record, the page and
`kubectl gpuward why`, but is never a cause for a quarantine.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Final

import msgspec

from rules.api import health, object_name, timestamps
from rules.api.health import Wire
from rules.api.metadata import DOUBT_FIELD, ObjectMeta, View

DAY_S: Final = 86_400.0
MAX_EVENTS: Final = 64
MAX_PLACES: Final = 8
MAX_ACTIONS: Final = 8
MAX_STEPS: Final = 5
GPU_SCOPE: Final = "GPU"
NODE_SCOPE: Final = "Node"
_GPU_PREFIX: Final = "gpu-"
_NODE_PREFIX: Final = "node-"
_MOST_CHARS: Final = 120
"""The longest name. A longer node name ends in a hash."""


class FaultOutcome(StrEnum):
    """The outcome of one fault."""

    ACTIVE = "Active"
    CLOSED = "Closed"
    """It closed without a quarantine."""
    RELEASED = "Released"
    """The session ended and the node is in service."""
    UNDONE = "Undone"
    """An operator ended the session while the fault was active: probably a false alarm."""
    NODE_GONE = "NodeGone"


class RecordPlace(Wire, frozen=True):
    """Where the GPU was plugged in."""

    node: str
    slot: str = ""
    since: str = ""


class RecordEvent(Wire, frozen=True):
    """One fault, its repair steps, and after how many seconds it returned."""

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


class OperatorAction(Wire, frozen=True):
    """What an operator recorded about the GPU or node."""

    at: str
    action: str = msgspec.field(name="word")
    reason: str = ""


class RecordCounters(Wire, frozen=True):
    """Totals that include events which the record no longer lists."""

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
    actions: tuple[OperatorAction, ...] = msgspec.field(name="said", default=())
    message: str = ""

    @property
    def node(self) -> str:
        """The last known node; "" if unknown."""
        return self.places[-1].node if self.places else ""

    @property
    def called(self) -> str:
        """Its name in messages."""
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
    """Return the status as a merge patch with null for empty fields."""
    return {**dict.fromkeys(status.__struct_encode_fields__), **health.plain(status)}


def gpu_record_name(uuid: str) -> str:
    """Return the name of a GPU's record: `gpu-<uuid>` in lower case, or a hash if invalid."""
    name = f"{_GPU_PREFIX}{uuid.lower().removeprefix(_GPU_PREFIX)}"
    if object_name.is_object_name(name) and len(name) <= _MOST_CHARS:
        return name
    return f"{_GPU_PREFIX}{_digest(uuid)}"


def node_record_name(node: str) -> str:
    """Return the name of a node's record, for cables, NICs, power supplies and slots."""
    name = f"{_NODE_PREFIX}{node}"
    if object_name.is_object_name(name) and len(name) <= _MOST_CHARS:
        return name
    return object_name.name_from(name, f"-{_digest(node)[:8]}", _MOST_CHARS)


def record_names(node: str, uuids: Iterable[str]) -> list[str]:
    """Return the names of the records of a node with these GPUs."""
    return [node_record_name(node), *(gpu_record_name(uuid) for uuid in uuids if uuid)]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:32]


REPEAT_FAULTS: Final = 5
REPEAT_DAYS: Final = 90
"""This many faults in this many days make a repeat offender. In the trace of 400 eight-GPU servers
(SIGCOMM 2025, InfiniteHBD) 30 % of the faults come back within a week, so a shorter series is one
bad repair; a record is kept for 90 days."""
WEEK_S: Final = 7 * DAY_S
FATAL: Final = "Fatal"
REPAIRED: Final = "repaired"


def counted(status: RecordStatus) -> list[RecordEvent]:
    """Return the events that count: Fatal events and events with a session.

    Events that an operator undid do not count. Events before an operator reported a repair do not
    count either, unless the same fault returned within a week.
    """
    since = max(
        (
            timestamps.parse_time(one.at) or 0.0
            for one in status.actions
            if not in_vain(one, status)
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


def in_vain(action: OperatorAction, status: RecordStatus) -> bool:
    """Return whether the same fault returned within a week after a reported repair."""
    repaired_at = timestamps.parse_time(action.at)
    if action.action != REPAIRED or repaired_at is None:
        return False
    seen = {
        (event.reason, at)
        for event in status.events
        if event.outcome != FaultOutcome.UNDONE
        for text in (event.at, event.last_at)
        if (at := timestamps.parse_time(text)) is not None
    }
    before = {reason for reason, at in seen if at <= repaired_at}
    return any(reason in before and 0 < at - repaired_at <= WEEK_S for reason, at in seen)


def is_repeat_offender(status: RecordStatus, now: float) -> bool:
    """Return whether it had `REPEAT_FAULTS` faults in `REPEAT_DAYS` days."""
    return _is_repeated(_within(counted(status), REPEAT_DAYS, now))


def fault_summary(status: RecordStatus, now: float) -> str:
    """Return `GPU-1: repeat offender: 6 faults in 90 days (GPULost), 2 returned within a week.`"""
    recent = _within(counted(status), REPEAT_DAYS, now)
    if not recent:
        return f"{status.called}: no counted fault in {REPEAT_DAYS} days."[:1024]
    reasons = [reason for reason, _ in Counter(event.reason for event in recent).most_common(3)]
    faults, back = _faults(recent), sum(map(_returned, recent))
    returned = f", {back} returned within a week" if back else ""
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
    """Return the number of faults: all events of one session are one fault."""
    return len({event.session or event.at for event in events})


def _returned(event: RecordEvent) -> bool:
    return event.came_back_after is not None and event.came_back_after <= WEEK_S
