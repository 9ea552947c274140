"""The page docs/crds.md: every field of the custom resources with type and description."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

INTRODUCTION = """\
# Custom resources

<!-- Generated from the types in rules/ by `python -m hack.crds`. Do not edit. -->

This page is generated. API group `gpuward.io`, version `v1alpha1`; all kinds are cluster-scoped.
`kubectl explain` prints the same texts. A dot separates nested fields, and `[]` means each item of
a list. Fields that an earlier kind has with the same content are not repeated.
"""


def page(definitions: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the page: one section with a table of fields for each definition."""
    known: dict[str, str] = {}
    ordered = sorted(definitions, key=lambda name: ("evidences" in name, name))
    return "\n".join(
        [INTRODUCTION, *(_section(definitions[name]["spec"], known) for name in ordered)]
    )


def _section(spec: Mapping[str, Any], known: dict[str, str]) -> str:
    names, schema = spec["names"], spec["versions"][0]["schema"]["openAPIV3Schema"]
    rows = [
        f"|`{path}`|{kind}|{text}|" for path, kind, text in _rows(names["kind"], schema, known)
    ]
    title = f"{schema['description']} Short name: `{names['shortNames'][0]}`."
    table = ["|field|type|description|", "|---|---|---|", *rows]
    return "\n".join([f"## {names['kind']}", "", title, "", *table, ""])


def _rows(
    kind: str, schema: Mapping[str, Any], known: dict[str, str], path: str = ""
) -> Iterator[tuple[str, str, str]]:
    """Yield path, type and text of each field below `schema`, parents before children.

    `known` maps the content of a list or object to its first place.
    """
    for name, field in schema.get("properties", {}).items():
        below = f"{path}.{name}" if path else name
        if not below.startswith(("spec", "status")):
            continue
        inner = field.get("items") or field
        text = _text(field)
        first = None
        if "properties" in inner and path:
            content = json.dumps(inner["properties"], sort_keys=True)
            first = known.setdefault(content, f"{kind} `{below}`")
        if first not in (None, f"{kind} `{below}`"):
            yield below, _type(field), f"{text} Fields as in {first}."
            continue
        yield below, _type(field), text
        yield from _rows(kind, inner, known, below if inner is field else f"{below}[]")


def _type(field: Mapping[str, Any]) -> str:
    kind = str(field.get("type", "any"))
    if kind == "array":
        return f"[]{field['items'].get('type', 'any')}"
    if isinstance(inner := field.get("additionalProperties"), dict):
        return f"map of {inner.get('type', 'any')}"
    return kind


def _text(field: Mapping[str, Any]) -> str:
    """Return the description, the allowed values that it does not name, and the default."""
    text = str(field.get("description", ""))
    choices = field.get("enum") or field.get("items", {}).get("enum") or ()
    missing = [choice for choice in choices if choice and choice not in text]
    if missing:
        text += f" One of {', '.join(f'`{choice}`' for choice in choices if choice)}."
    if field.get("default") not in (None, False, "", [], {}):
        text += f" Default: `{field['default']}`."
    return text.strip().replace("|", "\\|")
