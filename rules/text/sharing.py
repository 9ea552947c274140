"""One object for equal pieces of many: what a fleet's objects have in common is held once.

Nodes of one pool carry the same labels and the same words in their conditions, sessions the same
steps and sentences. A decoder makes a new string for each; a cache that holds ten thousand objects
passes them through one `Sharing` and holds a third of that. Equal pieces are interchangeable,
since all of them are immutable; maps are made anew and never shared, since they are not.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar, cast

import msgspec

T = TypeVar("T")

_MOST: Final = 16_384
_MOST_CHARS: Final = 4_000_000
"""Pieces, and characters in them, that are remembered: beyond that it begins anew, so that what is
gone can be freed and nobody's long texts fill the memory."""
_LONGEST: Final = 8_192
"""Characters: a longer string is hardly anybody else's, and is compared for nothing."""


class Sharing:
    """Pieces seen so far."""

    def __init__(self) -> None:
        self._pieces: dict[Any, Any] = {}
        self._chars = 0

    def share(self, value: T) -> T:
        """An equal value whose strings, tuples and structs are those of earlier ones."""
        if len(self._pieces) > _MOST or self._chars > _MOST_CHARS:
            self._pieces.clear()
            self._chars = 0
        return cast("T", self._shared(value))

    def _shared(self, value: Any) -> Any:
        kind = type(value)
        if kind is str:
            return self._text(value)
        if kind is dict:
            return self._map(value)
        if kind is list:
            return list(map(self._shared, value))
        if kind is not tuple and not isinstance(value, msgspec.Struct):
            return value
        try:
            known = self._pieces.get(value)
        except TypeError:
            # It holds a map or a list, so it is no piece itself.
            return self._taken_apart(value, kind)
        if known is None:
            known = self._taken_apart(value, kind)
            self._pieces[known] = known
        return known

    def _taken_apart(self, value: Any, kind: Any) -> Any:
        if kind is tuple:
            return tuple(map(self._shared, value))
        return kind(
            **{name: self._shared(getattr(value, name)) for name in value.__struct_fields__}
        )

    def _map(self, value: dict[Any, Any]) -> dict[Any, Any]:
        known = self._pieces.get
        # Labels are most of a fleet: known words are found without a call.
        return {
            known(key) or self._shared(key): (type(item) is str and known(item))
            or self._shared(item)
            for key, item in value.items()
        }

    def _text(self, text: str) -> str:
        known: str | None = self._pieces.get(text)
        if known is None and len(text) <= _LONGEST:
            self._pieces[text] = text
            self._chars += len(text)
        return known or text
