"""Keys that a YAML file gives twice: YAML readers silently keep the last, a person meant one.

The edges that read files (policy, rules, simulated node) compose the document with their YAML
parser and hand its root node here before they build values of it. The nodes are only looked at;
no parser is imported.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

_MAX_FOUND: Final = 20
_SHOWN: Final = 80


class DuplicateKey(msgspec.Struct, frozen=True, kw_only=True):
    """One key that its mapping has more than once; lines count from 1."""

    path: str
    lines: tuple[int, int]

    @property
    def sentence(self) -> str:
        """`budget.minimum is given twice, in lines 3 and 7; keep one of them`."""
        first, second = self.lines
        where = f"lines {first} and {second}" if first != second else f"line {first}"
        return f"{self.path} is given twice, in {where}; keep one of them"


def duplicate_keys(root: Any) -> tuple[DuplicateKey, ...]:
    """Every duplicate below a composed YAML node (None for an empty file), in file order.

    Each node is looked at once, however many aliases name it, and nothing recurses.
    """
    found: list[DuplicateKey] = []
    seen: set[int] = set()
    waiting: list[tuple[Any, str]] = [(root, "")]
    while waiting and len(found) < _MAX_FOUND:
        node, path = waiting.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        if node.id == "mapping":
            found += _within(node.value, path)
            inner = [(value, _join(path, key)) for key, value in node.value]
        elif node.id == "sequence":
            inner = [(value, f"{path}[{index}]") for index, value in enumerate(node.value)]
        else:
            inner = []
        waiting.extend(reversed(inner))
    return tuple(found)


def _within(pairs: list[tuple[Any, Any]], path: str) -> list[DuplicateKey]:
    first: dict[tuple[str, str], int] = {}
    found = []
    for key, _ in pairs:
        if key.id != "scalar":
            continue
        line = key.start_mark.line + 1
        name = (key.tag, key.value)
        if name in first:
            found.append(DuplicateKey(path=_join(path, key), lines=(first[name], line)))
        first.setdefault(name, line)
    return found


def _join(path: str, key: Any) -> str:
    name = str(key.value)[:_SHOWN] if key.id == "scalar" else "?"
    return f"{path}.{name}" if path else name
