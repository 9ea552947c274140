"""Print values as name, json, yaml, jsonpath or custom-columns, as `kubectl get -o` does.

JSONPath is a subset of kubectl's template language: fields, indexes, slices, `[*]`, filters with
`==` and `!=`, `range` and quoted text. JSONPath libraries support neither `range` nor text, and
translating to one of them takes as much code as this module.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from remediator.kubectl import command
from rules.text.printable import printable

PATHS: Final = ("jsonpath=", "custom-columns=")
_KNOWN: Final = (
    'supported are .field, [0], [0:2], [*], [?(@.field=="x")], {range PATH}...{end} and "text"; '
    "for the rest use -o json and jq"
)
_LITERAL: Final = r""""(?:[^"\\]|\\.)*"|'[^']*'|-?\d+(?:\.\d+)?|true|false"""
_STEP: Final = re.compile(
    r"""\.?\[\?\(@(?P<path>[^=!()]+?)\s*(?P<operator>==|!=)\s*(?P<value>"""
    + _LITERAL
    + r""")\s*\)\]
    |\.?\[(?P<quoted>'[^']*'|"[^"]*")\]
    |\.?\[(?P<index>-?\d+)\]
    |\.?\[(?P<start>-?\d*):(?P<stop>-?\d*)\]
    |\.?(?P<every>\[\*\])|\.(?P<all>\*)
    |\.(?P<field>(?:\\.|[^\s.\[\]{}()\\*])+)""",
    re.VERBOSE,
)
_PART: Final = re.compile(
    r"""\s*(?:(?P<text>"(?:[^"\\]|\\.)*"|'[^']*')|(?P<end>end\b)
    |(?P<range>range\s+)?(?P<path>[$@.\[](?:"[^"]*"|'[^']*'|[^"'\s}]|\s*[=!]=\s*)*))""",
    re.VERBOSE,
)


def checked(text: str, forms: Sequence[str]) -> str:
    """Return the value of `-o`; ValueError for a format that the command does not have."""
    if text in forms:
        return text
    if text.startswith("jsonpath="):
        _parts(text.removeprefix("jsonpath="))
    elif text.startswith("custom-columns="):
        _columns(text.removeprefix("custom-columns="))
    else:
        raise ValueError(f"{text!r:.80} is not one of {', '.join([*forms, *PATHS])}")
    return text


def rendered(items: Sequence[Any], form: str) -> str:
    """Return the items in the format: one Kubernetes List, a line for each name, or what the paths
    find.
    """
    import msgspec  # imported here, as yaml: help and completion do not need it

    items = msgspec.to_builtins(items)
    if form == "name":
        return "\n".join(printable(f"node/{item['metadata']['name']}") for item in items)
    listed = {"apiVersion": "v1", "kind": "List", "items": list(items)}
    if form == "json":
        return json.dumps(listed, indent=2, ensure_ascii=True)
    if form.startswith("jsonpath="):
        return "".join(_filled(iter(_parts(form.removeprefix("jsonpath="))), listed))
    if form.startswith("custom-columns="):
        columns = _columns(form.removeprefix("custom-columns="))
        rows = [
            [",".join(map(_text, _found(item, path))) for _, path in columns] for item in items
        ]
        return command.table([title for title, _ in columns], rows)
    import yaml

    return yaml.safe_dump(
        listed, sort_keys=False, default_flow_style=False, width=command.WIDTH
    ).rstrip()


def _columns(text: str) -> list[tuple[str, str]]:
    """Header and path of each column; ValueError where a column has none or cannot be read."""
    found = []
    for column in text.split(","):
        title, colon, path = column.partition(":")
        path = path.strip().removeprefix("{").removesuffix("}")
        if not title or not colon or not path:
            raise ValueError(f"{column!r:.80} is not HEADER:PATH, such as NODE:.metadata.name")
        path = path if path[0] in ".[" else f".{path}"
        _steps(path)
        found.append((printable(title), path))
    return found


