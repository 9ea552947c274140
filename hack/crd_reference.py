"""Write docs/crds.md: every field of the custom resources, read from daemonset/crds.

`python -m hack.crd_reference` writes the page, `--check` compares.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any

import yaml

from hack.generated import ROOT, write_or_check

CRDS = ROOT / "daemonset" / "crds"
PAGE = ROOT / "docs" / "crds.md"
INTRODUCTION = """\
# Custom resources

<!-- Generated from daemonset/crds by `python -m hack.crd_reference`. Do not edit. -->

API group `gpuward.io`, version `v1alpha1`. All kinds are cluster-scoped. This page is generated
from the definitions; `kubectl explain` prints the same texts. A dot separates nested fields, and
`[]` means each item of a list.
"""


def page() -> str:
    """Return the page: one section with a table of fields for each kind."""
    sections = [INTRODUCTION]
    for path in sorted(CRDS.glob("gpu*.yaml")):
        spec = yaml.safe_load(path.read_text(encoding="utf-8"))["spec"]
        sections.append(_section(spec["names"], spec["versions"][0]["schema"]["openAPIV3Schema"]))
    return "\n".join(sections)


def _section(names: dict[str, Any], schema: dict[str, Any]) -> str:
    rows = [
        f"| `{path}` | {_type(field)} | {_text(field)} |"
        for path, field in _fields(schema, "")
        if path.startswith(("spec", "status"))
    ]
    lines = [
        f"## {names['kind']}",
        "",
        f"{schema['description']} Short name: `{names['shortNames'][0]}`.",
        "",
        "| field | type | description |",
        "|---|---|---|",
        *rows,
        "",
    ]
    return "\n".join(lines)


def _fields(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each field below `schema` with its path, parents before children."""
    for name, field in schema.get("properties", {}).items():
        below = f"{path}.{name}" if path else name
        yield below, field
        yield from _fields(field, below)
        yield from _fields(field.get("items", {}), f"{below}[]")


def _type(field: dict[str, Any]) -> str:
    kind = str(field.get("type", "any"))
    if kind == "array":
        return f"[]{field['items'].get('type', 'any')}"
    if kind == "object" and isinstance(field.get("additionalProperties"), dict):
        return f"map of {field['additionalProperties'].get('type', 'any')}"
    return kind


def _text(field: dict[str, Any]) -> str:
    """Return the description with the allowed values and the default."""
    parts = [field.get("description", "")]
    choices = field.get("enum") or field.get("items", {}).get("enum")
    if choices:
        parts.append("One of " + ", ".join(f"`{choice or ' '}`" for choice in choices) + ".")
    if field.get("default") not in (None, "", [], {}):
        parts.append("Default: `" + json.dumps(field["default"]).strip('"') + "`.")
    return " ".join(part for part in parts if part).replace("|", "\\|")


def main() -> int:
    """Write or compare; return 1 when the page is stale."""
    return write_or_check("hack.crd_reference", {PAGE: page()})


if __name__ == "__main__":
    sys.exit(main())
