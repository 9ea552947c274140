"""Whether the cluster has what the policy's repair adapters and tests under load need."""

from __future__ import annotations

from collections.abc import Sequence

from remediator.kubectl.cluster import Cluster
from remediator.kubectl.ready.check import ADMISSION_PATH, FAIL, OK, Check
from rules.api.names import COMPONENT_REMEDIATOR, TAINT_OUT_OF_SERVICE
from rules.api.object_name import api_path
from rules.policy.components import FENCE, VALIDATE, asked_components
from rules.policy.policy import Policy
from rules.policy.repair_rights import actions_in_use
from rules.repair.adapter import RepairAction
from rules.repair.component import MARK_POLICY, UNKNOWN_POLICY, component_key, folder_of
from rules.repair.job_component import JOBS_POLICY, job_kinds
from rules.repair.rights import conditions_of, needed, node_keys


async def repair_checks(cluster: Cluster, policy: Policy, namespace: str) -> list[Check]:
    """What the adapters of the policy's steps need, one line for each adapter."""
    repair, checks = policy.repair, []
    if repair.mode == "Off":
        return []  # nobody is asked
    fences = any(each.component == FENCE for each in asked_components(policy))
    for adapter, actions in sorted(actions_in_use(repair).items()):
        lacking = [
            *await _not_served(cluster, actions),
            *await _no_template(cluster, actions, namespace),
            *await _not_granted(cluster, actions, namespace),
            *await _not_admitted(cluster, actions),
        ]
        if fences:
            lacking += await _not_out_of_service(cluster, actions)
        name = f"repair adapter {adapter}"
        if not lacking:
            steps = sorted(s for s, each in repair.steps.items() if each.adapter == adapter)
            found = f"what {', '.join(steps)} needs is there"
            checks.append(Check(verdict=OK, name=name, found=found))
            continue
        own, folder = adapter in repair.adapters, folder_of(adapter)
        remedy = (
            "list in your overlay what gpuward-remediator policy rbac writes, and apply it"
            if own
            else f"add component {folder} (Helm: components.{component_key(folder)}) "
            "and install what it asks"
        )
        found = f"{'; '.join(dict.fromkeys(lacking))}; {remedy}"
        checks.append(Check(verdict=FAIL, name=name, found=found))
    return checks


async def validation_checks(cluster: Cluster, policy: Policy, namespace: str) -> list[Check]:
    """What the test under load needs that the policy asks for."""
    asked = any(each.component == VALIDATE for each in asked_components(policy))
    template = policy.validate.template
    path = api_path("/api/v1/namespaces", namespace, "podtemplates", template)
    found = await cluster.get(path)
    # Auto tests where the component is installed: what else it needs is to be there then.
    if policy.validate.provider == "None" or not (asked or found is not None):
        return []
    lacking = []
    if found is None:
        lacking.append(f"there is no PodTemplate {template} in {namespace}")
    spec = (found or {}).get("template", {}).get("spec", {})
    runtime, classes = spec.get("runtimeClassName"), "/apis/node.k8s.io/v1/runtimeclasses"
    if runtime and await cluster.get(api_path(classes, runtime)) is None:
        lacking.append(f"there is no RuntimeClass {runtime}")
    user = f"system:serviceaccount:{namespace}:{COMPONENT_REMEDIATOR}"
    if await cluster.may(user, "batch", "jobs", "create", namespace) is False:
        lacking.append(f"the remediator may not create jobs.batch in {namespace}")
    told = f"{'; '.join(lacking)}; add component validate" if lacking else "is there"
    verdict = FAIL if lacking else OK
    return [Check(verdict=verdict, name=f"test under load {template}", found=told)]


async def _not_served(cluster: Cluster, actions: Sequence[RepairAction]) -> list[str]:
    lacking = []
    for rule in (action.target for action in actions if action.target is not None):
        group, _, version = rule.api_version.rpartition("/")
        if version == "*":
            found = await cluster.get(api_path("/apis", group)) or {}
            version = (found.get("preferredVersion") or {}).get("version") or "v1"
        path = api_path("/apis", group, version) if group else f"/api/{version}"
        served = {r["name"] for r in ((await cluster.get(path)) or {}).get("resources", ())}
        if rule.resource not in served:
            lacking.append(f"nobody serves {rule.resource} of {rule.api_version}")
    return lacking


async def _no_template(
    cluster: Cluster, actions: Sequence[RepairAction], namespace: str
) -> list[str]:
    """PodTemplates that Jobs are to be made from."""
    lacking = []
    for name in sorted({action.pod for action in actions if action.pod}):
        path = api_path("/api/v1/namespaces", namespace, "podtemplates", name)
        if await cluster.get(path) is None:
            lacking.append(f"there is no PodTemplate {name} in {namespace}")
    return lacking


async def _not_granted(
    cluster: Cluster, actions: Sequence[RepairAction], namespace: str
) -> list[str]:
    user, lacking = f"system:serviceaccount:{namespace}:{COMPONENT_REMEDIATOR}", []
    for right in needed(actions):
        for verb in right.verbs:
            at = namespace if right.own else ""
            if await cluster.may(user, right.group, right.resource, verb, at) is False:
                where = f".{right.group}" if right.group else ""
                where += f" in {namespace}" if right.own else ""
                lacking.append(f"the remediator may not {verb} {right.resource}{where}")
    return lacking


async def _not_admitted(cluster: Cluster, actions: Sequence[RepairAction]) -> list[str]:
    """Its own admission policies refuse the remediator what no component has named."""
    lacking = []
    wanted = (
        (MARK_POLICY, node_keys(actions)),
        (UNKNOWN_POLICY, conditions_of(actions)),
        (JOBS_POLICY, job_kinds(actions)),
    )
    page = await cluster.get(f"{ADMISSION_PATH}/validatingadmissionpolicies") or {}
    there = {item["metadata"]["name"]: item for item in page.get("items", ())}
    for policy, words in wanted:
        if not words or policy not in there:
            continue
        variables = (there[policy].get("spec") or {}).get("variables") or ()
        text = " ".join(str(each.get("expression")) for each in variables)
        unnamed = [word for word in words if f"'{word}'" not in text]
        lacking += [f"policy {policy} does not name {word}" for word in unnamed]
    return lacking


async def _not_out_of_service(cluster: Cluster, actions: Sequence[RepairAction]) -> list[str]:
    """Whether component fence lets the remediator set the taint, where it is to set it itself."""
    if not any(a.fence is not None and a.fence.ends_pods is None for a in actions):
        return []
    path = f"{ADMISSION_PATH}/validatingadmissionpolicies/{MARK_POLICY}"
    spec = (await cluster.get(path) or {}).get("spec") or {}
    variables = {each.get("name"): each.get("expression") for each in spec.get("variables") or ()}
    if TAINT_OUT_OF_SERVICE in str(variables.get("fences", TAINT_OUT_OF_SERVICE)):
        return []
    return [f"policy {MARK_POLICY} does not name {TAINT_OUT_OF_SERVICE}, apply component fence"]
