"""`kubectl gpuward preflight`: check whether the cluster is ready for gpuward.

Each check is one line: ok, warn or FAIL, what was found, and the remedy. It only reads. Before the
installation nothing is checked that the installation brings.
"""

import argparse
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from remediator.kube import elector, resources
from remediator.kubectl import (
    command,
    in_force,
    node_state,
    preflight_devices,
    preflight_gangs,
    preflight_policies,
    preflight_repair,
)
from remediator.kubectl.cluster import GROUP_PATH, Cluster
from remediator.kubectl.command import Answer, CommandError, Terminal
from remediator.kubectl.preflight_policies import Finding
from rules.api import messages
from rules.api.names import API_VERSION, COMPONENT_REMEDIATOR, CONDITION_DRAINED
from rules.api.nodes import NodeView
from rules.drain import node_room
from rules.policy import components, reader
from rules.policy.policy import Policy
from rules.repair.component import UNKNOWN_POLICY
from rules.text.printable import printable

OK: Final = "ok"
WARN: Final = "warn"
FAIL: Final = "FAIL"
MINIMUM_MINOR: Final = 32
KINDS: Final = (
    "gpuevidences", "gpunodehealths", "gpuquarantines", "gpurecords", "gpuwardpauses",
)  # fmt: skip
ADMISSION_POLICIES: Final = (
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
NEEDED: Final = (
    ("", "nodes", "patch"),
    ("", "pods", "list"),
    ("", "pods", "watch"),
    ("", "pods/eviction", "create"),
    ("policy", "poddisruptionbudgets", "watch"),
    ("gpuward.io", "gpuquarantines", "create"),
    ("gpuward.io", "gpuquarantines/status", "patch"),
    ("", "events", "create"),
    ("gpuward.io", "gpurecords", "create"),
    ("gpuward.io", "gpurecords/status", "patch"),
)
"""Rights of the remediator in the entire cluster: group, resource, verb."""
FORCE_NEEDS: Final = (("", "pods", "delete"), ("", "pods/status", "patch"))
"""What `drain.onTimeout: Force` needs as well."""
_NOTICE_NEEDS: Final = ("", "pods/status", "patch")
_TAINT_NEEDS: Final = ("resource.k8s.io", "resourceslices", "watch")
_MANIFESTS: Final = "apply the manifests of daemonset/base"


class Check(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What was found about one thing, and the remedy; as `-o json` has it."""

    api_version: str = API_VERSION
    kind: str = "PreflightCheck"
    metadata: dict[str, str]
    result: str = msgspec.field(name="verdict")
    found: str


def one(name: str, found: str, result: str = WARN) -> list[Check]:
    """A report of one line."""
    return [Check(metadata={"name": name}, result=result, found=found)]


async def preflight(cluster: Cluster, options: argparse.Namespace, _: Terminal) -> Answer:
    """Ready or not; CommandError with the report when not."""
    wrong: list[Check] = []
    policy: Policy | None = None
    try:
        policy, _source = await in_force.judged_by(cluster, options)
    except CommandError as error:
        if not error.unusable:
            raise
        wrong = one("policy", str(error), FAIL)
    found = [*await checks(cluster, policy or Policy(), options.namespace), *wrong]
    lines = [f"{check.result:4}  {check.metadata['name']}: {check.found}" for check in found]
    report: Answer = (
        msgspec.to_builtins(found) if options.output else "\n".join(map(printable, lines))
    )
    if failed := sum(check.result == FAIL for check in found):
        raise CommandError(f"not ready: {failed} of {len(found)} checks failed", report=report)
    return report


async def checks(cluster: Cluster, policy: Policy, namespace: str) -> list[Check]:
    """Run every check; one that fails to run is a warning with the reason."""
    spaces, agents = await _installed(cluster, namespace)
    user = f"system:serviceaccount:{namespace}:{COMPONENT_REMEDIATOR}"
    notes = await preflight_policies.of_each(
        policy, (), lambda one: (one.reasons, one.external), _unknown_reasons
    )
    found = _lines(notes, WARN)
    to_make: list[tuple[str, Callable[[], Awaitable[list[Check]]]]] = [
        ("API version", partial(_version, cluster)),
        ("nodes", partial(_nodes, cluster, policy)),
        ("DaemonSets", partial(_daemon_sets, cluster, policy)),
        ("definitions", partial(_definitions, cluster)),
    ]
    fresh = spaces == set() and await cluster.get(GROUP_PATH) is None
    if fresh:
        del to_make[-1]
        found += one("gpuward", "not installed yet; kubectl apply -k daemonset installs it")
    elif spaces and namespace not in spaces:
        elsewhere = sorted(spaces)
        at = (
            f"gpuward is installed in {messages.name_list(elsewhere)}, not in {namespace}; what "
            f"depends on that was not checked, add -n {elsewhere[0]}"
        )
        found += one("namespace", at, FAIL)
    else:
        to_make += [
            ("agents", partial(_agents, cluster, policy, agents, namespace)),
            ("leader", partial(_leader, cluster, namespace)),
            ("permissions", partial(_permissions, cluster, policy, namespace, user)),
            ("admission policies", partial(_admission, cluster, policy)),
            ("repair", partial(_repair, cluster, policy, namespace, user)),
            ("device taints", partial(_devices, cluster, policy, user)),
            ("test under load", partial(_validation, cluster, policy, namespace, user)),
        ]
    for name, check in to_make:
        try:
            found += await check()
        except CommandError as error:
            found += one(name, f"the check failed to run: {error}")
    return found


async def _unknown_reasons(policy: Policy, _: Sequence[NodeView]) -> list[Finding]:
    return [("policy", note, False) for note in reader.unknown_reasons(policy)]


async def _installed(cluster: Cluster, namespace: str) -> tuple[set[str] | None, dict[str, Any]]:
    """Namespaces with workloads of gpuward, None where they may not be listed, and the status of
    the agents' DaemonSet in `namespace`. All namespaces, since `-n` is easily forgotten.
    """
    deployments = "/apis/apps/v1/deployments"
    try:
        agents = await cluster.everything(
            resources.DAEMON_SETS, {"labelSelector": resources.AGENT_SELECTOR}
        )
        others = await cluster.everything(
            deployments, {"labelSelector": resources.REMEDIATOR_SELECTOR}
        )
    except CommandError as error:
        if not error.forbidden:
            raise
        return None, {}
    spaces = {str(each["metadata"].get("namespace")) for each in (*agents, *others)}
    here = (each for each in agents if each["metadata"].get("namespace") == namespace)
    return spaces, next(here, {}).get("status") or {}


async def _version(cluster: Cluster) -> list[Check]:
    version = await cluster.get("/version") or {}
    text = f"Kubernetes {version.get('major', '?')}.{version.get('minor', '?')}"
    digits = "".join(c for c in str(version.get("minor", "")) if c.isdigit())
    if digits and int(digits) >= MINIMUM_MINOR:
        return one("API version", text, OK)
    return one("API version", f"{text}; gpuward needs 1.{MINIMUM_MINOR} or later", FAIL)


async def _definitions(cluster: Cluster) -> list[Check]:
    group = await cluster.get(GROUP_PATH) or {}
    served = {r["name"] for r in group.get("resources", ())}
    missing = [kind for kind in KINDS if kind not in served]
    if not missing:
        return one("definitions", f"all {len(KINDS)} kinds are served", OK)
    remedy = "update them with kubectl apply -k daemonset/crds"
    return one("definitions", f"missing {', '.join(missing)}; {remedy}", FAIL)


async def _nodes(cluster: Cluster, policy: Policy) -> list[Check]:
    every, selected = await cluster.nodes(), await cluster.nodes(policy.node_selector)
    chosen = {node.name for node in selected}
    missed = sorted(n.name for n in every if n.name not in chosen and node_state.has_gpus(n))
    found = f"{len(selected)} by {policy.node_selector!r}"
    found += "" if selected else "; agents label their nodes once they run"
    checks = one("nodes selected", found, OK if selected else WARN)
    if missed:
        found = f"{len(missed)}, such as {missed[0]}; check the agent's pods there"
        checks += one("GPU nodes without an agent's label", found)
    checks += _lines(preflight_policies.pool_checks(policy, selected), WARN)
    return [*checks, *_lines(preflight_policies.overlap_checks(policy, selected))]


async def _daemon_sets(cluster: Cluster, policy: Policy) -> list[Check]:
    nodes, daemon_sets = await cluster.nodes(policy.node_selector), await cluster.daemon_sets()
    names = sorted({name for node in nodes for name in node_room.untolerating(node, daemon_sets)})
    if not names:
        return one("DaemonSets", "every GPU DaemonSet tolerates the quarantine taint", OK)
    return one(
        "DaemonSets",
        f"{messages.name_list(names)} do not tolerate gpuward.io/quarantine and could "
        "not come back on a quarantined node; add the toleration (the gpu-operator component "
        "shows how)",
    )


async def _agents(
    cluster: Cluster, policy: Policy, status: Mapping[str, Any], namespace: str
) -> list[Check]:
    """Whether the agents' pods are made and ready."""
    wanted, made, ready = (
        int(status.get(key) or 0)
        for key in ("desiredNumberScheduled", "currentNumberScheduled", "numberReady")
    )
    if not status:
        return []  # they run outside the cluster: their nodes tell
    if not wanted:
        nodes = await cluster.nodes(policy.node_selector)
        if nodes and not any(map(node_state.has_gpus, nodes)):
            return one("agents", "no selected node has NVIDIA GPUs, so none needs an agent", OK)
        why = "the DaemonSet finds no node that has GPUs by its labels (docs/install.md)"
        return one("agents", why)
    if ready >= wanted:
        return one("agents", f"{ready} of {wanted} are ready", OK)
    pods = f"kubectl -n {namespace} get pods -o wide -l {resources.AGENT_SELECTOR}"
    if made >= wanted:
        return one("agents", f"{wanted - ready} of {wanted} are not ready; see {pods}")
    events = f"kubectl -n {namespace} get events --field-selector reason=FailedCreate"
    return one(
        "agents", f"{wanted - made} of {wanted} pods are not created; for the reason: {events}"
    )


async def _leader(cluster: Cluster, namespace: str) -> list[Check]:
    """Whether a remediator acts."""
    found = await in_force.leadership(cluster, namespace)
    if found.hidden:
        return one("leader", found.never_led or "the Lease cannot be read")
    if found.lease is None or found.no_leader:
        return one("leader", found.no_leader or found.never_led)
    leader = found.lease.spec.holder_identity or "a remediator"
    if found.cannot_act:
        return one("leader", f"{leader} leads and {found.cannot_act}", FAIL)
    if unread := in_force.unread_policy(found.status):
        return one("leader", f"{leader} leads: {unread}", FAIL)
    return one("leader", f"{leader} leads", OK)


async def _permissions(cluster: Cluster, policy: Policy, namespace: str, user: str) -> list[Check]:
    """Whether RBAC lets the remediator do its work."""
    forced = any(components.asks(one, components.FORCE) for one in policy.policies)
    forces = FORCE_NEEDS if forced else ()
    lacking = []
    # No namespace means all of them: a Role in one is not enough for the others.
    lease = ("coordination.k8s.io", "leases", "update", namespace, elector.LEASE_NAME)
    needed = (*NEEDED, *forces, *([_TAINT_NEEDS] if policy.taint_drivers else ()))
    for right in [*((*each, "", "") for each in needed), lease]:
        allowed = await cluster.may(user, *right)
        if allowed is None:
            ask = f"ask for the ClusterRole {command.PLANNER}"
            return one("permissions", f"you may not ask for others' permissions; {ask}")
        if not allowed:
            lacking.append(right[:3])
    silent: list[Check] = []
    noticed = any(one.drain.notice_s for one in policy.policies)
    if noticed and not await cluster.may(user, *_NOTICE_NEEDS, ""):
        why = f"{user} may not patch pods/status, so pods are not notified before a drain"
        silent = one("notice", f"{why}; apply component notice, or remove drain.notice")
    if not lacking:
        return [*one("permissions", f"{user} has all required permissions", OK), *silent]
    lacks = f"{user} may not {', '.join(f'{verb} {what}' for _, what, verb in lacking)}"
    force = "apply component force, or set drain.onTimeout: Report"
    remedy = force if set(lacking) <= set(forces) else _MANIFESTS
    return [*one("permissions", f"{lacks}; {remedy}", FAIL), *silent]


async def _admission(cluster: Cluster, policy: Policy) -> list[Check]:
    """RBAC alone lets one agent write about every node: the policies hold it to its own."""
    policies = await preflight_repair.by_name(cluster, "validatingadmissionpolicies")
    bindings = await preflight_repair.by_name(cluster, "validatingadmissionpolicybindings")
    specs = {name: bindings.get(name, {}).get("spec") or {} for name in policies}
    idle = [
        name
        for name in ADMISSION_POLICIES
        if (spec := specs.get(name, {})).get("policyName") != name
        or "Deny" not in (spec.get("validationActions") or ())
    ]
    unnamed: list[Check] = []
    asked = any(one.drain.node_conditions for one in policy.policies)
    if asked and CONDITION_DRAINED not in str(policies.get(UNKNOWN_POLICY, {}).get("spec")):
        why = f"{UNKNOWN_POLICY} does not name the conditions of drain.nodeConditions"
        unnamed = one("node conditions", f"{why}; apply component {components.LIFECYCLE}")
    if not idle:
        return [*one("admission policies", "all policies of base are in force", OK), *unnamed]
    why = "without them a compromised agent or node can write to objects of other nodes"
    text = f"not in force: {', '.join(idle)}; {why}, {_MANIFESTS}"
    return [*one("admission policies", text), *unnamed]


async def _repair(cluster: Cluster, policy: Policy, namespace: str, user: str) -> list[Check]:
    """Whether the adapters of the repair steps can work, one line for each adapter."""

    async def check(one: Policy, _: Sequence[NodeView]) -> list[Finding]:
        return await preflight_repair.adapter_checks(cluster, one, namespace, user)

    return _lines(await preflight_policies.of_each(policy, (), lambda one: one.repair, check))


async def _validation(cluster: Cluster, policy: Policy, namespace: str, user: str) -> list[Check]:
    """Whether the test under load can run."""

    async def check(one: Policy, _: Sequence[NodeView]) -> list[Finding]:
        return await preflight_repair.validation_checks(cluster, one, namespace, user)

    return _lines(await preflight_policies.of_each(policy, (), lambda one: one.validate, check))


async def _devices(cluster: Cluster, policy: Policy, user: str) -> list[Check]:
    """What `isolate: Device`, drain scope Holders and native gangs depend on."""
    found: list[Finding] = []
    if any(any(preflight_devices.asked(one)) for one in policy.policies):
        nodes = await cluster.nodes(policy.node_selector)
        check = partial(preflight_devices.device_checks, cluster, user)
        found = await preflight_policies.of_each(policy, nodes, preflight_devices.asked, check)
    return _lines([*found, *await preflight_gangs.gang_checks(cluster, user)], WARN)


def _lines(found: Iterable[Finding], bad: str = FAIL) -> list[Check]:
    return [each for name, text, ok in found for each in one(name, text, OK if ok else bad)]
