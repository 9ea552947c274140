"""Writes `data/field_types.json`: the fields of built-in kinds and their types.

Run by a developer after an upgrade of the `kubernetes` package, whose model classes state them:
`python -m hack.sim.cluster.validation.generate_types`.  Never runs in a test or in the server.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from hack.sim.cluster import resource
from hack.sim.cluster.resource import Resource

TARGET = Path(__file__).parents[1] / "data" / "field_types.json"
_GENERIC = re.compile(r"(List|Dict)\[(?:str, )?(.*)\]")


def model_name(kind: Resource) -> str:
    """The class of the package that describes a kind."""
    if kind.kind == "Event":
        return "CoreV1Event" if not kind.group else "EventsV1Event"
    if kind.kind == "ResourceClaim":
        # A container's claims have the other class of that name.
        return "ResourceV1ResourceClaim"
    return f"{kind.version.capitalize()}{kind.kind}"


def main() -> None:
    """Collect the types reachable from every built-in kind and write them, sorted."""
    from kubernetes.client import models  # type: ignore[import-untyped, unused-ignore]

    found: dict[str, dict[str, str]] = {}
    wanted = [
        model_name(value)
        for value in vars(resource).values()
        if isinstance(value, Resource) and value.group != "apiextensions.k8s.io"
    ]
    wanted += ["V1Eviction", "V1DeleteOptions", "V1Binding"]
    while wanted:
        name = wanted.pop()
        if name in found:
            continue
        model: Any = getattr(models, name)
        fields = {}
        for attribute, type_ in model.openapi_types.items():
            known = model.model_fields
            field = known.get(attribute) or known["var_" + attribute.lstrip("_")]
            optional = not field.is_required()
            fields[model.attribute_map[attribute]] = type_ + ("?" if optional else "")
            inner = type_
            while generic := _GENERIC.fullmatch(inner):
                inner = generic.group(2)
            if hasattr(models, inner) and hasattr(getattr(models, inner), "openapi_types"):
                wanted.append(inner)
        found[name] = dict(sorted(fields.items()))
    TARGET.write_text(json.dumps(dict(sorted(found.items())), indent=0) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
