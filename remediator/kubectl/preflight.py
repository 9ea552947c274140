"""`kubectl gpuward preflight`: is this cluster ready, and what would get in the way.

Each check is one line: ok, warn or FAIL, what was found, and the remedy. It only reads.
"""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from remediator.kube.resources import AGENT_SELECTOR, DAEMON_SETS, REMEDIATOR_SELECTOR
from remediator.kubectl.cluster import GROUP_PATH, Cluster
from remediator.kubectl.command import Answer, CommandError, Terminal
from remediator.kubectl.leading import leadership
from remediator.kubectl.node_look import has_gpus
from remediator.kubectl.policy_in_force import judged_by, unread_said
from remediator.kubectl.preflight_needs import (
    FAIL,
    OK,
    OPENAPI_PATH,
    WARN,
    Check,
    Installation,
    admission,
    one,
    permissions,
    repair,
    unknown_fields,
    validation,
)
from rules.api.mark import marked
from rules.api.names import API_VERSION, COMPONENT_AGENT
from rules.api.object_name import api_path
from rules.api.sentences import some
from rules.drain.daemon_sets import untolerating
from rules.fleet.pools import NodePools, control_plane
from rules.policy.policy import Policy
from rules.policy.reader import unknown_reasons
from rules.text.printable import printable

MINIMUM_MINOR: Final = 32
KINDS: Final = (
    "gpuevidences", "gpunodehealths", "gpuquarantines", "gpurecords", "gpuwardpauses",
)  # fmt: skip
OTHER_REMEDIATORS: Final = {
    "fault-quarantine": "NVSentinel",
    "node-drainer": "NVSentinel",
    "draino": "draino",
    "node-healthcheck-controller-manager": "Node Healthcheck Operator",
    "self-node-remediation-controller-manager": "Self Node Remediation",
}
"""Other remediation controllers, by a part of their workload's name."""


async def preflight(cluster: Cluster, options: argparse.Namespace, _: Terminal) -> Answer:
    """Ready or not; CommandError with the report when not."""
    wrong: list[Check] = []
    policy: Policy | None = None
    try:
        policy, _source = await judged_by(cluster, options)
    except CommandError as error:
        if not error.unusable:
            raise
        wrong = [Check(verdict=FAIL, name="policy", found=str(error))]
    found = [*await checks(cluster, policy or Policy(), options.namespace), *wrong]
    report: Answer = (
        [
            {
                "apiVersion": API_VERSION, "kind": "PreflightCheck",
                "metadata": {"name": check.name}, "verdict": check.verdict, "found": check.found,
            }
            for check in found
        ]
        if options.output
        else "\n".join(printable(f"{c.verdict:4}  {c.name}: {c.found}") for c in found)
    )  # fmt: skip
    if failed := sum(check.verdict == FAIL for check in found):
        raise CommandError(f"not ready: {failed} of {len(found)} checks failed", report=report)
    return report


async def checks(cluster: Cluster, policy: Policy, namespace: str) -> list[Check]:
    """Every check; one that could not be made is a warning that says why."""
    here = await _installation(cluster, namespace)
    in_cluster: tuple[tuple[str, Callable[[], Awaitable[list[Check]]]], ...] = (
        ("API version", partial(_version, cluster)),
        ("definitions", partial(_definitions, cluster)),
        ("nodes", partial(_nodes, cluster, policy, here)),
        ("DaemonSets", partial(_daemon_sets, cluster, policy)),
        ("other remediators", partial(_others, cluster)),
        ("agents", partial(_agents, cluster, here)),
    )
    in_place: tuple[tuple[str, Callable[[], Awaitable[list[Check]]]], ...] = (
        ("leader", partial(_leader, cluster, here)),
        ("permissions", partial(permissions, cluster, policy, here)),
        ("admission policies", partial(admission, cluster, here)),
        ("repair", partial(repair, cluster, policy, here)),
        ("test under load", partial(validation, cluster, policy, here)),
    )
    found = [Check(verdict=WARN, name="policy", found=note) for note in unknown_reasons(policy)]
    elsewhere = sorted(here.spaces or ()) if namespace not in (here.spaces or ()) else []
    if elsewhere:
        at = (
            f"gpuward is installed in {some(elsewhere)}, not in {namespace}; what depends on that "
            f"was not looked at, add -n {elsewhere[0]}"
        )
        found.append(Check(verdict=FAIL, name="namespace", found=at))
    for name, check in in_cluster if elsewhere else (*in_cluster, *in_place):
        try:
            found += await check()
        except CommandError as error:
            found.append(Check(verdict=WARN, name=name, found=f"could not look: {error}"))
    return found


async def _installation(cluster: Cluster, namespace: str) -> Installation:
    """Look in all namespaces: a forgotten `-n` must not look like a broken installation."""
    known = await cluster.get(GROUP_PATH) is not None
    deployments = "/apis/apps/v1/deployments"
    try:
        agents = await cluster.everything(DAEMON_SETS, {"labelSelector": AGENT_SELECTOR})
        others = await cluster.everything(deployments, {"labelSelector": REMEDIATOR_SELECTOR})
    except CommandError as error:
        if not error.forbidden:
            raise
        return Installation(namespace=namespace, definitions=known, spaces=None, agents={})
    by_space = {str(one["metadata"].get("namespace")): one for one in agents}
    spaces = {*by_space, *(str(one["metadata"].get("namespace")) for one in others)}
    return Installation(
        namespace=namespace, definitions=known, spaces=frozenset(spaces),
        agents=by_space.get(namespace, {}),
    )  # fmt: skip


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
    if len(missing) == len(KINDS):
        return one("definitions", "not installed yet; kubectl apply -k daemonset brings them")
    lost = () if missing else unknown_fields(await cluster.get(OPENAPI_PATH) or {})
    if not missing and not lost:
        return one("definitions", f"all {len(KINDS)} kinds are served", OK)
    what = f"missing {', '.join(missing)}" if missing else f"they drop {some(lost)}"
    remedy = "bring them up to date with kubectl apply -k daemonset/crds"
    return one("definitions", f"older than this release: {what}; {remedy}", FAIL)


