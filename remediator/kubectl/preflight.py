"""`kubectl gpuward preflight`: is this cluster ready, and what would get in the way.

Each check is one line: ok, warn or FAIL, what was found, and the remedy. It only reads.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from remediator.kube.elector import LEASE_NAME
from remediator.kubectl.cluster import GROUP_PATH, Cluster
from remediator.kubectl.command import PLANNER, CommandError
from remediator.kubectl.definitions import OPENAPI_PATH, unknown_fields
from remediator.kubectl.leading import lease_of, nobody_leads
from rules.api.names import COMPONENT_REMEDIATOR, TAINT_OUT_OF_SERVICE
from rules.api.object_name import api_path
from rules.api.sentences import some
from rules.drain.daemon_sets import untolerating
from rules.fleet.pools import NodePools, control_plane
from rules.policy.policy import Policy, Repair
from rules.policy.repair_rights import actions_in_use
from rules.policy.validation import Validation
from rules.repair.adapter import RepairAction
from rules.repair.component import MARK_POLICY, UNKNOWN_POLICY, folder_of
from rules.repair.job_component import JOBS_POLICY, job_kinds
from rules.repair.rights import conditions_of, needed, node_keys
from rules.text.printable import printable

OK, WARN, FAIL = "ok", "warn", "FAIL"
MINIMUM_MINOR = 32
KINDS = ("gpuevidences", "gpunodehealths", "gpuquarantines", "gpurecords", "gpuwardpauses")
GPU_LABELS = ("nvidia.com/gpu.present", "feature.node.kubernetes.io/pci-10de.present")
RIVAL_WORKLOADS = {
    "fault-quarantine": "NVSentinel",
    "node-drainer": "NVSentinel",
    "draino": "draino",
    "node-healthcheck-controller-manager": "Node Healthcheck Operator",
    "self-node-remediation-controller-manager": "Self Node Remediation",
}
RIVAL_GROUPS = {
    "remediation.medik8s.io": "Node Healthcheck Operator",
    "healthcheck.nvsentinel.nvidia.com": "NVSentinel",
}
NEEDED = (
    ("", "nodes", "patch"),
    ("", "pods", "list"),
    ("", "pods/eviction", "create"),
    ("policy", "poddisruptionbudgets", "watch"),
    ("gpuward.io", "gpuquarantines", "create"),
)
"""What the remediator cannot do without in the whole cluster: group, resource, verb. Beside it,
its lease.
"""


ADMISSION_POLICIES = (
    "gpuward-agent-node-fields",
    "gpuward-agent-own-events",
    "gpuward-agent-own-evidence",
    "gpuward-agent-own-node",
    "gpuward-node-keeps-mark",
    "gpuward-remediator-jobs",
    "gpuward-remediator-mark",
    "gpuward-remediator-record",
    "gpuward-remediator-unknown",
)
"""What base ships; each has a binding of its own name."""
_ADMISSION_PATH = "/apis/admissionregistration.k8s.io/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One line of the report."""

    verdict: str
    name: str
    found: str


async def preflight(cluster: Cluster, policy: Policy, *, namespace: str) -> list[Check]:
    """Every check; one that could not be made is a warning that says why."""
    checks: list[Check] = []
    steps: tuple[Callable[[], Awaitable[list[Check]]], ...] = (
        lambda: _version(cluster),
        lambda: _kinds(cluster),
        lambda: _nodes(cluster, policy),
        lambda: _daemon_sets(cluster, policy),
        lambda: _rivals(cluster),
        lambda: _leader(cluster, namespace),
        lambda: _permissions(cluster, namespace),
        lambda: _admission(cluster),
        lambda: _repair(cluster, policy.repair, namespace),
        lambda: _validation(cluster, policy.validate, namespace),
    )
    for step in steps:
        try:
            checks += await step()
        except CommandError as error:
            checks.append(Check(verdict=WARN, name="could not look", found=str(error)))
    return checks


def report(checks: Sequence[Check]) -> str:
    """One line for each check."""
    return "\n".join(printable(f"{c.verdict:4}  {c.name}: {c.found}") for c in checks)


async def _version(cluster: Cluster) -> list[Check]:
    version = await cluster.get("/version") or {}
    text = f"Kubernetes {version.get('major', '?')}.{version.get('minor', '?')}"
    digits = "".join(c for c in str(version.get("minor", "")) if c.isdigit())
    good = digits.isdigit() and int(digits) >= MINIMUM_MINOR
    remedy = "" if good else f"; gpuward needs 1.{MINIMUM_MINOR} or later"
    return [Check(verdict=OK if good else FAIL, name="API version", found=text + remedy)]


