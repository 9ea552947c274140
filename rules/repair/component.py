"""Permissions of a repair adapter, derived from its actions, and its kustomize component.

`hack.repair_components` writes the components of the shipped adapters, `gpuward-remediator policy
rbac` prints one for a policy's own adapter, and `kubectl gpuward preflight` checks the same
permissions in the cluster. The remediator's admission policy has one variable per adapter for its
labels and annotations, so that components do not overwrite each other.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from rules.api import names
from rules.repair import operands
from rules.repair.adapter import (
    ADAPTERS,
    OWN_NAMESPACE,
    Adapter,
    NewObject,
    NodeCondition,
    NodeLabel,
    RepairAction,
    Replacement,
)
from rules.repair.objects import at

ROLE: Final = names.COMPONENT_REMEDIATOR
UNKNOWN_POLICY: Final = f"{names.COMPONENT_REMEDIATOR}-unknown"
JOBS_POLICY: Final = f"{names.COMPONENT_REMEDIATOR}-jobs"
QUARANTINE_POLICY: Final = "gpuward-remediator-mark"
POD_TEMPLATE: Final = "pod-template.yaml"
"""Maintained by hand next to the generated files: the pods of an adapter's Jobs."""
ADMISSION: Final = "admission.yaml"
"""Maintained by hand: limits the fields of the objects that RBAC allows to write."""
OWN: Final = "Own"
"""Name of the variable for adapters that a policy defines."""
PAUSED_SLOT: Final = 9
"""Index of variable `paused` in the quarantine admission policy: after the labels it reads."""
UNNAMED: Final = "unnamed"
"""Name in the base's admission policy for a Job with pods without a component label."""
_LABEL: Final = "app.kubernetes.io/component"
_CAPITALS: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")

_VERBS: Final = ("get", "list", "create", "patch", "delete")
_Place = tuple[str, str, bool]
"""Group, resource, and whether only in the remediator's namespace."""
_JOBS: Final = ("batch", "jobs")
_GRANTED: Final = {
    ("", "nodes"): {"get", "list", "patch"},
}
"""Permissions of the base installation (daemonset/base/remediator-rbac.yaml)."""


def folder_of(name: str) -> str:
    """Return the component's folder under daemonset/components."""
    return f"repair-{_CAPITALS.sub('-', name).lower()}"


def component_key(name: str) -> str:
    """Return the key of a component in Helm's values: `gpu-operator` becomes `gpuOperator`."""
    return re.sub(r"-(\w)", lambda m: m.group(1).upper(), name)


def slots() -> tuple[str, ...]:
    """Return the names of the variables of the quarantine admission policy, in their order."""
    named = [name for name, adapter in ADAPTERS.items() if node_keys(actions_of(adapter))]
    return tuple(f"repair{name}" for name in (*named, OWN))


def actions_of(*adapters: Adapter) -> tuple[RepairAction, ...]:
    """Return the actions of all steps of these adapters."""
    return tuple(action for adapter in adapters for action in adapter.steps.values())


def needs_component(actions: Sequence[RepairAction]) -> bool:
    """Return whether the actions need more permissions than the base installation has."""
    return bool(to_grant(actions) or node_keys(actions) or conditions_of(actions))


def component(name: str, actions: Sequence[RepairAction]) -> dict[str, str]:
    """Return the files of the component for these actions by file name; `name` is an adapter or
    OWN.
    """
    patches: list[str] = []
    if conditions := conditions_of(actions):
        patches.append(_variable(UNKNOWN_POLICY, 0, "repairs", conditions))
    if rights := [right for right in to_grant(actions) if not right.own]:
        patches.append(_rules(rights))
    slot = f"repair{name}"
    if keys := node_keys(actions):
        patches.append(
            _variable(
                QUARANTINE_POLICY, slots().index(slot), slot, (*keys, names.ANNOTATION_REPAIR)
            )
        )
    if any(isinstance(action, NewObject) and action.clears for action in actions):
        at = PAUSED_SLOT
        patches.append(_patch(QUARANTINE_POLICY, at, "paused", json.dumps(_paused())))
    if kinds := job_kinds(actions):
        at = 1 + job_slots(ADAPTERS.items(), OWN).index(slot)
        patches.append(_variable(JOBS_POLICY, at, slot, kinds))
    files: dict[str, str] = {}
    resources = []
    pods = any(isinstance(action, NewObject) and action.pod for action in actions)
    if pods or any(isinstance(action, Replacement) and action.annotation for action in actions):
        resources.append(ADMISSION)
    if own := [right for right in to_grant(actions) if right.own]:
        files["rbac.yaml"] = _role(folder_of(name), own)
    resources += files
    if pods:
        resources.append(POD_TEMPLATE)
    lines = [
        "apiVersion: kustomize.config.k8s.io/v1alpha1",
        "kind: Component",
        *(["resources:", *(f"  - {each}" for each in resources)] if resources else []),
        "patches:",
        *patches,
    ]
    return {"kustomization.yaml": "\n".join(lines) + "\n", **files}


def _rules(rights: Iterable[AdapterRight]) -> str:
    lines = [f"  - target: {{kind: ClusterRole, name: {ROLE}}}", "    patch: |-"]
    for right in rights:
        verbs = ", ".join(right.verbs)
        group = right.group or '""'
        lines += [
            "      - op: add",
            "        path: /rules/-",
            (
                "        value: "
                f"{{apiGroups: [{group}], resources: [{right.resource}], verbs: [{verbs}]}}"
            ),
        ]
    return "\n".join(lines)


