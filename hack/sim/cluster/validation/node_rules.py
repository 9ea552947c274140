"""Validation of nodes.

Called by the strategies; follows core/v1 validation for taints, quantities and immutable fields.
"""

from __future__ import annotations

import re
from typing import Any

from hack.sim.cluster.statuses import (
    FieldProblem,
    duplicate,
    forbidden_field,
    invalid,
    required,
    unsupported,
)
from hack.sim.cluster.store.kinds import Object
from hack.sim.cluster.validation.cluster import Cluster
from hack.sim.cluster.validation.names import label_value_problem, qualified_name_problem

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
QUANTITY = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?\d+)?")


def node_problems(_: Cluster, node: Object, old: Object | None) -> list[FieldProblem]:
    """Every rule that the node breaks."""
    spec = node.get("spec") or {}
    before = (old.get("spec") or {}) if old else {}
    problems: list[FieldProblem] = []
    if spec.get("taints") is not before.get("taints"):
        problems += _taint_problems(spec.get("taints") or [])
    status = node.get("status") or {}
    for field in ("capacity", "allocatable"):
        for name, quantity in (status.get(field) or {}).items():
            if not QUANTITY.fullmatch(str(quantity)):
                problems.append(
                    invalid(
                        f"status.{field}[{name}]",
                        quantity,
                        "quantities must match the regular expression "
                        "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
                    )
                )
    known = before.get("providerID")
    if known and spec.get("providerID") != known:
        problems.append(
            forbidden_field(
                "spec.providerID",
                'node updates may not change providerID except from "" to valid',
            )
        )
    return problems


def _taint_problems(taints: list[Any]) -> list[FieldProblem]:
    problems = []
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(taints):
        path = f"spec.taints[{index}]"
        key, effect = taint.get("key") or "", taint.get("effect") or ""
        if why := qualified_name_problem(key):
            problems.append(invalid(f"{path}.key", key, why))
        if why := label_value_problem(taint.get("value") or ""):
            problems.append(invalid(f"{path}.value", taint["value"], why))
        if not effect:
            problems.append(required(f"{path}.effect"))
        elif effect not in EFFECTS:
            problems.append(unsupported(f"{path}.effect", effect, EFFECTS))
        if (key, effect) in seen:
            problems.append(duplicate(path, taint))
        seen.add((key, effect))
    return problems
