"""A merged tree as a Helm template: block YAML, with conditions on lines of their own.

Pure. Text of gpuward that a template engine would take for its own (alerts speak of `{{
$labels.node }}`) is quoted; a `Template` is not.
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from hack.chart.merge import MISSING, Choice, Fields, Items, Node, Plain

STEP = 2


class Template(str):
    """A string that the template engine is to read."""

    __slots__ = ()


class WhenSet(Template):
    """A template expression whose value is written only if it is not empty: as a field, or as
    further items of a list.
    """

    __slots__ = ()


def template(node: Node) -> str:
    """The text of one object's file."""
    return "\n".join(_lines(node, 0)) + "\n"


def holds(conditions: tuple[str, ...]) -> str:
    """One expression for several conditions of which one is enough."""
    if len(conditions) == 1:
        return conditions[0]
    return "or " + " ".join(f"({each})" if " " in each else each for each in conditions)


def _lines(node: Node, indent: int) -> Iterator[str]:
    """A node that stands at the beginning of lines."""
    pad = " " * indent
    if isinstance(node, Plain):
        node = _opened(node.value)
    if isinstance(node, Fields):
        for key, value in node.fields.items():
            yield from _placed(value, indent, lambda v, key=key: _field(key, v, indent))
    elif isinstance(node, Items):
        for item in node.items:
            yield from _placed(item, indent, lambda v: _item(v, indent))
    elif isinstance(node, Choice):
        yield from _branches(node, lambda v: _lines(v, indent))
    else:
        yield pad + _scalar(node.value)


def _placed(node: Node, indent: int, shown: Any) -> Iterator[str]:
    """A field or an item, in the branches that have it."""
    if isinstance(node, Choice):
        yield from _branches(node, shown)
    else:
        yield from shown(node)


def _branches(choice: Choice, shown: Any) -> Iterator[str]:
    keyword = "if"
    nothing = tuple(c for cs, value in choice.branches if value is MISSING for c in cs)
    kept = [(cs, value) for cs, value in choice.branches if value is not MISSING]
    if not kept:
        yield f"{{{{- if not ({holds(nothing)}) }}}}"
        yield from shown(Plain(choice.base))
        yield "{{- end }}"
        return
    for conditions, value in kept:
        yield f"{{{{- {keyword} {holds(conditions)} }}}}"
        yield from shown(Plain(value))
        keyword = "else if"
    if choice.base is not MISSING:
        yield f"{{{{- else if not ({holds(nothing)}) }}}}" if nothing else "{{- else }}"
        yield from shown(Plain(choice.base))
    yield "{{- end }}"


def _opened(value: Any) -> Node:
    if isinstance(value, dict) and value:
        return Fields({key: Plain(each) for key, each in value.items()})
    if isinstance(value, list) and value:
        return Items([Plain(each) for each in value])
    return Plain(value)


def _nested(node: Node) -> bool:
    if isinstance(node, Plain):
        return isinstance(node.value, (dict, list)) and bool(node.value)
    return True


def _field(key: str, node: Node, indent: int) -> Iterator[str]:
    name = " " * indent + _scalar(key) + ":"
    if isinstance(node, Plain) and isinstance(node.value, WhenSet):
        yield f"{{{{- with {node.value} }}}}"
        yield f"{name} {{{{ toJson . }}}}"
        yield "{{- end }}"
    elif _nested(node):
        needed = _needed(node)
        if needed:
            yield f"{{{{- if {holds(needed)} }}}}"
        yield name
        deeper = isinstance(node, Items) or (
            isinstance(node, Plain) and isinstance(node.value, list)
        )
        yield from _lines(node, indent if deeper else indent + STEP)
        if needed:
            yield "{{- end }}"
    elif isinstance(node, Plain) and isinstance(node.value, str) and "\n" in node.value:
        yield from _text(name, node.value, indent + STEP)
    elif isinstance(node, Plain):
        yield f"{name} {_scalar(node.value)}"


