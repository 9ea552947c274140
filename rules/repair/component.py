"""The kustomize component of an adapter, as text: exactly what it needs, from its data.

`hack.repair_components` writes those of the adapters that gpuward ships; `gpuward-remediator
policy rbac` prints one for a policy's own. The admission policy of the remediator has a slot for
the labels and annotations of each, so that components do not undo each other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

from rules.api.names import ANNOTATION_REPAIR, COMPONENT_REMEDIATOR
from rules.repair.adapter import ADAPTERS, Adapter, NewObject, RepairAction
from rules.repair.objects import at
from rules.repair.rights import (
    AdapterRight,
    conditions_of,
    makes_job,
    node_keys,
    object_keys,
    to_grant,
)

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


JOBS_POLICY: Final = f"{COMPONENT_REMEDIATOR}-jobs"
UNNAMED: Final = "unnamed"
"""What the base's policy calls a Job whose pods carry no label of a component."""
_LABEL: Final = "app.kubernetes.io/component"
_NAME: Final = "app.kubernetes.io/name"


def job_slots(adapters: Iterable[tuple[str, Adapter]], own: str) -> tuple[str, ...]:
    """Names of the variables of the base's policy about Jobs, in their order after `tests`."""
    named = [name for name, adapter in adapters if any(map(makes_job, adapter.steps.values()))]
    return tuple(f"repair{name}" for name in (*named, own))


def job_kinds(actions: Iterable[RepairAction]) -> tuple[str, ...]:
    """The components that the pods of these Jobs are labelled with."""
    found: set[str] = set()
    for action in actions:
        if isinstance(action, NewObject) and makes_job(action):
            labels: Any = at(action.object, "spec.template.metadata.labels")
            kind = labels.get(_LABEL) if isinstance(labels, dict) else None
            found.add(kind if isinstance(kind, str) else UNNAMED)
    return tuple(sorted(found))


def own_rights(actions: Sequence[RepairAction]) -> tuple[AdapterRight, ...]:
    """Rights in the remediator's namespace alone."""
    return tuple(right for right in to_grant(actions) if right.own)


def rbac(folder: str, rights: Iterable[AdapterRight]) -> str:
    """The Role with these rights, and its binding."""
    name = f"{COMPONENT_REMEDIATOR}-{folder}"
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
    name: {COMPONENT_REMEDIATOR}
    namespace: gpuward
"""


def limits(folder: str, kind: str, template: str) -> str:
    """The admission policy that holds Jobs of this kind to their PodTemplate."""
    policy = f"{COMPONENT_REMEDIATOR}-{folder}"
    return f"""\
# A Job of kind {kind} is one pod of PodTemplate {template} on one named node, and nothing else: it
# has the host's own rights.
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: {policy}
  labels:
    app.kubernetes.io/name: gpuward
spec:
  failurePolicy: Fail
  paramKind: {{apiVersion: v1, kind: PodTemplate}}
  matchConstraints:
    resourceRules:
      - {{apiGroups: [batch], apiVersions: ["*"], operations: [CREATE], \
resources: [jobs], scope: "*"}}
    # Parameters are looked for before matchConditions are asked: without this, a namespace
    # that has no such PodTemplate would refuse everybody's Jobs. The base wants these labels.
    objectSelector:
      matchLabels: {{{_NAME}: gpuward, {_LABEL}: {kind}}}
  matchConditions:
    - name: remediator
      expression: >-
        has(request.userInfo.username) &&
        request.userInfo.username.startsWith('system:serviceaccount:') &&
        request.userInfo.username.endsWith(':{COMPONENT_REMEDIATOR}')
    - name: kind
      expression: >-
        has(object.spec.template.metadata) && has(object.spec.template.metadata.labels) &&
        '{_LABEL}' in object.spec.template.metadata.labels &&
        object.spec.template.metadata.labels['{_LABEL}'] == '{kind}'
  variables:
    - {{name: pod, expression: dyn(object.spec.template.spec)}}
    - {{name: wanted, expression: dyn(params.template.spec)}}
    # What says where it runs, and nothing of what it is.
    - {{name: ours, expression: "['nodeName', 'tolerations']"}}
  validations:
    - reason: Forbidden
      message: {COMPONENT_REMEDIATOR} may run here nothing but PodTemplate {template}.
      expression: >-
        variables.pod.all(k, k in variables.ours ||
        (k in variables.wanted && variables.wanted[k] == variables.pod[k])) &&
        variables.wanted.all(k, k in variables.ours || k in variables.pod)
    - reason: Forbidden
      message: {COMPONENT_REMEDIATOR} may run it once, on one named node.
      expression: >-
        has(variables.pod.nodeName) && variables.pod.nodeName != '' &&
        has(object.spec.parallelism) && object.spec.parallelism == 1 &&
        has(object.spec.completions) && object.spec.completions == 1 &&
        has(object.spec.backoffLimit) && object.spec.backoffLimit == 0 &&
        has(object.spec.activeDeadlineSeconds)
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {policy}
  labels:
    app.kubernetes.io/name: gpuward
spec:
  policyName: {policy}
  # In the namespace of the Job.
  paramRef: {{name: {template}, parameterNotFoundAction: Deny}}
  validationActions: [Deny]
"""
