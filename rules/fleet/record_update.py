"""Update one GPURecord with the current faults.

Level-triggered: the same faults change nothing, so a restart, a second leader and a lost write
give the same record. A fault is identified by its reason and its time.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import Final

from msgspec.structs import replace

from rules.api import gpu_record, timestamps
from rules.api.gpu_record import (
    FaultOutcome,
    OperatorAction,
    RecordEvent,
    RecordPlace,
    RecordStatus,
    RecordView,
)

KEPT_S: Final = gpu_record.REPEAT_DAYS * gpu_record.DAY_S
"""How long a record outlives its last event."""
FORGOTTEN_S: Final = 365 * gpu_record.DAY_S
"""How long a fault that never ended (its node is gone) is kept."""
SAME_S: Final = 3600.0
"""The same reason within this time, without a repair, is the same fault flapping."""
MOVED_S: Final = 3600.0
"""The shortest time between two moves of a GPU, in case two nodes report the same one."""
_REASON_CHARS, _TEXT_CHARS, _LONGEST_TIME = 63, 256, 40


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordIdentity:
    """The GPU or node of a record; "" for unknown fields."""

    scope: str = gpu_record.GPU_SCOPE
    uuid: str = ""
    serial: str = ""
    product: str = ""
    node: str = ""
    slot: str = ""
    driver: str = ""


def updated(
    status: RecordStatus | None,
    identity: RecordIdentity,
    faults: Iterable[RecordEvent],
    actions: Iterable[OperatorAction],
    now: float,
) -> RecordStatus | None:
    """Return the record with the current faults; None if there is nothing to record."""
    known = status or RecordStatus(scope=identity.scope, uuid=identity.uuid)
    result = replace(
        known,
        serial=identity.serial or known.serial,
        product=identity.product or known.product,
        places=_placed(known, identity, now),
    )
    for fault in sorted(faults, key=lambda f: (timestamps.parse_time(f.at) or 0.0, f.reason)):
        result = _with_fault(result, fault, identity, now)
    if not result.events and status is None:
        return None
    if result.events and not result.places:
        last = result.events[-1]
        here = RecordPlace(node=last.node, since=last.at)
        result = replace(result, places=(here,) if last.node else ())
    return with_message(_with_actions(_bounded(result), actions), now)


def with_message(status: RecordStatus, now: float) -> RecordStatus:
    """Return the record with its current message, since faults leave the window by time."""
    return replace(status, message=gpu_record.fault_summary(status, now))


def outlived_record(record: RecordView, now: float) -> bool:
    """Return whether a record had no event for so long that it is deleted."""
    events = record.status.events
    if not events:
        return now - record.metadata.created_at > KEPT_S
    last = max(timestamps.parse_time(e.ended_at or e.last_at or e.at) or 0.0 for e in events)
    active = any(e.outcome == FaultOutcome.ACTIVE for e in events)
    return now - last > (FORGOTTEN_S if active else KEPT_S)


def _placed(status: RecordStatus, identity: RecordIdentity, now: float) -> tuple[RecordPlace, ...]:
    """Return the former places and the current one."""
    places = status.places
    if not identity.node:
        return places
    last = places[-1] if places else None
    here = RecordPlace(node=identity.node, slot=identity.slot, since=timestamps.format_time(now))
    if last is not None and last.node == identity.node:
        if not identity.slot or last.slot == identity.slot:
            return places
        if not last.slot:
            return (*places[:-1], replace(last, slot=identity.slot))
    if last is not None and now - (timestamps.parse_time(last.since) or 0.0) < MOVED_S:
        return places
    return (*places, here)[-gpu_record.MAX_PLACES :]


def _with_fault(
    status: RecordStatus, fault: RecordEvent, identity: RecordIdentity, now: float
) -> RecordStatus:
    at = timestamps.parse_time(fault.at)
    if at is None or at > now + gpu_record.DAY_S:
        return status
    if len(fault.at) > _LONGEST_TIME:
        fault = replace(fault, at=timestamps.format_micro_time(at))
    index = _index_of(status.events, fault, at)
    known_end = status.events[index].ended_at if index is not None else ""
    fault = replace(fault, ended_at=_ended_by_now(fault.ended_at, known_end, now))
    if index is not None:
        return _with_outcome(status, index, fault)
    forgotten = timestamps.parse_time(status.forgotten_until) or 0.0
    if at <= forgotten or (now - at > KEPT_S and fault.outcome != FaultOutcome.ACTIVE):
        return status
    same = _flapping(status.events, fault, at)
    if same is not None:
        event = status.events[same]
        again = replace(event, last_at=fault.at, times=event.times + 1)
        return _with_outcome(_put(status, same, again), same, fault)
    return _added(status, fault, at, identity)


def _ended_by_now(ended: str, known: str, now: float) -> str:
    """Return the end of a fault, at most now, or its record would never be deleted.

    A future end keeps its first limit, so that the same value changes nothing.
    """
    at = timestamps.parse_time(ended)
    if at is None:
        return ""
    if at > now:
        return known or timestamps.format_time(now)
    return ended if len(ended) <= _LONGEST_TIME else timestamps.format_micro_time(at)


def _index_of(events: tuple[RecordEvent, ...], fault: RecordEvent, at: float) -> int | None:
    """Return the index of the event that includes this fault; None for none."""
    for index, event in enumerate(events):
        began, last = (
            timestamps.parse_time(event.at),
            timestamps.parse_time(event.last_at or event.at),
        )
        if began is None or last is None or event.reason != fault.reason[:_REASON_CHARS]:
            continue
        if began <= at <= last:
            return index
    return None


def _flapping(events: tuple[RecordEvent, ...], fault: RecordEvent, at: float) -> int | None:
    for index in reversed(range(len(events))):
        event = events[index]
        if event.reason != fault.reason[:_REASON_CHARS]:
            continue
        last = timestamps.parse_time(event.ended_at or event.last_at or event.at) or 0.0
        repaired = bool(event.steps) or event.outcome not in {
            FaultOutcome.ACTIVE,
            FaultOutcome.CLOSED,
        }
        return index if not repaired and 0 <= at - last <= SAME_S else None
    return None


def _with_outcome(status: RecordStatus, index: int, fault: RecordEvent) -> RecordStatus:
    """Update the outcome of a known fault if this is its latest occurrence."""
    event = status.events[index]
    if (event.last_at or event.at) != fault.at:
        return status
    # The outcome of a session stays after the session is deleted.
    forgets = bool(event.session) and not fault.session
    new = replace(
        event,
        session=fault.session or event.session,
        steps=fault.steps[-gpu_record.MAX_STEPS :] or event.steps,
        outcome=event.outcome if forgets else fault.outcome,
        ended_at=event.ended_at if forgets else fault.ended_at,
        severity=gpu_record.FATAL
        if gpu_record.FATAL in {event.severity, fault.severity}
        else fault.severity,
    )
    return _put(status, index, new)


def _added(
    status: RecordStatus, fault: RecordEvent, at: float, identity: RecordIdentity
) -> RecordStatus:
    event = replace(
        fault,
        last_at=fault.at,
        node=fault.node or identity.node,
        reason=fault.reason[:_REASON_CHARS],
        severity=fault.severity[:32],
        driver=identity.driver[:64],
        steps=fault.steps[-gpu_record.MAX_STEPS :],
    )
    events = list(status.events)
    before = max(
        # The part was back in service after this fault when the next one came.
        (i for i, e in enumerate(events) if (timestamps.parse_time(e.ended_at) or inf) <= at),
        key=lambda i: timestamps.parse_time(events[i].ended_at) or 0.0,
        default=None,
    )
    if before is not None and events[before].came_back_after is None:
        after_s = int(at - (timestamps.parse_time(events[before].ended_at) or at))
        events[before] = replace(events[before], came_back_after=after_s)
    events = sorted([*events, event], key=lambda e: (timestamps.parse_time(e.at) or 0.0, e.reason))
    counters = replace(status.counters, faults=status.counters.faults + 1)
    return replace(status, events=tuple(events), counters=counters)


def _put(status: RecordStatus, index: int, event: RecordEvent) -> RecordStatus:
    events = (*status.events[:index], event, *status.events[index + 1 :])
    return replace(status, events=events)


def _bounded(status: RecordStatus) -> RecordStatus:
    if len(status.events) <= gpu_record.MAX_EVENTS:
        return status
    dropped, kept = (
        status.events[: -gpu_record.MAX_EVENTS],
        status.events[-gpu_record.MAX_EVENTS :],
    )
    ends = [status.forgotten_until, *(e.last_at or e.at for e in dropped)]
    last = max(ends, key=lambda text: timestamps.parse_time(text) or 0.0)
    return replace(status, events=kept, forgotten_until=last)


def _with_actions(status: RecordStatus, actions: Iterable[OperatorAction]) -> RecordStatus:
    """Add each operator action once; actions before the first event are left out."""
    first = min((timestamps.parse_time(e.at) or 0.0 for e in status.events), default=0.0)
    known = {(one.at, one.action) for one in status.actions}
    new = [
        replace(one, reason=one.reason[:_TEXT_CHARS])
        for one in actions
        if (one.at, one.action) not in known
        and (at := timestamps.parse_time(one.at)) is not None
        and at >= first
    ]
    if not new:
        return status
    found = sorted([*status.actions, *new], key=lambda one: timestamps.parse_time(one.at) or 0.0)
    return replace(status, actions=tuple(found[-gpu_record.MAX_ACTIONS :]))