async def _nodes(cluster: Cluster, policy: Policy, here: Installation) -> list[Check]:
    every, selected = await cluster.nodes(), await cluster.nodes(policy.node_selector)
    chosen = {node.name for node in selected}
    unseen = sorted(n.name for n in every if n.name not in chosen and has_gpus(n))
    if here.fresh and not selected:
        found = f"{len(unseen)} by the labels of others; agents label them once they run"
        return one("GPU nodes", found, OK if unseen else WARN)
    found = f"{len(selected)} by {policy.node_selector!r}"
    found += "" if selected else "; agents label their nodes once they run"
    checks = one("nodes selected", found, OK if selected else WARN)
    pools = NodePools.of(selected)
    if spared := sorted(n.name for n in selected if control_plane(n) or pools.alone(n)):
        checks += one(
            "nodes left to people",
            f"{some(spared)}: of the control plane or alone in a pool, so no detector takes them "
            'out of service; a person does: kubectl gpuward quarantine NODE --reason "..."',
        )
    if unseen:
        found = f"{len(unseen)}, such as {unseen[0]}; look at the agent's pods there"
        checks += one("GPU nodes without an agent's label", found)
    led = (await leadership(cluster, here.namespace)).lease is not None
    left = sorted(node.name for node in every if marked(node))
    if left and not led and here.spaces == frozenset():
        checks += one(
            "marks left behind",
            f"{some(left)}: gpuward took them out of service and is not there to give them back; "
            "an installation takes up from there, kubectl gpuward uninstall takes the marks off",
        )
    return checks


async def _daemon_sets(cluster: Cluster, policy: Policy) -> list[Check]:
    nodes, daemon_sets = await cluster.nodes(policy.node_selector), await cluster.daemon_sets()
    names = sorted({name for node in nodes for name in untolerating(node, daemon_sets)})
    if not names:
        return one("DaemonSets", "every GPU DaemonSet tolerates the quarantine taint", OK)
    return one(
        "DaemonSets",
        f"{some(names)} do not tolerate gpuward.io/quarantine and could not come back on a "
        "quarantined node; add the toleration (the gpu-operator component shows how)",
    )


async def _others(cluster: Cluster) -> list[Check]:
    found = set()
    for plural in ("deployments", "daemonsets"):
        page = await cluster.get(f"/apis/apps/v1/{plural}") or {}
        names = [item["metadata"]["name"] for item in page.get("items", ())]
        found |= {who for name in names for part, who in OTHER_REMEDIATORS.items() if part in name}
    if not found:
        return one("other remediators", "none known is installed", OK)
    text = f"{', '.join(sorted(found))}; let one of them act on GPU nodes, not two"
    return one("other remediators", text)


async def _agents(cluster: Cluster, here: Installation) -> list[Check]:
    """Whether the agents' pods are made and ready."""
    if not here.agents:
        return []  # none yet, or outside the cluster: their nodes tell
    status = here.agents.get("status") or {}
    wanted, made, ready = (
        int(status.get(key) or 0)
        for key in ("desiredNumberScheduled", "currentNumberScheduled", "numberReady")
    )
    if not wanted:
        why = "the DaemonSet finds no node that has GPUs by its labels (docs/install.md)"
        return one("agents", why)
    if ready >= wanted:
        return one("agents", f"{ready} of {wanted} are ready", OK)
    if made >= wanted:
        look = f"kubectl -n {here.namespace} get pods -o wide -l {AGENT_SELECTOR}"
        return one("agents", f"{wanted - ready} of {wanted} are not ready; see {look}")
    events = api_path("/api/v1/namespaces", here.namespace) + "/events"
    about = f"involvedObject.name={COMPONENT_AGENT},reason=FailedCreate"
    refused = [
        str(e.get("message")) for e in await cluster.everything(events, {"fieldSelector": about})
    ]
    why = f": {printable(refused[-1])[:400]}" if refused else ""
    if "violates PodSecurity" in why:
        label = "pod-security.kubernetes.io/enforce=privileged"
        why += f". Run kubectl label --overwrite namespace {here.namespace} {label}"
    look = f"get events --field-selector involvedObject.name={COMPONENT_AGENT}"
    lacks = f"{wanted - made} of {wanted} pods are not made{why}"
    return one("agents", f"{lacks}; see kubectl -n {here.namespace} {look}")


async def _leader(cluster: Cluster, here: Installation) -> list[Check]:
    """Whether anybody would act: before the installation nobody does."""
    found = await leadership(cluster, here.namespace)
    if found.hidden:
        return one("leader", found.never_said or "the Lease cannot be read")
    if found.lease is None:
        then = "none has led yet"
        if here.namespace in (here.spaces or ()):
            look = f"kubectl -n {here.namespace} get pods -l {REMEDIATOR_SELECTOR}"
            return one(
                "leader", f"gpuward is installed in {here.namespace} and {then}; see {look}"
            )
        return one("leader", f"in namespace {here.namespace} {then}; once installed, one does")
    if found.nobody:
        return one("leader", found.nobody)
    leader = found.lease.spec.holder_identity or "a remediator"
    if found.cannot_act:
        return one("leader", f"{leader} leads and {found.cannot_act}", FAIL)
    if unread := unread_said(found.word):
        return one("leader", f"{leader} leads: {unread}", FAIL)
    return one("leader", f"{leader} leads", OK)
