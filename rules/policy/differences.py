"""Two policies beside each other: what the one does and the other does not, path by path. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_MOST_DIGITS: Final = 1e15
"""A number from there on has more digits than anybody reads."""


def differences(old: Mapping[str, object], new: Mapping[str, object]) -> list[str]:
    """`budget.maxNew.count: 3 -> 5`, one for each value in effect that differs, by path."""
    before, after = dict(_leaves(old, "")), dict(_leaves(new, ""))
    return [
        f"{path}: {was} -> {now}"
        for path in sorted(before.keys() | after.keys())
        for was, now in [_both(path, before, after)]
        if was != now
    ]


def _both(path: str, old: Mapping[str, object], new: Mapping[str, object]) -> tuple[str, str]:
    """Both values in words that differ where they do.

    What is empty in one and is not in the other is no difference. What stands in both may be one
    though it reads the same: no value and the empty one, a number and its digits.
    """
    was, now = old.get(path), new.get(path)
    shown = _shown(was), _shown(now)
    alike = shown[0] == shown[1] and path in old and path in new and was != now
    return (_quoted(was), _quoted(now)) if alike else shown


def _word(value: object) -> object:
    """As YAML writes it, which people read here: `true`, not `True`."""
    return str(value).lower() if isinstance(value, bool) else value


def _quoted(value: object) -> str:
    """With quotes where it is text, so that `1` and `'1'` differ."""
    plain = value is None or isinstance(value, bool)
    return str(_word("null" if value is None else value)) if plain else repr(value)


def _leaves(value: object, path: str) -> list[tuple[str, object]]:
    if isinstance(value, Mapping) and value:
        inner = [
            _leaves(item, f"{path}.{key}" if path else str(key)) for key, item in value.items()
        ]
        return [leaf for leaves in inner for leaf in leaves]
    if isinstance(value, list | tuple) and any(isinstance(item, Mapping) for item in value):
        rows = [_leaves(item, f"{path}[{at}]") for at, item in enumerate(value)]
        return [leaf for leaves in rows for leaf in leaves]
    return [(path, value)]


def _shown(value: object) -> str:
    empty = value is None or value == "" or value in ([], {}, ())
    if empty:
        return "(nothing)"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_shown(_word(one)) for one in value)}]"
    # 100 in a policy file is 100.0 where an export wrote it.
    if isinstance(value, float) and value.is_integer() and abs(value) < _MOST_DIGITS:
        return str(int(value))
    return str(_word(value))
