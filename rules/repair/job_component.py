"""The part of an adapter's component about Jobs: rights in one namespace, and what a Job may be.

Whoever may create Jobs could run anything on any node, and a repair needs the host's own rights.
So the API server holds each Job of a shipped adapter to the PodTemplate that was installed with
it: beside the node it can choose nothing. Called by `rules.repair.component`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from rules.api.names import COMPONENT_REMEDIATOR
from rules.repair.adapter import Adapter, NewObject, RepairAction
from rules.repair.objects import at
from rules.repair.rights import AdapterRight, makes_job, to_grant

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