async def _kinds(cluster: Cluster) -> list[Check]:
    group = await cluster.get(GROUP_PATH) or {}
    served = {r["name"] for r in group.get("resources", ())}
    missing = [kind for kind in KINDS if kind not in served]
    if not missing:
        return [_fields(await cluster.get(OPENAPI_PATH) or {})]
    if len(missing) == len(KINDS):
        found = "not installed yet; kubectl apply -k daemonset brings them"
        return [Check(verdict=WARN, name="definitions", found=found)]
    found = f"missing {', '.join(missing)}; install them with kubectl apply -k daemonset/crds"
    return [Check(verdict=FAIL, name="definitions", found=found)]


def _fields(document: Mapping[str, Any]) -> Check:
    lost = unknown_fields(document)
    if not lost:
        return Check(verdict=OK, name="definitions", found=f"all {len(KINDS)} kinds are served")
    found = (
        f"older than this release: they drop {some(lost)}; bring them up to date with "
        "kubectl apply -k daemonset/crds"
    )
    return Check(verdict=FAIL, name="definitions", found=found)


async def _nodes(cluster: Cluster, policy: Policy) -> list[Check]:
    selected = await cluster.nodes(policy.node_selector)
    gpu_nodes = {n.name for label in GPU_LABELS for n in await cluster.nodes(label)}
    unseen = sorted(gpu_nodes - {node.name for node in selected})
    checks = [
        Check(
            verdict=OK if selected else WARN,
            name="nodes selected",
            found=f"{len(selected)} by {policy.node_selector!r}"
            + ("" if selected else "; agents label their nodes once they run"),
        )
    ]
    pools = NodePools(selected)
    spared = sorted(n.name for n in selected if control_plane(n) or pools.alone(n))
    if spared:
        found = (
            f"{some(spared)}: of the control plane or alone in a pool, so no detector takes them "
            'out of service; a person does: kubectl gpuward quarantine NODE --reason "..."'
        )
        checks.append(Check(verdict=WARN, name="nodes left to people", found=found))
    if unseen:
        checks.append(
            Check(
                verdict=WARN,
                name="GPU nodes without an agent's label",
                found=f"{len(unseen)}, such as {unseen[0]}; look at the agent's pods there",
            )
        )
    return checks


async def _daemon_sets(cluster: Cluster, policy: Policy) -> list[Check]:
    nodes = await cluster.nodes(policy.node_selector)
    daemon_sets = await cluster.daemon_sets()
    names = sorted({name for node in nodes for name in untolerating(node, daemon_sets)})
    if not names:
        found = "every GPU DaemonSet tolerates the quarantine taint"
        return [Check(verdict=OK, name="DaemonSets", found=found)]
    found = (
        f"{', '.join(names[:8])} do not tolerate gpuward.io/quarantine and could not come back on "
        "a quarantined node; add the toleration (the gpu-operator component shows how)"
    )
    return [Check(verdict=WARN, name="DaemonSets", found=found)]


async def _rivals(cluster: Cluster) -> list[Check]:
    found = set()
    for plural in ("deployments", "daemonsets"):
        page = await cluster.get(f"/apis/apps/v1/{plural}") or {}
        names = [item["metadata"]["name"] for item in page.get("items", ())]
        found |= {who for name in names for part, who in RIVAL_WORKLOADS.items() if part in name}
    groups = await cluster.get("/apis") or {}
    served = {group["name"] for group in groups.get("groups", ())}
    found |= {who for group, who in RIVAL_GROUPS.items() if group in served}
    if not found:
        return [Check(verdict=OK, name="other remediators", found="none known is installed")]
    text = f"{', '.join(sorted(found))}; let one of them act on GPU nodes, not two"
    return [Check(verdict=WARN, name="other remediators", found=text)]


async def _leader(cluster: Cluster, namespace: str) -> list[Check]:
    """Whether anybody would act: before the installation nobody does."""
    lease = await lease_of(cluster, namespace)
    if lease is None:
        found = f"none has led in namespace {namespace} yet; once installed, one does"
        return [Check(verdict=WARN, name="leader", found=found)]
    if nobody := nobody_leads(lease, namespace, cluster.now()):
        return [Check(verdict=WARN, name="leader", found=nobody)]
    found = f"{lease.spec.holder_identity or 'a remediator'} leads"
    return [Check(verdict=OK, name="leader", found=found)]


async def _permissions(cluster: Cluster, namespace: str) -> list[Check]:
    user = f"system:serviceaccount:{namespace}:{COMPONENT_REMEDIATOR}"
    lacking = []
    lease = ("coordination.k8s.io", "leases", "update", namespace, LEASE_NAME)
    # No namespace means all of them: a Role in one is not enough for the others.
    for group, resource, verb, where, name in [*((*each, "", "") for each in NEEDED), lease]:
        allowed = await cluster.may(user, group, resource, verb, where, name)
        if allowed is None:
            found = f"you may not ask for others' permissions; ask for the ClusterRole {PLANNER}"
            return [Check(verdict=WARN, name="permissions", found=found)]
        if not allowed:
            lacking.append(f"{verb} {resource}")
    if lacking:
        found = f"{user} may not {', '.join(lacking)}; apply the manifests of daemonset/base"
        return [Check(verdict=FAIL, name="permissions", found=found)]
    return [Check(verdict=OK, name="permissions", found=f"{user} may do what it needs")]


