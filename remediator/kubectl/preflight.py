"""`kubectl gpuward preflight`: is this cluster ready, and what would get in the way.

Each check is one line: ok, warn or FAIL, what was found, and the remedy. It only reads.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from remediator.kube.elector import LEASE_NAME
from remediator.kube.resources import REMEDIATOR_SELECTOR
from remediator.kubectl.cluster import GROUP_PATH, Cluster
from remediator.kubectl.command import PLANNER, CommandError
from remediator.kubectl.leading import lease_of, nobody_leads, unable_since
from remediator.kubectl.ready.adapters import repair_checks, validation_checks
from remediator.kubectl.ready.check import ADMISSION_PATH, FAIL, OK, WARN, Check
from remediator.kubectl.ready.definitions import OPENAPI_PATH, unknown_fields
from remediator.kubectl.ready.installation import (
    Installation,
    agents_check,
    find_installation,
    place_check,
)
from remediator.kubectl.ready.nodes_said import left_checks, unheard_checks
from remediator.kubectl.ready.policy_edited import policy_checks
from remediator.kubectl.ready.policy_said import unread_said
from remediator.view.gpu_nodes import has_gpus
from rules.api.leaders_word import leaders_word
from rules.api.names import COMPONENT_REMEDIATOR
from rules.api.sentences import some
from rules.drain.daemon_sets import untolerating
from rules.fleet.pools import NodePools, control_plane
from rules.policy.components import FORCE, asked_components
from rules.policy.policy import Policy
from rules.policy.reader import unknown_reasons
from rules.text.printable import printable

MINIMUM_MINOR = 32
KINDS = ("gpuevidences", "gpunodehealths", "gpuquarantines", "gpurecords", "gpuwardpauses")
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
    ("gpuward.io", "gpuquarantines/status", "patch"),
)
"""What the remediator cannot do without in the whole cluster: group, resource, verb. Beside it,
its lease.
"""
FORCE_NEEDS = (("", "pods", "delete"), ("", "pods/status", "patch"))
"""What `drain.onTimeout: Force` needs beside it."""
TELLS = {
    ("", "events", "create"): "no Event tells anybody what it does",
    ("gpuward.io", "gpurecords", "create"): "no GPURecord is written",
    ("gpuward.io", "gpurecords/status", "patch"): "no GPURecord is written",
}
"""What nodes are treated as ever without, and what happens then, a clause."""


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


async def preflight(cluster: Cluster, policy: Policy, *, namespace: str) -> list[Check]:
    """Every check; one that could not be made is a warning that says why."""
    here = await find_installation(cluster, namespace)
    steps: tuple[tuple[str, Callable[[], Awaitable[list[Check]]]], ...] = (
        ("API version", lambda: _version(cluster)),
        ("definitions", lambda: _kinds(cluster)),
        ("nodes", lambda: _nodes(cluster, policy, here)),
        ("opt-out", lambda: unheard_checks(cluster)),
        ("marks left behind", lambda: left_checks(cluster, here)),
        ("DaemonSets", lambda: _daemon_sets(cluster, policy)),
        ("other remediators", lambda: _rivals(cluster)),
    )
    in_place: tuple[tuple[str, Callable[[], Awaitable[list[Check]]]], ...] = (
        ("policy", lambda: policy_checks(cluster, namespace)),
        ("reasons", lambda: _reasons(policy)),
        ("leader", lambda: _leader(cluster, here)),
        ("permissions", lambda: _permissions(cluster, policy, here)),
        ("admission policies", lambda: _admission(cluster, here)),
        ("repair", lambda: repair_checks(cluster, policy, namespace)),
        ("test under load", lambda: validation_checks(cluster, policy, namespace)),
    )
    checks = await _made(steps)
    checks += [*place_check(here), *agents_check(here)]
    return checks if here.elsewhere else checks + await _made(in_place)


async def _made(
    steps: Sequence[tuple[str, Callable[[], Awaitable[list[Check]]]]],
) -> list[Check]:
    checks: list[Check] = []
    for name, step in steps:
        try:
            checks += await step()
        except CommandError as error:
            checks.append(Check(verdict=WARN, name=name, found=f"could not look: {error}"))
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


async def _reasons(policy: Policy) -> list[Check]:
    return [Check(verdict=WARN, name="policy", found=note) for note in unknown_reasons(policy)]


async def _kinds(cluster: Cluster) -> list[Check]:
    group = await cluster.get(GROUP_PATH) or {}
    served = {r["name"] for r in group.get("resources", ())}
    missing = [kind for kind in KINDS if kind not in served]
    if not missing:
        return [_fields(await cluster.get(OPENAPI_PATH) or {})]
    if len(missing) == len(KINDS):
        found = "not installed yet; kubectl apply -k daemonset brings them"
        return [Check(verdict=WARN, name="definitions", found=found)]
    found = (
        f"older than this release: missing {', '.join(missing)}; before an upgrade that is what "
        "it brings, after one bring them with kubectl apply -k daemonset/crds"
    )
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


async def _nodes(cluster: Cluster, policy: Policy, here: Installation) -> list[Check]:
    selected = await cluster.nodes(policy.node_selector)
    chosen = {node.name for node in selected}
    unseen = sorted(n.name for n in await cluster.nodes() if n.name not in chosen and has_gpus(n))
    if here.fresh and not selected:
        found = f"{len(unseen)} by the labels of others; agents label them once they run"
        return [Check(verdict=OK if unseen else WARN, name="GPU nodes", found=found)]
    checks = [
        Check(
            verdict=OK if selected else WARN,
            name="nodes selected",
            found=f"{len(selected)} by {policy.node_selector!r}"
            + ("" if selected else "; agents label their nodes once they run"),
        )
    ]
    pools = NodePools.of(selected)
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


async def _leader(cluster: Cluster, here: Installation) -> list[Check]:
    """Whether anybody would act: before the installation nobody does."""
    namespace = here.namespace
    lease = await lease_of(cluster, namespace)
    if lease is None and namespace in (here.spaces or ()):
        look = f"kubectl -n {namespace} get pods -l {REMEDIATOR_SELECTOR}"
        found = f"gpuward is installed in {namespace} and none has led yet; see {look}"
        return [Check(verdict=WARN, name="leader", found=found)]
    if lease is None:
        found = f"none has led in namespace {namespace} yet; once installed, one does"
        return [Check(verdict=WARN, name="leader", found=found)]
    if nobody := nobody_leads(lease, namespace, cluster.now()):
        return [Check(verdict=WARN, name="leader", found=nobody)]
    leader = lease.spec.holder_identity or "a remediator"
    word = leaders_word(lease.metadata.annotations)
    if cannot := unable_since(word, cluster.now()):
        return [Check(verdict=FAIL, name="leader", found=f"{leader} leads and {cannot}")]
    if unread := unread_said(word):
        return [Check(verdict=FAIL, name="leader", found=f"{leader} leads: {unread}")]
    found = f"{leader} leads"
    return [Check(verdict=OK, name="leader", found=found)]


async def _permissions(cluster: Cluster, policy: Policy, here: Installation) -> list[Check]:
    namespace = here.namespace
    user = f"system:serviceaccount:{namespace}:{COMPONENT_REMEDIATOR}"
    lacking = []
    lease = ("coordination.k8s.io", "leases", "update", namespace, LEASE_NAME)
    asked = {each.component for each in asked_components(policy)}
    forces = FORCE_NEEDS if FORCE in asked else ()
    # No namespace means all of them: a Role in one is not enough for the others.
    everywhere = [(*each, "", "") for each in (*NEEDED, *forces, *TELLS)]
    for group, resource, verb, where, name in [*everywhere, lease]:
        allowed = await cluster.may(user, group, resource, verb, where, name)
        if allowed is None:
            found = f"you may not ask for others' permissions; ask for the ClusterRole {PLANNER}"
            return [Check(verdict=WARN, name="permissions", found=found)]
        if not allowed:
            lacking.append(f"{verb} {resource}")
    if lacking and here.fresh:
        found = f"none yet for {user}; the installation brings them"
        return [Check(verdict=WARN, name="permissions", found=found)]
    by_force = [f"{verb} {resource}" for _, resource, verb in forces]
    if lacking and set(lacking) <= set(by_force):
        found = (
            f"{user} may not {', '.join(lacking)}, so drain.onTimeout: Force forces nothing; "
            "apply component force, or say Report"
        )
        return [Check(verdict=FAIL, name="permissions", found=found)]
    untold = {f"{verb} {resource}": then for (_, resource, verb), then in TELLS.items()}
    if lacking and set(lacking) <= set(untold):
        then = " and ".join(dict.fromkeys(untold[lack] for lack in lacking))
        found = (
            f"{user} may not {', '.join(lacking)}, so {then}, nodes are treated as ever; "
            "apply the manifests of daemonset/base"
        )
        return [Check(verdict=WARN, name="permissions", found=found)]
    if lacking:
        found = f"{user} may not {', '.join(lacking)}; apply the manifests of daemonset/base"
        return [Check(verdict=FAIL, name="permissions", found=found)]
    return [Check(verdict=OK, name="permissions", found=f"{user} may do what it needs")]


async def _admission(cluster: Cluster, here: Installation) -> list[Check]:
    """RBAC alone lets one agent write about every node: the policies hold it to its own."""
    there: dict[str, dict[str, Any]] = {}
    for plural in ("validatingadmissionpolicies", "validatingadmissionpolicybindings"):
        page = await cluster.get(f"{ADMISSION_PATH}/{plural}") or {}
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
    if here.fresh and len(lacking) == len(ADMISSION_POLICIES):
        found = "none yet; the installation brings them"
        return [Check(verdict=WARN, name="admission policies", found=found)]
    parts = [f"missing {', '.join(lacking)}"] if lacking else []
    parts += [f"no binding that denies for {', '.join(idle)}"] if idle else []
    found = (
        f"{'; '.join(parts)}; without them a compromised agent or node can write more than its "
        "own part, apply the manifests of daemonset/base"
    )
    return [Check(verdict=WARN, name="admission policies", found=found)]


def _denies(binding: dict[str, Any], policy: str) -> bool:
    spec = binding.get("spec") or {}
    return spec.get("policyName") == policy and "Deny" in (spec.get("validationActions") or ())
