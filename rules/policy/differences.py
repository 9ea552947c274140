"""Two policies beside each other: what the one does and the other does not, path by path. Pure."""

from __future__ import annotations

from collections.abc import Mapping


def differences(old: Mapping[str, object], new: Mapping[str, object]) -> list[str]:
    """`budget.maxNew.count: 3 -> 5`, one for each value in effect that differs, by path."""
    before, after = dict(_leaves(old, "")), dict(_leaves(new, ""))
    shown = {
        path: (_shown(before.get(path)), _shown(after.get(path)))
        for path in sorted(before.keys() | after.keys())
    }
    # What is empty in both is no difference, however each of them says so.
    differs = ((path, was, now) for path, (was, now) in shown.items() if was != now)
    return [f"{path}: {was} -> {now}" for path, was, now in differs]


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
    return "(nothing)" if empty else str(value)
