"""The part of JSONPath that printer columns and selectable fields use.

`.spec.a`, `['key']`, `[0]`, `[*]` and `[?(@.type=="Ready")]`.  Pure.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

_STEP = re.compile(
    r"""\.(?P<name>(?:\\.|[^.\[\\])+)
      | \[\s*(?P<index>-?\d+)\s*\]
      | \[\s*(?P<all>\*)\s*\]
      | \[\s*(?P<quote>['"])(?P<key>.*?)(?P=quote)\s*\]
      | \[\?\(\s*@(?P<path>(?:\.[\w-]+)+)\s*(?P<op>==|!=)\s*
          (?P<q>['"]?)(?P<value>[^'")]*)(?P=q)\s*\)\]
    """,
    re.VERBOSE,
)


@cache
def _steps(path: str) -> tuple[dict[str, str], ...]:
    steps = []
    position = 0
    while position < len(path):
        found = _STEP.match(path, position)
        if found is None:
            raise ValueError(f"{path!r} is not a JSONPath that is supported here")
        steps.append({k: v for k, v in found.groupdict().items() if v is not None})
        position = found.end()
    return tuple(steps)


def find(obj: Any, path: str) -> list[Any]:
    """Every value the path leads to; ValueError for a path that cannot be read."""
    values = [obj]
    for step in _steps(path):
        values = [found for value in values for found in _take(value, step)]
    return values


def _take(value: Any, step: dict[str, str]) -> list[Any]:
    if "name" in step or "key" in step:
        name = re.sub(r"\\(.)", r"\1", step["name"]) if "name" in step else step["key"]
        return [value[name]] if isinstance(value, dict) and name in value else []
    if not isinstance(value, list):
        return list(value.values()) if "all" in step and isinstance(value, dict) else []
    if "all" in step:
        return value
    if "index" in step:
        index = int(step["index"])
        return [value[index]] if -len(value) <= index < len(value) else []
    return [
        one
        for one in value
        if (_text(find(one, step["path"])) == step["value"]) is (step["op"] == "==")
    ]


def _text(found: list[Any]) -> str | None:
    if not found:
        return None
    return str(found[0]).lower() if isinstance(found[0], bool) else str(found[0])
