"""Decode objects of the API server tolerantly: skip invalid fields and report them.

Objects are decoded strictly first. An object that fails is read field by field, so that one
invalid field hides neither the object nor the rest of a list. An invalid field keeps its default,
an invalid item of a list is dropped, and `doubts` names them. Views with a field `doubt` get them
there, and rules then do less (`rules.api.nodes`). Nothing in `raw` raises.

Nodes of one pool have the same labels and condition messages, and sessions the same steps. A
decoder creates a new string for each. A cache of ten thousand objects passes them through one
`Sharing` and needs a third of the memory.
"""

import types
import typing
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from rules.text.printable import printable

T = TypeVar("T")

UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Errors of decoding a body that is not JSON, not this type, not text, or nested too deeply."""
DOUBT: Final = "doubt"
"""The field of a view with its invalid fields."""
_MAX_DOUBTS: Final = 5
_MAX_CHARS: Final = 300
_KEY_CHARS: Final = 64


class _Nothing:
    """A value that could not be read."""


_NOTHING: Final = _Nothing()


class Doubt(NamedTuple):
    """An invalid field: its path in the object, printable and bounded, and the error."""

    path: str
    why: str

    def __str__(self) -> str:
        return _bounded(f"{self.path}: {self.why}") if self.path else self.why


class Understood(msgspec.Struct, Generic[T], frozen=True):
    """The decoded object; `value` is None if a required field is missing."""

    value: T | None
    doubts: tuple[Doubt, ...] = ()

    @property
    def doubt(self) -> str:
        """All doubts in one bounded clause; empty without any."""
        return "; ".join(map(str, self.doubts))[:_MAX_CHARS]


def understand(raw: bytes | msgspec.Raw, kind: type[T]) -> Understood[T]:
    """Return `raw` decoded as `kind`."""
    try:
        return Understood(msgspec.json.decode(raw, type=kind))
    except UNREADABLE as error:
        doubt = Doubt("", _bounded(str(error)))
    try:
        found = msgspec.json.decode(raw)
        doubts: list[Doubt] = []
        value = _read(found, kind, "", doubts)
    except UNREADABLE:
        return Understood(None, (doubt,))
    if isinstance(value, _Nothing):
        return Understood(None, tuple(doubts[:_MAX_DOUBTS]) or (doubt,))
    understood = Understood(value, tuple(doubts[:_MAX_DOUBTS]))
    if isinstance(value, msgspec.Struct) and DOUBT in value.__struct_fields__:
        value = msgspec.structs.replace(value, **{DOUBT: understood.doubt})
    return Understood(typing.cast("T", value), understood.doubts)


def _read(value: Any, kind: Any, path: str, doubts: list[Doubt]) -> Any:
    """Return `value` as `kind`, or _NOTHING and add a doubt."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in {types.UnionType, typing.Union}:
        return _one_of(value, kind, arguments, path, doubts)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _struct(value, kind, path, doubts)
    if origin in {tuple, list} and isinstance(value, list):
        items = [
            _read(item, arguments[0], f"{path}[{index}]", doubts)
            for index, item in enumerate(value)
        ]
        kept = [item for item in items if not isinstance(item, _Nothing)]
        return tuple(kept) if origin is tuple else kept
    if origin is dict and isinstance(value, dict):
        read = {
            key: _read(item, arguments[1], f"{path}.{_bounded(key, _KEY_CHARS)}", doubts)
            for key, item in value.items()
        }
        return {key: item for key, item in read.items() if not isinstance(item, _Nothing)}
    return _plain(value, kind, path, doubts)


def _one_of(
    value: Any, kind: Any, arguments: tuple[Any, ...], path: str, doubts: list[Doubt]
) -> Any:
    if value is None and type(None) in arguments:
        return None
    inner = [argument for argument in arguments if argument is not type(None)]
    return (
        _read(value, inner[0], path, doubts)
        if len(inner) == 1
        else _plain(value, kind, path, doubts)
    )


def _struct(value: Any, kind: type[msgspec.Struct], path: str, doubts: list[Doubt]) -> Any:
    if not isinstance(value, dict):
        return _doubted(path, f"expected an object, got {type(value).__name__}", doubts)
    read: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        # Go writes null for a missing field.
        if (found := value.get(field.encode_name)) is not None and field.name != DOUBT:
            item = _read(found, field.type, f"{path}.{field.encode_name}", doubts)
            if not isinstance(item, _Nothing):
                read[field.name] = item
                continue
        if field.required:
            return _doubted(f"{path}.{field.encode_name}", "it is required", doubts)
    return kind(**read)


def _plain(value: Any, kind: Any, path: str, doubts: list[Doubt]) -> Any:
    try:
        return msgspec.convert(value, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        return _doubted(path, str(error), doubts)


def _doubted(path: str, why: str, doubts: list[Doubt]) -> _Nothing:
    if len(doubts) < _MAX_DOUBTS:
        doubts.append(Doubt(_bounded(path.removeprefix(".") or "the object"), _bounded(why)))
    return _NOTHING


def _bounded(text: str, chars: int = 200) -> str:
    """Return one printable line, because keys and values appear in logs and messages."""
    return printable(text[:chars])[:chars]


_MOST: Final = 16_384
_MOST_CHARS: Final = 4_000_000
"""The most pieces, and characters in them, in the cache. Beyond that the cache is cleared, so that
unused pieces are freed."""
_LONGEST: Final = 8_192
"""Characters: longer strings are hardly ever equal and are not cached."""


class Sharing:
    """A cache of immutable values, so that equal ones are stored once.

    Maps are mutable, so they are copied and never shared.
    """

    def __init__(self, most_chars: int = _MOST_CHARS) -> None:
        self._most_chars = most_chars
        self._pieces: dict[Any, Any] = {}
        self._chars = 0

    def share(self, value: T) -> T:
        """Return an equal value that shares its strings, tuples and structs with earlier ones."""
        if len(self._pieces) > _MOST or self._chars > self._most_chars:
            self._pieces.clear()
            self._chars = 0
        return typing.cast("T", self._shared(value))

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
            # It contains a map or a list, so it is not hashable.
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
        # Most values are labels: known ones are found without a call.
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