async def _admission(cluster: Cluster) -> list[Check]:
    """RBAC alone lets one agent write about every node: the policies hold it to its own."""
    there: dict[str, dict[str, Any]] = {}
    for plural in ("validatingadmissionpolicies", "validatingadmissionpolicybindings"):
        page = await cluster.get(f"{_ADMISSION_PATH}/{plural}") or {}
        there[plural] = {item["metadata"]["name"]: item for item in page.get("items", ())}
    policies, bindings = there.values()
    lacking = [name for name in ADMISSION_POLICIES if name not in policies]
    idle = [
        name
        for name in ADMISSION_POLICIES
        if name in policies and not _denies(bindings.get(name, {}), name)
    ]
    if not lacking and not idle:
        return [Check(verdict=OK, name="admission policies", found="all of base are in force")]
    parts = [f"missing {', '.join(lacking)}"] if lacking else []
    parts += [f"no binding that denies for {', '.join(idle)}"] if idle else []
    found = (
        f"{'; '.join(parts)}; without them a compromised agent or node can write more than its "
        "own part, apply the manifests of daemonset/base"
    )
    return [Check(verdict=WARN, name="admission policies", found=found)]


async def _repair(cluster: Cluster, repair: Repair, namespace: str) -> list[Check]:
    """What the adapters of the policy's steps need, one line for each adapter."""
    checks = []
    for adapter, actions in sorted(actions_in_use(repair).items()):
        lacking = [
            *await _not_served(cluster, actions),
            *await _no_template(cluster, actions, namespace),
            *await _not_granted(cluster, actions, namespace),
            *await _not_admitted(cluster, actions),
        ]
        if repair.fence is not None and repair.fence.out_of_service:
            lacking += await _not_out_of_service(cluster, actions)
        name = f"repair adapter {adapter}"
        if not lacking:
            steps = sorted(s for s, each in repair.steps.items() if each.adapter == adapter)
            found = f"what {', '.join(steps)} needs is there"
            checks.append(Check(verdict=OK, name=name, found=found))
            continue
        own = adapter in repair.adapters
        remedy = (
            "apply the component that gpuward-remediator policy rbac prints"
            if own
            else f"apply daemonset/components/{folder_of(adapter)} and install what it asks"
        )
        found = f"{'; '.join(dict.fromkeys(lacking))}; {remedy}"
        checks.append(Check(verdict=FAIL, name=name, found=found))
    return checks


async def _validation(cluster: Cluster, wanted: Validation, namespace: str) -> list[Check]:
    """What the tests under load need that the policy asks for, one line for each PodTemplate."""
    choices = [wanted.chosen(severity, "") for severity in ("", *wanted.severity)]
    choices += [wanted.chosen("", step) for step in wanted.step]
    checks = []
    user = f"system:serviceaccount:{namespace}:{COMPONENT_REMEDIATOR}"
    for template in sorted({choice.template for choice in choices if choice is not None}):
        lacking = []
        path = api_path("/api/v1/namespaces", namespace, "podtemplates", template)
        found = await cluster.get(path)
        if found is None:
            lacking.append(f"there is no PodTemplate {template} in {namespace}")
        spec = (found or {}).get("template", {}).get("spec", {})
        runtime, classes = spec.get("runtimeClassName"), "/apis/node.k8s.io/v1/runtimeclasses"
        if runtime and await cluster.get(api_path(classes, runtime)) is None:
            lacking.append(f"there is no RuntimeClass {runtime}")
        if await cluster.may(user, "batch", "jobs", "create", namespace) is False:
            lacking.append(f"the remediator may not create jobs.batch in {namespace}")
        told = (
            f"{'; '.join(lacking)}; apply daemonset/components/validate" if lacking else "is there"
        )
        verdict = FAIL if lacking else OK
        checks.append(Check(verdict=verdict, name=f"test under load {template}", found=told))
    return checks


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
    page = await cluster.get(f"{_ADMISSION_PATH}/validatingadmissionpolicies") or {}
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
    path = f"{_ADMISSION_PATH}/validatingadmissionpolicies/{MARK_POLICY}"
    spec = (await cluster.get(path) or {}).get("spec") or {}
    variables = {each.get("name"): each.get("expression") for each in spec.get("variables") or ()}
    if TAINT_OUT_OF_SERVICE in str(variables.get("fences", TAINT_OUT_OF_SERVICE)):
        return []
    return [f"policy {MARK_POLICY} does not name {TAINT_OUT_OF_SERVICE}, apply component fence"]


def _denies(binding: dict[str, Any], policy: str) -> bool:
    spec = binding.get("spec") or {}
    return spec.get("policyName") == policy and "Deny" in (spec.get("validationActions") or ())