def _needed(node: Node) -> tuple[str, ...]:
    """The conditions of a list that is empty without them."""
    items = node.items if isinstance(node, Items) else ()
    choices = [item for item in items if isinstance(item, Choice) and item.base is MISSING]
    if len(choices) < len(items):
        return ()
    branches = (branch for item in choices for branch in item.branches)
    return tuple(dict.fromkeys(c for cs, value in branches if value is not MISSING for c in cs))


def _text(name: str, value: str, indent: int) -> Iterator[str]:
    if value != value.rstrip("\n") + "\n" or value.startswith((" ", "\n")):
        yield f"{name} {_scalar(value)}"
        return
    yield f"{name} |"
    for line in value.splitlines():
        shown = line if isinstance(value, Template) else _quoted(line)
        # A line of the engine's own brings its own indentation.
        own = isinstance(value, Template) and line.startswith("{{-")
        yield shown if own or not line else " " * indent + shown


def _item(node: Node, indent: int) -> Iterator[str]:
    pad = " " * indent
    if isinstance(node, Plain) and isinstance(node.value, WhenSet):
        yield f"{{{{- range {node.value} }}}}"
        yield f"{pad}- {{{{ toJson . }}}}"
        yield "{{- end }}"
        return
    if not _nested(node):
        yield f"{pad}- {_scalar(node.value)}" if isinstance(node, Plain) else pad
        return
    lines = list(_lines(node, indent + STEP))
    first = next(i for i, line in enumerate(lines) if not line.startswith("{{"))
    if first:
        # A condition before the first field: the dash gets a line of its own.
        yield f"{pad}-"
        yield from lines
        return
    yield f"{pad}- {lines[0][indent + STEP :]}"
    yield from lines[1:]


def _scalar(value: Any) -> str:
    if isinstance(value, Template):
        return str(value)
    if isinstance(value, str):
        shown = json.dumps(value, ensure_ascii=False)
        if "\\" not in shown:
            plain = yaml.safe_dump(value, width=100_000, allow_unicode=True).removesuffix("...\n")
            shown = plain.strip() if "\n" not in plain.strip() else shown
        return _quoted(shown)
    return json.dumps(value)


def _quoted(text: str) -> str:
    return text.replace("{{", "\0").replace("}}", "{{`}}`}}").replace("\0", "{{`{{`}}")


DAEMONSET: Final = Path(__file__).resolve().parents[2] / "daemonset"
PROFILES: Final = ("nvml", "full")
"""Components of which at most one is chosen."""
NO_SWITCH: Final = frozenset({*PROFILES, "enforce"})
"""Components that are no switch of the chart: profiles, and what value `mode` selects."""

Object = dict[str, Any]
Identity = tuple[str, str]


def components() -> list[str]:
    """Every component that is a switch of the chart."""
    found = (path.parent.name for path in (DAEMONSET / "components").glob("*/kustomization.yaml"))
    return sorted(set(found) - NO_SWITCH)


def build(*chosen: str) -> dict[Identity, Object]:
    """The objects of base, definitions and `chosen` components; CalledProcessError as
    kubectl's.
    """
    with tempfile.TemporaryDirectory() as folder:
        overlay = Path(folder).resolve()
        content = {
            "resources": [os.path.relpath(DAEMONSET, overlay)],
            "components": [
                os.path.relpath(DAEMONSET / "components" / each, overlay) for each in chosen
            ],
        }
        (overlay / "kustomization.yaml").write_text(yaml.safe_dump(content))
        text = subprocess.run(
            ["kubectl", "kustomize", str(overlay)], check=True, capture_output=True, text=True
        ).stdout
    objects = [obj for obj in yaml.load_all(text, yaml.CSafeLoader) if obj]
    return {(obj["kind"], obj["metadata"]["name"]): obj for obj in objects}
