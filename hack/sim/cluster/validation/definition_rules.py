"""What a CustomResourceDefinition must be like to be accepted.

Called by `definitions`.  Checks names, versions, that schemas are structural, and that CEL rules
could not exceed the cost budget: the mistakes a real server refuses when manifests are applied.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from hack.sim.cluster.statuses import (
    FieldProblem,
    forbidden_field,
    invalid,
    required,
    unsupported,
)
from hack.sim.cluster.store.kinds import Object
from hack.sim.cluster.validation.names import dns_subdomain_problem
from hack.sim.cluster.validation.structural import check

_LOGICAL = ("allOf", "anyOf", "oneOf")
_FORBIDDEN_INSIDE_LOGICAL = ("type", "default", "additionalProperties", "nullable", "description")
_FORBIDDEN_KEYS = ("$ref", "definitions", "dependencies", "patternProperties", "id")
_SELECTABLE_LIMIT = 8
_SELECTABLE_TYPES = frozenset({"string", "integer", "boolean"})
_ITERATION = re.compile(r"\.(all|exists|exists_one|map|filter|sortBy|sum|min|max)\s*\(")
_TEXT_SCAN = re.compile(
    r"\.(matches|contains|startsWith|endsWith|find|findAll|replace|split)\s*\("
)
_OVER_BUDGET = (
    "estimated rule cost exceeds budget by factor of more than 100x (try simplifying the rule, or "
    "adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
)


def definition_problems(definition: Object, old: Object | None) -> list[FieldProblem]:
    """Every rule that the definition breaks."""
    spec = definition.get("spec") or {}
    names = spec.get("names") or {}
    group = spec.get("group") or ""
    problems: list[FieldProblem] = []
    wanted = f"{names.get('plural', '')}.{group}"
    name = definition["metadata"].get("name")
    if name != wanted:
        problems.append(
            invalid("metadata.name", name, f'must be spec.names.plural+"."+spec.group ({wanted})')
        )
    if not group:
        problems.append(required("spec.group"))
    elif why := dns_subdomain_problem(group):
        problems.append(invalid("spec.group", group, why))
    if spec.get("scope") not in {"Cluster", "Namespaced"}:
        problems.append(unsupported("spec.scope", spec.get("scope"), ("Cluster", "Namespaced")))
    problems += [
        required(f"spec.names.{field}") for field in ("plural", "kind") if not names.get(field)
    ]
    if spec.get("preserveUnknownFields"):
        problems.append(invalid("spec.preserveUnknownFields", True, "must be false"))
    versions: list[Any] = spec.get("versions") or []
    if sum(bool(one.get("storage")) for one in versions) != 1:
        problems.append(
            invalid("spec.versions", versions, "must have exactly one version marked as storage")
        )
    for index, version in enumerate(versions):
        problems += _version_problems(version, f"spec.versions[{index}]")
    if old is not None and old["spec"].get("scope") != spec.get("scope"):
        problems.append(invalid("spec.scope", spec.get("scope"), "field is immutable"))
    return problems


def _version_problems(version: Object, path: str) -> list[FieldProblem]:
    problems = []
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    where = f"{path}.schema.openAPIV3Schema"
    if schema is None:
        return [required(where, "schemas are required")]
    if schema.get("type") != "object":
        problems.append(invalid(f"{where}.type", schema.get("type", ""), "must be object at root"))
    problems += structural_problems(schema, where, root=True)
    problems += _cost_problems(schema, where, bounded=True)
    for index, column in enumerate(version.get("additionalPrinterColumns") or []):
        place = f"{path}.additionalPrinterColumns[{index}]"
        problems += [
            required(f"{place}.{field}")
            for field in ("name", "type", "jsonPath")
            if not column.get(field)
        ]
        kinds = ("boolean", "date", "integer", "number", "string")
        if column.get("type") not in kinds:
            problems.append(unsupported(f"{place}.type", column.get("type"), kinds))
        if not str(column.get("jsonPath", "")).startswith("."):
            problems.append(
                invalid(f"{place}.jsonPath", column.get("jsonPath"), "must be a simple json path")
            )
    selectable = version.get("selectableFields") or []
    if len(selectable) > _SELECTABLE_LIMIT:
        problems.append(
            FieldProblem(
                f"{path}.selectableFields",
                "FieldValueTooMany",
                f"Too many: {len(selectable)}: must have at most {_SELECTABLE_LIMIT} items",
            )
        )
    for index, one in enumerate(selectable):
        found = _schema_at(schema, str(one.get("jsonPath", "")))
        if found is None or found.get("type") not in _SELECTABLE_TYPES:
            problems.append(
                invalid(
                    f"{path}.selectableFields[{index}].jsonPath",
                    one.get("jsonPath"),
                    "does not refer to a field of type string, integer or boolean in the schema",
                )
            )
    return problems


def _schema_at(schema: Object, path: str) -> Object | None:
    found: Any = schema
    for step in path.removeprefix(".").split("."):
        found = (found.get("properties") or {}).get(step) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else None


def _children(schema: Object, path: str) -> Iterator[tuple[Object, str]]:
    for name, inner in (schema.get("properties") or {}).items():
        yield inner, f"{path}.properties[{name}]"
    if isinstance(schema.get("items"), dict):
        yield schema["items"], f"{path}.items"
    if isinstance(schema.get("additionalProperties"), dict):
        yield schema["additionalProperties"], f"{path}.additionalProperties"


def structural_problems(schema: Object, path: str, *, root: bool = False) -> list[FieldProblem]:
    """Where the schema is not structural."""
    problems = []
    free = schema.get("x-kubernetes-int-or-string") or schema.get(
        "x-kubernetes-preserve-unknown-fields"
    )
    if not schema.get("type") and not free:
        problems.append(required(f"{path}.type", "must not be empty for specified object fields"))
    if schema.get("x-kubernetes-int-or-string") and schema.get("type"):
        problems.append(
            invalid(f"{path}.type", schema["type"], "must be empty if int-or-string is true")
        )
    if schema.get("type") == "array" and not isinstance(schema.get("items"), dict):
        problems.append(required(f"{path}.items", "must be specified"))
    if schema.get("properties") and schema.get("additionalProperties"):
        problems.append(
            forbidden_field(
                f"{path}.additionalProperties",
                "additionalProperties and properties are mutual exclusive",
            )
        )
    if schema.get("uniqueItems"):
        problems.append(
            forbidden_field(f"{path}.uniqueItems", "uniqueItems cannot be set to true")
        )
    problems += [
        forbidden_field(f"{path}.{key}", f"{key} is not supported")
        for key in _FORBIDDEN_KEYS
        if key in schema
    ]
    if "default" in schema:
        problems += check(schema["default"], schema, f"{path}.default")
    if schema.get("pattern"):
        try:
            re.compile(schema["pattern"])
        except re.error as error:
            problems.append(invalid(f"{path}.pattern", schema["pattern"], str(error)))
    if schema.get("x-kubernetes-list-type") == "map":
        problems += _map_key_problems(schema, path)
    for name in _LOGICAL:
        for index, inner in enumerate(schema.get(name) or []):
            if schema.get("x-kubernetes-int-or-string"):
                continue
            problems += [
                forbidden_field(f"{path}.{name}[{index}].{key}", "must be empty to be structural")
                for key in _FORBIDDEN_INSIDE_LOGICAL
                if key in inner
            ]
    if root:
        metadata = (schema.get("properties") or {}).get("metadata") or {}
        extra = set(metadata.get("properties") or {}) - {"name", "generateName"}
        if extra:
            problems.append(
                forbidden_field(
                    f"{path}.properties[metadata]",
                    "must not specify anything other than name and generateName",
                )
            )
    for inner, where in _children(schema, path):
        problems += structural_problems(inner, where)
    return problems


def _map_key_problems(schema: Object, path: str) -> list[FieldProblem]:
    keys = schema.get("x-kubernetes-list-map-keys") or []
    items = schema.get("items") or {}
    if not keys:
        return [required(f"{path}.x-kubernetes-list-map-keys")]
    return [
        required(
            f"{path}.items.properties[{key}].default",
            "this property is in x-kubernetes-list-map-keys, so it must have a default or be a "
            "required property",
        )
        for key in keys
        if key not in (items.get("required") or [])
        and "default" not in ((items.get("properties") or {}).get(key) or {})
    ]


def _cost_problems(schema: Object, path: str, *, bounded: bool) -> list[FieldProblem]:
    """CEL rules that could cost too much: under, or running over, something unbounded."""
    problems = []
    for index, rule in enumerate(schema.get("x-kubernetes-validations") or []):
        where = f"{path}.x-kubernetes-validations[{index}].rule"
        text = str(rule.get("rule", ""))
        if not text.strip():
            problems.append(required(where, "rule is not specified"))
        iterates = bool(_ITERATION.search(text)) or bool(_TEXT_SCAN.search(text))
        if not bounded or (iterates and not _is_bounded(schema)):
            problems.append(forbidden_field(where, _OVER_BUDGET))
    for inner, where in _children(schema, path):
        inside = bounded
        if where.endswith(".items"):
            inside = bounded and "maxItems" in schema
        elif where.endswith(".additionalProperties"):
            inside = bounded and "maxProperties" in schema
        problems += _cost_problems(inner, where, bounded=inside)
    return problems


def _is_bounded(schema: Object) -> bool:
    """Whether every list, map and free text in the schema states its largest size."""
    type_ = schema.get("type")
    if type_ == "array" and "maxItems" not in schema:
        return False
    if isinstance(schema.get("additionalProperties"), dict) and "maxProperties" not in schema:
        return False
    if type_ == "string" and "maxLength" not in schema and "enum" not in schema:
        return schema.get("format") in {"date-time", "date", "duration"}
    return all(_is_bounded(inner) for inner, _ in _children(schema, ""))
