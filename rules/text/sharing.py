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
        if kind is tuple:
            return self._known(tuple(map(self._shared, value))) if value else value
        if kind is dict:
            return {self._shared(key): self._shared(item) for key, item in value.items()}
        if kind is list:
            return list(map(self._shared, value))
        if isinstance(value, msgspec.Struct):
            fields = {name: self._shared(getattr(value, name)) for name in value.__struct_fields__}
            return self._known(kind(**fields))
        return value

    def _text(self, text: str) -> str:
        known = self._pieces.get(text)
        if known is None and len(text) <= _LONGEST:
            self._pieces[text] = text
            self._chars += len(text)
        return known or text

    def _known(self, piece: Any) -> Any:
        try:
            return self._pieces.setdefault(piece, piece)
        except TypeError:
            # It holds a map or a list.
            return piece
