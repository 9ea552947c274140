"""Several builds of one object, laid over each other: what differs carries the condition it needs.

Pure. A build with one component on is compared with the base, so components add up where they
touch different things or add to the same list; a test compares combinations with kustomize's own
result.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

Condition = str
"""A template expression, for instance `.Values.components.force`."""


class _Missing:
    """Nothing at this place in this build."""


MISSING: Final = _Missing()
_LISTED: Final = ("name", "mountPath", "key")
"""Keys that identify an item of a list of objects."""


@dataclass(frozen=True, slots=True)
class Plain:
    """The same in every build."""

    value: Any


@dataclass(frozen=True, slots=True)
class Fields:
    """An object whose fields differ between builds."""

    fields: Mapping[str, Node]


@dataclass(frozen=True, slots=True)
class Items:
    """A list whose items differ between builds."""

    items: Sequence[Node]


@dataclass(frozen=True, slots=True)
class Choice:
    """The value of the first condition that holds, else `base`; MISSING stands for nothing."""

    branches: Sequence[tuple[tuple[Condition, ...], Any]]
    base: Any


Node = Plain | Fields | Items | Choice


def merge(base: Any, variants: Mapping[Condition, Any]) -> Node:
    """One tree of a value and of what it is under each condition."""
    changed = {c: v for c, v in variants.items() if v is MISSING or v != base}
    if not changed:
        return Plain(base)
    added = [value for value in changed.values() if value is not MISSING]
    if base is MISSING and len(added) > 1 and all(isinstance(value, list) for value in added):
        # Components that add to a list which base lacks.
        return merge([], {c: [] if v is MISSING else v for c, v in variants.items()})
    values = [base, *changed.values()]
    if all(isinstance(value, dict) for value in values):
        keys = dict.fromkeys(key for value in values for key in value)
        return Fields(
            {
                key: merge(
                    base.get(key, MISSING), {c: v.get(key, MISSING) for c, v in variants.items()}
                )
                for key in keys
            }
        )
    if all(isinstance(value, list) for value in values) and _alignable(values):
        keyed = {c: _keyed(value) for c, value in variants.items()}
        original = _keyed(base)
        keys = dict.fromkeys(key for items in (original, *keyed.values()) for key in items)
        return Items(
            [
                merge(
                    original.get(key, MISSING),
                    {c: items.get(key, MISSING) for c, items in keyed.items()},
                )
                for key in keys
            ]
        )
    branches: list[tuple[tuple[Condition, ...], Any]] = []
    for condition, value in changed.items():
        same = next((i for i, (_, known) in enumerate(branches) if known == value), None)
        if same is None:
            branches.append(((condition,), value))
        else:
            branches[same] = ((*branches[same][0], condition), value)
    return Choice(branches, base)


def _keyed(items: Sequence[Any]) -> dict[str, Any]:
    return {_key(item): item for item in items}


def _alignable(lists: Sequence[Sequence[Any]]) -> bool:
    return all(len(_keyed(items)) == len(items) for items in lists)


def _key(item: Any) -> str:
    if isinstance(item, dict):
        for name in _LISTED:
            if isinstance(item.get(name), str):
                return f"{name}={item[name]}"
    return json.dumps(item, sort_keys=True)
