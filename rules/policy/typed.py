"""Walk a decoded document beside the types of the policy: what has the right type, and what not.

One pass, so that a document of thousands of mistakes costs what one without any does. Called by
`rules.policy.reader`. Nothing is guessed: an unknown key is a mistake with its path.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import cache
from types import UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin

import msgspec

from rules.policy.durations import Seconds, parse_duration
from rules.policy.places import Place, joined, path_of, steps_of

_WRONG: Final = object()
"""What stands where nothing of the document can be kept."""


class Reading:
    """What is wrong with the types of a document, and what is left without it."""

    def __init__(self, document: Mapping[Any, Any], kind: type[msgspec.Struct], most: int) -> None:
        """`most`: how many mistakes are told; all are counted."""
        self.told: list[tuple[str, str]] = []
        """Path and message of the first of them."""
        self.more = 0
        """How many more there are."""
        self.wrong: list[Place] = []
        """Where they stand, and what was meant there."""
        self.kept: dict[Place, list[int]] = {}
        """Of each list with entries that were taken out: what the index of each other one was."""
        self._most = most
        self.rest: Any = self._mapping(document, kind, ())

    def as_written(self, path: str) -> str:
        """A path in what is left, with the indexes that the document has."""
        if not self.kept:
            return path
        place: Place = ()
        for step in steps_of(path):
            kept = self.kept.get(place)
            place += (f"[{kept[int(step[1:-1])]}]" if kept and step.startswith("[") else step,)
        return joined(place)

    def _tell(self, place: Place, message: str, *, path: str | None = None) -> bool:
        """Whether there was room for it."""
        if len(self.told) == self._most:
            self.more += 1
            return False
        self.told.append((joined(place) if path is None else path, message))
        self.wrong.append(place)
        return True

    def _read(self, value: Any, kind: Any, place: Place) -> Any:
        section = _section(kind)
        if section is not None and isinstance(value, dict):
            return self._mapping(value, section, place)
        if get_origin(kind) is tuple and isinstance(value, list):
            return self._list(value, get_args(kind)[0], place)
        if get_origin(kind) is dict and isinstance(value, dict):
            return self._keyed(value, get_args(kind), place)
        return self._value(value, kind, place)

    def _mapping(self, value: Mapping[Any, Any], kind: type[msgspec.Struct], place: Place) -> Any:
        fields, read, meant = _fields(kind), {}, set[str]()
        for key, inner in value.items():
            here = (*place, _written(key))
            if key in fields:
                meant.add(key)
                if (good := self._read(inner, fields[key].type, here)) is not _WRONG:
                    read[key] = good
            elif near := self._unknown(here, fields):
                meant.add(near)
        missing = [k for k, f in fields.items() if f.required and k not in read]
        for key in missing:
            if key not in meant:
                self._tell(place, f"is wrong: object missing required field `{key}`")
        return _WRONG if missing else read

    def _unknown(self, place: Place, known: Iterable[str]) -> str:
        """The key that was meant; "" where none is near, or nobody is told any more."""
        if not self._tell(place, ""):
            return ""
        near = difflib.get_close_matches(place[-1], known, n=1)
        remedy = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(known))}"
        self.told[-1] = (self.told[-1][0], f"is not a known key; {remedy}")
        self.wrong += [(*place[:-1], meant) for meant in near]
        return near[0] if near else ""

    def _list(self, value: list[Any], kind: Any, place: Place) -> list[Any]:
        read = [self._read(one, kind, (*place, f"[{i}]")) for i, one in enumerate(value)]
        if any(one is _WRONG for one in read):
            self.kept[place] = [i for i, one in enumerate(read) if one is not _WRONG]
        return [one for one in read if one is not _WRONG]

    def _keyed(self, value: Mapping[Any, Any], kinds: tuple[Any, ...], place: Place) -> Any:
        keys, kind = kinds
        read = {}
        for key, inner in value.items():
            here = (*place, _written(key))
            if not isinstance(key, str):
                self._tell(here, "is no text, as YAML reads it; put the key in quotes")
            elif (said := _mistake(key, keys)) is not None:
                near = difflib.get_close_matches(key, words_of(keys), n=1)
                if self._tell(here, said[1], path=joined(place)):
                    self.wrong += [(*place, meant) for meant in near]
            elif (good := self._read(inner, kind, here)) is not _WRONG:
                read[key] = good
        return read

    def _value(self, value: Any, kind: Any, place: Place) -> Any:
        if (said := _mistake(value, kind)) is None:
            return value
        self._tell((*place, *said[0]), said[1])
        return _WRONG


def decoded(document: Any, kind: type[msgspec.Struct]) -> Any:
    """A document in which nothing is wrong, as the struct."""
    return msgspec.convert(document, kind, dec_hook=_decode)


def words_of(kind: Any) -> tuple[str, ...]:
    """The words that may stand there; () where any text may."""
    for candidate in (kind, *get_args(kind)):
        if get_origin(candidate) is Literal:
            return get_args(candidate)
        if isinstance(candidate, type) and issubclass(candidate, StrEnum):
            return tuple(candidate)
    return ()


def _mistake(value: Any, kind: Any) -> tuple[Place, str] | None:
    """Where in a value it is and what is wrong there."""
    try:
        msgspec.convert(value, kind, dec_hook=_decode)
    except msgspec.ValidationError as error:
        what = str(error).partition(" - at `")[0]
        words = words_of(kind)
        remedy = f"; write one of {', '.join(words)}" if words else ""
        return steps_of(path_of(str(error))), f"is wrong: {what[:1].lower()}{what[1:]}{remedy}"
    return None


def _decode(kind: type, value: object) -> object:
    if kind is Seconds:
        return parse_duration(value)
    raise NotImplementedError(f"{kind.__name__} in a policy")


def _written(key: object) -> str:
    """A key as YAML writes it."""
    if key is None:
        return "null"
    return str(key).lower() if isinstance(key, bool) else str(key)


@cache
def _fields(section: type[msgspec.Struct]) -> Mapping[str, msgspec.structs.FieldInfo]:
    """A section's keys."""
    return {f.encode_name: f for f in msgspec.structs.fields(section)}


@cache
def _section(kind: Any) -> type[msgspec.Struct] | None:
    candidates = get_args(kind) if get_origin(kind) in {Union, UnionType} else (kind,)
    for candidate in candidates:
        if isinstance(candidate, type) and issubclass(candidate, msgspec.Struct):
            return candidate
    return None
