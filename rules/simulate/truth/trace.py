"""A recorded trace of faults comes in as JSON; outages go out, or one sentence of what is wrong.

The form is that of the public production trace: a list of events `{node_id, event_time (days),
event_type: fault_start | fault_end, fault_type: {Level, Class, Desc}}`.
"""

from __future__ import annotations

from collections import defaultdict

import msgspec

from rules.simulate.truth.outage import Outage
from rules.text.printable import printable


class TraceError(Exception):
    """The trace cannot be used; the text says why and what to do."""


class FaultType(msgspec.Struct, frozen=True):
    """How the trace calls the fault."""

    class_: str = msgspec.field(name="Class", default="Unknown Error")
    desc: str = msgspec.field(name="Desc", default="")


class TraceEvent(msgspec.Struct, frozen=True):
    """One line of the trace."""

    node_id: str
    event_time: float
    event_type: str
    fault_type: FaultType = FaultType()


def read_trace(text: bytes) -> tuple[Outage, ...]:
    """The outages, by their start. What never ended ends with the trace."""
    try:
        events = msgspec.json.decode(text, type=list[TraceEvent])
    except msgspec.MsgspecError as error:
        said = printable(str(error))[:200]
        raise TraceError(f"it is no list of fault events ({said}); name another file") from None
    last = max((event.event_time for event in events), default=0.0)
    begun: defaultdict[tuple[str, str, str], list[float]] = defaultdict(list)
    found = []
    for event in sorted(events, key=lambda e: (e.event_time, e.event_type != "fault_start")):
        key = (event.node_id, event.fault_type.class_, event.fault_type.desc)
        if event.event_type == "fault_start":
            begun[key].append(event.event_time)
        elif begun[key]:
            start = begun[key].pop(0)
            found.append(_outage(key, start, event.event_time))
    found += [_outage(key, start, last) for key, starts in begun.items() for start in starts]
    if not found:
        raise TraceError("it holds no fault that began; name another file")
    return tuple(sorted(found, key=lambda one: (one.start, one.node)))


def _outage(key: tuple[str, str, str], start: float, end: float) -> Outage:
    return Outage(node=key[0], klass=key[1], start=start, end=end)
