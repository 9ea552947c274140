"""The kustomize component of an adapter, as text: exactly what it needs, from its data.

`hack.repair_components` writes those of the adapters that gpuward ships; `gpuward-remediator
policy rbac` prints one for a policy's own. The admission policy of the remediator has a slot for
the labels and annotations of each, so that components do not undo each other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from rules.api.names import ANNOTATION_REPAIR, COMPONENT_REMEDIATOR
from rules.repair.adapter import ADAPTERS, Adapter, NewObject, RepairAction
from rules.repair.job_component import (
    JOBS_POLICY,
    job_kinds,
    job_slots,
    limits,
    own_rights,
    rbac,
)
from rules.repair.rights import AdapterRight, conditions_of, node_keys, object_keys, to_grant

ROLE: Final = COMPONENT_REMEDIATOR
UNKNOWN_POLICY: Final = f"{COMPONENT_REMEDIATOR}-unknown"
MARK_POLICY: Final = f"{COMPONENT_REMEDIATOR}-mark"
POD_TEMPLATE: Final = "pod-template.yaml"
"""Beside the generated files, by hand: what an adapter's Jobs run, and each right's reason."""
OWN: Final = "Own"
"""The slot of the adapters that a policy brings."""
_WORDS: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def folder_of(name: str) -> str:
    """The component's folder under daemonset/components."""
    return f"repair-{_WORDS.sub('-', name).lower()}"


def component_key(name: str) -> str:
    """What Helm's values call a component: `gpu-operator` is `gpuOperator`."""
    return re.sub(r"-(\w)", lambda m: m.group(1).upper(), name)


def slots() -> tuple[str, ...]:
    """Names of the variables of the mark's admission policy, in their order from the first on."""
    named = [name for name, adapter in ADAPTERS.items() if node_keys(actions_of(adapter))]
    return tuple(f"repair{name}" for name in (*named, OWN))


def actions_of(*adapters: Adapter) -> tuple[RepairAction, ...]:
    """All that these adapters do."""
    return tuple(action for adapter in adapters for action in adapter.steps.values())


def needs_component(actions: Sequence[RepairAction]) -> bool:
    """Whether they do anything that the remediator may not do anyway."""
    return bool(to_grant(actions) or node_keys(actions) or conditions_of(actions))


def component(name: str, actions: Sequence[RepairAction]) -> dict[str, str]:
    """The files of the component of these actions, by name; `name` is an adapter's, or OWN."""
    patches: list[str] = []
    if conditions := conditions_of(actions):
        patches.append(_variable(UNKNOWN_POLICY, 0, "repairs", conditions))
    if rights := [right for right in to_grant(actions) if not right.own]:
        patches.append(_rules(rights))
    slot = f"repair{name}"
    if keys := node_keys(actions):
        patches.append(
            _variable(MARK_POLICY, slots().index(slot), slot, (*keys, ANNOTATION_REPAIR))
        )
    if kinds := job_kinds(actions):
        at = 1 + job_slots(ADAPTERS.items(), OWN).index(slot)
        patches.append(_variable(JOBS_POLICY, at, slot, kinds))
    kept = [
        _limits(name, group, resource, key)
        for (group, resource), key in object_keys(actions).items()
    ]
    files: dict[str, str] = {}
    pods = [action for action in actions if isinstance(action, NewObject) and action.pod]
    for action in pods:
        kept += [limits(folder_of(name), kind, action.pod) for kind in job_kinds((action,))]
    if kept:
        files["admission.yaml"] = "---\n".join(kept)
    if own := own_rights(actions):
        files["rbac.yaml"] = rbac(folder_of(name), own)
    resources = [*files, *([POD_TEMPLATE] if pods else [])]
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


def _variable(policy: str, index: int, name: str, values: tuple[str, ...]) -> str:
    listed = ", ".join(f"'{value}'" for value in values)
    return f"""\
  - target: {{kind: ValidatingAdmissionPolicy, name: {policy}}}
    patch: |-
      - op: test
        path: /spec/variables/{index}/name
        value: {name}
      - op: replace
        path: /spec/variables/{index}/expression
        value: "[{listed}]\""""


def _limits(name: str, group: str, resource: str, key: str) -> str:
    """RBAC says which objects may be patched; this says what of them."""
    listed = f"'{key}', '{ANNOTATION_REPAIR}'"
    policy = f"{COMPONENT_REMEDIATOR}-{folder_of(name)}-{resource}"
    same = _unchanged("its spec", "spec", "{}")
    return f"""\
# Of {resource} the remediator may set {key}, and the note beside it, and nothing else.
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: {policy}
  labels:
    app.kubernetes.io/name: gpuward
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
      - {{apiGroups: ["{group}"], apiVersions: ["*"], operations: [UPDATE], \
resources: [{resource}], scope: "*"}}
  matchConditions:
    - name: remediator
      expression: >-
        has(request.userInfo.username) &&
        request.userInfo.username.startsWith('system:serviceaccount:') &&
        request.userInfo.username.endsWith(':{COMPONENT_REMEDIATOR}')
  variables:
    - {{name: ours, expression: "[{listed}]"}}
{_variables()}
  validations:
    - reason: Forbidden
      message: {COMPONENT_REMEDIATOR} may set nothing here but {key}.
      expression: >-
        variables.notes.all(k, k in variables.ours ||
        (k in variables.notesBefore && variables.notesBefore[k] == variables.notes[k])) &&
        variables.notesBefore.all(k, k in variables.ours || k in variables.notes) &&
        variables.labels.all(k, k in variables.ours ||
        (k in variables.before && variables.before[k] == variables.labels[k])) &&
        variables.before.all(k, k in variables.ours || k in variables.labels)
{same}{_unchanged("finalizers", "metadata.finalizers", "[]")}\
{_unchanged("ownerReferences", "metadata.ownerReferences", "[]")}\
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {policy}
  labels:
    app.kubernetes.io/name: gpuward
spec:
  policyName: {policy}
  validationActions: [Deny]
"""


def _variables() -> str:
    found = {
        "labels": "object.metadata.labels",
        "before": "oldObject.metadata.labels",
        "notes": "object.metadata.annotations",
        "notesBefore": "oldObject.metadata.annotations",
    }
    return "\n".join(
        f'    - {{name: {name}, expression: "has({path}) ? {path} : {{}}"}}'
        for name, path in found.items()
    )


def _unchanged(words: str, path: str, empty: str) -> str:
    new, old = f"object.{path}", f"oldObject.{path}"
    return f"""\
    - reason: Forbidden
      message: {COMPONENT_REMEDIATOR} may not change {words} here.
      expression: >-
        (has({new}) ? dyn({new}) : dyn({empty})) ==
        (has({old}) ? dyn({old}) : dyn({empty}))
"""
