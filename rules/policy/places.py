"""Where in a decoded policy a problem stands: found by its path, named by its keys, taken out.

msgspec says `$.reasons[...].level` and hides which key of a mapping it means; whoever has thirty
of them needs the one. Pure; called by `rules.policy.reader`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

_HIDDEN: Final = "[...]"
_SHOWN: Final = 80
_STEP: Final = re.compile(r"[^.\[\]]+|\[\d+\]|\[\.\.\.\]")


def path_of(text: str) -> str:
    """Where msgspec found something wrong: `reasons[...].level`."""
    at = text.partition(" - at `")[2].removeprefix("key` in `")
    return at.rstrip("`").removeprefix("$").removeprefix(".")


def steps_of(path: str) -> tuple[str, ...]:
    """`pods`, `[0]`, `selector` of a path."""
    return tuple(_STEP.findall(path))


def joined(steps: Sequence[str]) -> str:
    """The path again, keys of mappings as those of sections."""
    shown = (s if s.startswith("[") else f".{s[:_SHOWN]}" for s in steps)
    return "".join(shown).removeprefix(".")


def named(path: str, document: Any, fails_at: Callable[[Any], str]) -> tuple[str, ...]:
    """The steps with each hidden key in its place; up to the mapping where none can be found.

    `fails_at`: the path of the first error of a document. With one key alone in its mapping, the
    key that is meant fails there still. Only the section that is meant is read for each key: the
    whole of a long policy, thousands of times, would take longer than the lease lasts.
    """
    steps: tuple[str, ...] = ()
    section = steps_of(path)[:1]
    document = {key: document[key] for key in section if key in document}
    for step in steps_of(path):
        if step != _HIDDEN:
            steps += (step,)
            continue
        inner = _at(document, steps)
        keys = [key for key in inner if isinstance(key, str)] if isinstance(inner, dict) else []
        alone = ((key, _put(document, steps, {key: inner[key]})) for key in keys)
        found = next(((key, one) for key, one in alone if fails_at(one) == path), None)
        if found is None:
            return steps
        steps, document = (*steps, found[0]), found[1]
    return steps


def without(value: Any, steps: Sequence[Any]) -> Any:
    """A copy without what stands there; the same document where there is nothing."""
    if not steps:
        return value
    first, *deeper = steps
    if isinstance(value, dict) and first in value:
        kept = {key: item for key, item in value.items() if key != first}
        return {**kept, first: without(value[first], deeper)} if deeper else kept
    if isinstance(value, list) and (at := _index(first, value)) is not None:
        inner = [without(value[at], deeper)] if deeper else []
        return [*value[:at], *inner, *value[at + 1 :]]
    return value


def _at(value: Any, steps: Sequence[str]) -> Any:
    for step in steps:
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and (at := _index(step, value)) is not None:
            value = value[at]
        else:
            return None
    return value


def _put(value: Any, steps: Sequence[str], new: Any) -> Any:
    """A copy in which this stands there; the place is known to be one."""
    if not steps:
        return new
    first, *deeper = steps
    if isinstance(value, list):
        at = int(first[1:-1])
        return [*value[:at], _put(value[at], deeper, new), *value[at + 1 :]]
    return {**value, first: _put(value[first], deeper, new)}


def _index(step: str, value: list[Any]) -> int | None:
    """The place of `[0]` in a list that has it."""
    digits = step[1:-1]
    at = int(digits) if step.startswith("[") and digits.isdigit() else len(value)
    return at if at < len(value) else None
