"""Check what the repair steps and the test under load of a policy need in the cluster."""

from collections.abc import Sequence
from typing import Any

from remediator.kubectl.cluster import Cluster
from remediator.kubectl.preflight_policies import Finding
from rules.api import object_name
from rules.policy import components
from rules.policy.policy import Policy
from rules.repair import component
from rules.repair.adapter import NewObject, RepairAction, Replacement


async def adapter_checks(
    cluster: Cluster, policy: Policy, namespace: str, user: str
) -> list[Finding]:
    """Return for each adapter of the policy's steps whether it has what it needs."""
    if policy.repair.mode == "Off":
        return []  # nobody is asked
    checks: list[Finding] = []
    for adapter, actions in sorted(components.actions_in_use(policy.repair).items()):
        lacking = []
        for action in actions:
            if isinstance(action, NewObject | Replacement):
                lacking += await _not_served(cluster, action)
            if isinstance(action, NewObject) and action.pod:
                lacking += await _no_template(cluster, namespace, action.pod)
        for right in component.needed(actions):
            at = namespace if right.own else ""
            lacking += await _forbidden(
                cluster, user, right.group, right.resource, right.verbs, at
            )
        lacking += await _not_admitted(cluster, actions)
        name = f"repair adapter {adapter}"
        if not lacking:
            steps = sorted(s for s, each in policy.repair.steps.items() if each.adapter == adapter)
            checks.append(
                (name, f"permissions and definitions for {', '.join(steps)} exist", True)
            )
            continue
        folder = component.folder_of(adapter)
        helm = f"Helm: components.{component.component_key(folder)}"
        remedy = f"add component {folder} ({helm}) and install what it asks"
        if adapter in policy.repair.adapters:
            remedy = (
                "list in your overlay what gpuward-remediator policy rbac writes, and apply it"
            )
        checks.append((name, f"{'; '.join(dict.fromkeys(lacking))}; {remedy}", False))
    return checks


async def _forbidden(
    cluster: Cluster, user: str, group: str, resource: str, verbs: Sequence[str], namespace: str
) -> list[str]:
    """What RBAC refuses the remediator; nothing where the caller may not ask."""
    what = f"{resource}{f'.{group}' if group else ''}{f' in {namespace}' if namespace else ''}"
    answers = {verb: await cluster.may(user, group, resource, verb, namespace) for verb in verbs}
    return [f"the remediator may not {v} {what}" for v, may in answers.items() if may is False]


async def _not_served(cluster: Cluster, action: NewObject | Replacement) -> list[str]:
    """The kind of object that an adapter asks, where no definition of it is installed."""
    group, _, version = action.api_version.rpartition("/")
    if version == "*":
        found = await cluster.get(object_name.api_path("/apis", group)) or {}
        version = (found.get("preferredVersion") or {}).get("version") or "v1"
    path = object_name.api_path("/apis", group, version) if group else f"/api/{version}"
    served = (await cluster.get(path) or {}).get("resources", ())
    if action.resource in {one["name"] for one in served}:
        return []
    return [f"nobody serves {action.resource} of {action.api_version}"]


async def _not_admitted(cluster: Cluster, actions: Sequence[RepairAction]) -> list[str]:
    """What our own admission policies refuse the remediator, since no component has named it."""
    lacking = []
    there = await by_name(cluster, "validatingadmissionpolicies")
    wanted = (
        (component.QUARANTINE_POLICY, component.node_keys(actions)),
        (component.UNKNOWN_POLICY, component.conditions_of(actions)),
        (component.JOBS_POLICY, component.job_kinds(actions)),
    )
    for policy, names_ in wanted:
        spec = there[policy].get("spec") or {} if policy in there else {}
        text = " ".join(str(each.get("expression")) for each in spec.get("variables") or ())
        missing = [one for one in names_ if spec and f"'{one}'" not in text]
        lacking += [f"policy {policy} does not name {one}" for one in missing]
    return lacking


async def _no_template(cluster: Cluster, namespace: str, name: str) -> list[str]:
    """A PodTemplate, or its RuntimeClass, that is not there."""
    path = object_name.api_path("/api/v1/namespaces", namespace, "podtemplates", name)
    found = await cluster.get(path)
    if found is None:
        return [f"there is no PodTemplate {name} in {namespace}"]
    runtime = ((found.get("template") or {}).get("spec") or {}).get("runtimeClassName")
    classes = "/apis/node.k8s.io/v1/runtimeclasses"
    if runtime and await cluster.get(object_name.api_path(classes, runtime)) is None:
        return [f"there is no RuntimeClass {runtime}"]
    return []


async def validation_checks(
    cluster: Cluster, policy: Policy, namespace: str, user: str
) -> list[Finding]:
    """Return what the test under load that the policy asks for lacks."""
    template = policy.validate.template
    path = object_name.api_path("/api/v1/namespaces", namespace, "podtemplates", template)
    # Auto tests where the component is installed: what else it needs is to be there then.
    there = await cluster.get(path) is not None
    if policy.validate.provider == "None" or not (
        components.asks(policy, components.VALIDATE) or there
    ):
        return []
    lacking = await _no_template(cluster, namespace, template)
    lacking += await _forbidden(cluster, user, "batch", "jobs", ("create",), namespace)
    found = f"{'; '.join(lacking)}; add component validate" if lacking else "is there"
    return [(f"test under load {template}", found, not lacking)]


async def by_name(cluster: Cluster, plural: str) -> dict[str, dict[str, Any]]:
    """Return the objects of `admissionregistration.k8s.io` of this kind by name."""
    page = await cluster.get(f"/apis/admissionregistration.k8s.io/v1/{plural}") or {}
    return {item["metadata"]["name"]: item for item in page.get("items", ())}