def _paused() -> str:
    """Return the CEL expression for the labels that a write pauses and may pause."""
    stays = _listed(operands.STAYS)
    return (
        f"variables.labels.filter(k, k.startsWith('{names.PREFIX_GPU_DEPLOY}') && !(k in {stays})"
        f" && variables.labels[k] == '{names.PAUSED_BY_US}' && k in variables.before"
        f" && variables.before[k] == '{names.DEPLOYED}')"
    )


def _listed(values: Iterable[str]) -> str:
    return "[" + ", ".join(f"'{value}'" for value in values) + "]"


def _variable(policy: str, index: int, name: str, values: tuple[str, ...]) -> str:
    return _patch(policy, index, name, f'"{_listed(values)}"')


def _patch(policy: str, index: int, name: str, value: str) -> str:
    return f"""\
  - target: {{kind: ValidatingAdmissionPolicy, name: {policy}}}
    patch: |-
      - op: test
        path: /spec/variables/{index}/name
        value: {name}
      - op: replace
        path: /spec/variables/{index}/expression
        value: {value}"""


def job_slots(adapters: Iterable[tuple[str, Adapter]], own: str) -> tuple[str, ...]:
    """Return the variable names of the Job admission policy, in their order after `tests`."""
    named = [name for name, adapter in adapters if any(map(makes_job, adapter.steps.values()))]
    return tuple(f"repair{name}" for name in (*named, own))


def job_kinds(actions: Iterable[RepairAction]) -> tuple[str, ...]:
    """Return the component labels of the pods of these Jobs."""
    found: set[str] = set()
    for action in actions:
        if isinstance(action, NewObject) and makes_job(action):
            labels: Any = at(action.object, "spec.template.metadata.labels")
            kind = labels.get(_LABEL) if isinstance(labels, dict) else None
            found.add(kind if isinstance(kind, str) else UNNAMED)
    return tuple(sorted(found))


def _role(folder: str, rights: Iterable[AdapterRight]) -> str:
    """Return the manifests of a Role with these permissions and its RoleBinding."""
    name = f"{names.COMPONENT_REMEDIATOR}-{folder}"
    rules = "\n".join(
        f'  - {{apiGroups: ["{right.group}"], resources: [{right.resource}], '
        f"verbs: [{', '.join(right.verbs)}]}}"
        for right in rights
    )
    return f"""\
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {name}
  namespace: gpuward
  labels:
    app.kubernetes.io/name: gpuward
rules:
{rules}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {name}
  namespace: gpuward
  labels:
    app.kubernetes.io/name: gpuward
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {name}
subjects:
  - kind: ServiceAccount
    name: {names.COMPONENT_REMEDIATOR}
    namespace: gpuward
"""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class AdapterRight:
    """Verbs on one resource, in the entire cluster or only in the remediator's namespace."""

    group: str
    resource: str
    verbs: tuple[str, ...]
    own: bool = False
    """Only in the remediator's namespace."""


def needed(actions: Sequence[RepairAction]) -> tuple[AdapterRight, ...]:
    """Return the permissions that these actions need."""
    verbs: defaultdict[_Place, set[str]] = defaultdict(set)
    for action in actions:
        _of(action, verbs)
    return tuple(
        AdapterRight(
            group=group, resource=resource, verbs=tuple(v for v in _VERBS if v in found), own=own
        )
        for (group, resource, own), found in sorted(verbs.items())
    )


def to_grant(actions: Sequence[RepairAction]) -> tuple[AdapterRight, ...]:
    """Return the permissions that the base installation lacks for these actions."""
    found = []
    for right in needed(actions):
        had = _GRANTED.get((right.group, right.resource), set())
        if verbs := tuple(verb for verb in right.verbs if verb not in had):
            found.append(replace(right, verbs=verbs))
    return tuple(found)


def node_keys(actions: Iterable[RepairAction]) -> tuple[str, ...]:
    """Return the labels and annotations that the actions set on the Node, without those that they
    pause.
    """
    found: set[str] = set()
    for action in actions:
        if isinstance(action, NodeLabel):
            found.add(action.label)
        elif isinstance(action, NewObject) and action.clears:
            found |= {names.ANNOTATION_RELEASE_GPU, names.ANNOTATION_MOVED}
    return tuple(sorted(found))


def conditions_of(actions: Iterable[RepairAction]) -> tuple[str, ...]:
    """Return the Node conditions that the actions set."""
    found = {action.condition for action in actions if isinstance(action, NodeCondition)}
    return tuple(sorted(found))


def makes_job(action: RepairAction) -> bool:
    """Return whether the action creates a Job."""
    return (
        isinstance(action, NewObject) and (group_of(action.api_version), action.resource) == _JOBS
    )


def group_of(api_version: str) -> str:
    """Return the API group; "" for the core group."""
    return api_version.rpartition("/")[0]


def _of(action: RepairAction, verbs: defaultdict[_Place, set[str]]) -> None:
    match action:
        case NodeCondition():
            pass
        case NodeLabel():
            verbs["", "nodes", False] |= {"get", "patch"}
        case NewObject():
            own = action.meta.get("namespace", "") == f"{{{OWN_NAMESPACE}}}"
            place = (group_of(action.api_version), action.resource, own)
            verbs[place] |= {"get", "create", "delete"}
            if action.clears:
                verbs["", "nodes", False] |= {"get", "patch"}
            if action.pod:
                verbs["", "podtemplates", True].add("get")
        case Replacement():
            verb = "patch" if action.annotation else "delete"
            verbs[group_of(action.api_version), action.resource, False] |= {"get", "list", verb}
