"""Rules' own structs as hashable tuples without a clock and without a node's name.

A state of the exploration must be equal to another whenever the rules cannot tell them apart. So
every moment is kept as seconds before now (bounded by `OLDEST_S`, beyond every window of the
explored policy), and every name that belongs to one of the two nodes is kept as the same neutral
value for both: exchanging the nodes is then exchanging two tuples. Sentences are dropped.
"""

import dataclasses
import enum
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from rules.api.metadata import ObjectMeta
from rules.api.nodes import NodeView, QuarantineView
from rules.api.quarantine import Pods, QuarantineStatus
from rules.api.timestamps import format_time, parse_time
from rules.session.causes import EVIDENCE_GANGS, session_name
from rules.session.halts import EVIDENCE_PART_TAKEN
from rules.session.history import EVIDENCE_JOINED

NOW = 1_790_000_000
OLDEST_S = 260
NODES = ("a", "b")
INCIDENTS = 2
_GENERATIONS = range(4)
_TIME = re.compile(r"^\d{4}-\d\d-\d\dT")
_KEPT_EVIDENCE = {EVIDENCE_GANGS, EVIDENCE_JOINED, EVIDENCE_PART_TAKEN}
_LONG_AGO = format_time(NOW - OLDEST_S)
_TIMED = {"Paused", "Pending", "NodeUnreachable", "Marked", "NewBoot"}
"""Conditions and steps whose time a rule reads."""


class Moment(NamedTuple):
    """Seconds from now, negative in the past; ``text`` where the object spells it."""

    at: int
    text: bool


def moment(seconds: float, text: bool) -> Moment:
    return Moment(max(-OLDEST_S, min(OLDEST_S, round(seconds - NOW))), text)


def _neutral_names(index: int) -> dict[str, str]:
    node, other = NODES[index], NODES[1 - index]
    names = {node: "%node", other: "%other"}
    for number in _GENERATIONS:
        names[f"uid-{node}-{number}"] = f"%uid{number}"
        names[f"boot-{node}-{number}"] = f"%boot{number}"
        for incident in range(INCIDENTS):
            names[f"inc-{node}-{incident}"] = f"%inc{incident}"
            for ended, name in enumerate(_session_names(node, number, f"inc-{node}-{incident}")):
                names[name] = f"%session{number}.{incident}.{ended}"
    for slot in range(4):
        for number in range(8):
            whose = "own" if slot % 2 == index else "others"
            names[f"pod-{slot}-{number}"] = f"%{whose}{slot // 2}.{number}"
    return names


def _session_names(node: str, uid: int, incident: str) -> list[str]:
    """The names that the rules give one after another to the sessions of one incident."""
    view = NodeView(metadata=ObjectMeta(name=node, uid=f"uid-{node}-{uid}"))
    names: list[str] = []
    for _ in range(5):
        known = [
            msgspec.convert(
                {
                    "metadata": {"name": name},
                    "spec": {"nodeName": node, "causes": [{"incident": incident}]},
                    "status": {"phase": "Released"},
                },
                QuarantineView,
            )
            for name in names
        ]
        names.append(session_name(view, incident, known))
    return names


NEUTRAL = tuple(_neutral_names(index) for index in range(2))
REAL = tuple({neutral: name for name, neutral in names.items()} for names in NEUTRAL)


def pack(value: Any, index: int) -> Any:
    """``value`` of node ``index`` as a hashable without names and dates."""
    match value:
        case enum.Enum() | int() | None:
            return value
        case float():
            return moment(value, False) if value > 1e9 else value
        case str():
            if value in NEUTRAL[index]:
                return NEUTRAL[index][value]
            at = parse_time(value) if _TIME.match(value) else None
            return value if at is None else moment(at, True)
        case msgspec.Struct():
            fields = tuple(pack(getattr(value, name), index) for name in value.__struct_fields__)
            return type(value), fields
        case Mapping():
            items = ((pack(key, index), pack(item, index)) for key, item in value.items())
            return dict, tuple(sorted(items, key=repr))
        case frozenset() | set():
            return frozenset, tuple(sorted((pack(item, index) for item in value), key=repr))
        case list() | tuple():
            return tuple, tuple(pack(item, index) for item in value)
    assert dataclasses.is_dataclass(value), value
    names = (field.name for field in dataclasses.fields(value))
    return type(value), tuple(pack(getattr(value, name), index) for name in names)


def unpack(packed: Any, index: int) -> Any:
    """The value again, as of `NOW`."""
    if isinstance(packed, Moment):
        return format_time(NOW + packed.at) if packed.text else float(NOW + packed.at)
    if isinstance(packed, tuple):
        return _unpacked(packed, index)
    if isinstance(packed, str) and not isinstance(packed, enum.Enum):
        return REAL[index].get(packed, packed)
    return packed


@lru_cache(maxsize=200_000)
def _unpacked(packed: tuple[Any, Any], index: int) -> Any:
    kind, items = packed
    if kind is dict:
        return {unpack(key, index): unpack(item, index) for key, item in items}
    if kind in {tuple, frozenset}:
        return kind(unpack(item, index) for item in items)
    fields = (unpack(item, index) for item in items)
    if issubclass(kind, msgspec.Struct):
        return kind(**dict(zip(kind.__struct_fields__, fields, strict=True)))
    names = (field.name for field in dataclasses.fields(kind))
    return kind(**dict(zip(names, fields, strict=True)))


def later(packed: Any, seconds: int) -> Any:
    """The same when ``seconds`` have passed."""
    if isinstance(packed, Moment):
        at = max(-OLDEST_S, min(OLDEST_S, packed.at - seconds))
        return packed._replace(at=at)
    return _later(packed, seconds) if isinstance(packed, tuple) else packed


@lru_cache(maxsize=200_000)
def _later(packed: tuple[Any, ...], seconds: int) -> Any:
    items = tuple(later(item, seconds) for item in packed)
    return type(packed)(*items) if hasattr(packed, "_fields") else items


def slim(status: QuarantineStatus) -> QuarantineStatus:
    """The status without what no rule reads back: sentences, lists of names, repeated steps."""
    change = msgspec.structs.replace
    conditions = tuple(
        # Whose pause it was is read again when it ends.
        change(c, message=c.message if c.type == "Paused" else _kept(c.message))
        if c.type in _TIMED
        else change(c, message=_kept(c.message), last_transition_time=_LONG_AGO)
        for c in status.conditions
    )
    first: dict[tuple[str, str], Any] = {}
    last: dict[tuple[str, str], Any] = {}
    for entry in status.timeline:
        first.setdefault((entry.step, entry.by), entry)
        last[entry.step, entry.by] = entry
    timeline = tuple(
        change(entry, message="", at=entry.at if entry.step in _TIMED else _LONG_AGO)
        for entry in status.timeline
        if entry in (first[entry.step, entry.by], last[entry.step, entry.by])
    )
    drain = status.drain
    if drain is not None:
        drain = change(
            drain,
            evicted=min(2, drain.evicted),
            recent=(),
            waiting=Pods(),
            blocked=(),
            left_by_policy=Pods(),
            left_by_failure=Pods(),
            suspended_seconds=min(OLDEST_S, drain.suspended_seconds),
        )
    return change(
        status,
        message=_kept(status.message),
        conditions=conditions,
        timeline=timeline,
        drain=drain,
        evidence={
            k: v for k, v in status.evidence.items() if k in _KEPT_EVIDENCE and v is not None
        },
    )


def _kept(message: str) -> str:
    return "message" if message else ""