def _parts(template: str) -> list[tuple[str, str]]:
    """The template as (kind, text): `text`, `path`, `range` or `end`."""
    if template and "{" not in template:
        template = f"{{{template}}}"
    found: list[tuple[str, str]] = []
    # Every second piece is the inside of braces.
    for number, piece in enumerate(re.split(r"\{((?:\"[^\"]*\"|'[^']*'|[^\"'}])*)\}", template)):
        if number % 2:
            found += _inside(piece)
        elif {"{", "}"} & set(piece):
            raise ValueError(f"unclosed {{ or }} in {template!r:.80}; {_KNOWN}")
        elif piece:
            found.append(("text", piece))
    depth = 0
    for kind, _ in found:
        depth += {"range": 1, "end": -1}.get(kind, 0)
        if depth < 0:
            break
    if depth:
        raise ValueError(f"{{range}} and {{end}} do not match in {template!r:.80}; {_KNOWN}")
    return found


def _inside(text: str) -> Iterator[tuple[str, str]]:
    """The parts inside one pair of braces."""
    at, text = 0, text.rstrip()
    while at < len(text):
        part = _PART.match(text, at)
        if part is None:
            raise ValueError(f"{text!r:.80} cannot be read; {_KNOWN}")
        at = part.end()
        if part["text"] is not None:
            quoted = part["text"][1:-1]
            yield "text", quoted.replace(r"\n", "\n").replace(r"\t", "\t")
        elif part["end"]:
            yield "end", ""
        else:
            path = part["path"].lstrip("$@")
            _steps(path)
            yield ("range" if part["range"] else "path"), path


def _filled(parts: Iterator[tuple[str, str]], value: Any) -> Iterator[str]:
    """The text of the parts up to their `end`, with paths read from the value."""
    for kind, text in parts:
        if kind == "end":
            return
        if kind == "text":
            yield text
        elif kind == "path":
            yield " ".join(map(_text, _found(value, text)))
        else:
            inner = [*_until_end(parts)]
            for one in _found(value, text):
                yield from _filled(iter(inner), one)


def _until_end(parts: Iterator[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    depth = 1
    for part in parts:
        depth += {"range": 1, "end": -1}.get(part[0], 0)
        if not depth:
            return
        yield part


def _steps(path: str) -> list[re.Match[str]]:
    """The steps of a path; ValueError for what is not supported."""
    found, at = [], 0
    while at < len(path):
        step = _STEP.match(path, at)
        if step is None:
            if path == ".":
                return []
            raise ValueError(f"{path!r:.80} cannot be read at {path[at:]!r:.40}; {_KNOWN}")
        found.append(step)
        at = step.end()
    return found


def _found(value: Any, path: str) -> list[Any]:
    """The values at the path; none for a field that is missing."""
    values = [value]
    for step in _steps(path):
        values = [inner for one in values for inner in _step(one, step)]
    return values


def _step(value: Any, step: re.Match[str]) -> Sequence[Any]:
    field = step["quoted"][1:-1] if step["quoted"] else step["field"]
    if field is not None:
        field = re.sub(r"\\(.)", r"\1", field)
        return [value[field]] if isinstance(value, dict) and field in value else []
    if isinstance(value, dict):
        return [*value.values()] if step["every"] or step["all"] else []
    if not isinstance(value, list | tuple):
        return []
    if step["every"] or step["all"]:
        return value
    if step["index"]:
        at = int(step["index"])
        return [value[at]] if -len(value) <= at < len(value) else []
    if step["path"]:
        wanted = step["value"]
        wanted = wanted[1:-1] if wanted[0] in "\"'" else wanted
        same = step["operator"] == "=="
        return [one for one in value if (wanted in map(_text, _found(one, step["path"]))) == same]
    return value[slice(*(int(step[end]) if step[end] else None for end in ("start", "stop")))]


def _text(value: Any) -> str:
    """A value as kubectl prints it: text as it is, anything else as JSON."""
    if value is None:
        return ""
    return printable(value if isinstance(value, str) else json.dumps(value))
