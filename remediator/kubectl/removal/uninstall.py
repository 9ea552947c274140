"""`kubectl gpuward uninstall`: stop our programs and what they run or asked of others, then take
every mark and label off every node.

The second command, `kubectl delete -k`, removes CRDs and namespace first, so everything that needs
them happens here. Each step can be repeated; what people wrote and what others own stays and is
named.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from remediator.kubectl.cluster import NOT_ENDED, Cluster
from remediator.kubectl.command import CommandError
from remediator.kubectl.removal.asked import withdraw
from remediator.kubectl.removal.jobs import OF_JOBS, end_jobs, pods_left, running_jobs
from remediator.kubectl.removal.node_cleaning import clean, left_by_people, touched
from rules.api.names import COMPONENT_AGENT, COMPONENT_REMEDIATOR
from rules.api.nodes import NodeView, QuarantineView
from rules.api.sentences import some
from rules.api.timestamps import parse_time
from rules.repair.matching import at
from rules.session.observation import HEARTBEAT_FRESH_S
from rules.session.repair.clearing import cleared_in
from rules.text.counted import count
from rules.validate.jobs import LABEL_COMPONENT, LABEL_NAME

LEASE_EXPIRES_S: Final = 20.0
_RENEWED_WITHIN_S: Final = 5.0
"""A living leader renews every 2 s."""
PODS_GONE_WITHIN_S: Final = 120.0
LOOK_EVERY_S: Final = 1.0
AT_ONCE: Final = 50
"""Nodes cleaned side by side; what was done is said in the order of their names."""

_THEN: Final = (
    "kubectl delete --ignore-not-found -k YOUR-OVERLAY (or helm uninstall gpuward -n {})"
)
"""Our workloads are gone by then: without the flag kubectl would end as if it had failed."""

Say = Callable[[str], None]


async def uninstall(cluster: Cluster, *, namespace: str, say: Say) -> str:
    """Stop, end, withdraw, clean, report; CommandError when something of ours still runs or a
    node is not clean.
    """
    # Who may not see what has to end learns it before anything is stopped.
    await running_jobs(cluster, namespace)
    await _sessions(cluster)
    await _stop(cluster, namespace, say)
    sessions = await _sessions(cluster)
    kept, left = await _ended(cluster, sessions, namespace, say)
    moved = _moved(sessions)
    names = sorted(
        view.name
        for view in await cluster.nodes()
        if view.name not in kept and touched(view, moved.get(view.name, ()))
    )
    cleaned = 0
    failed: list[str] = sorted(kept)
    after: dict[str, NodeView] = {}
    for batch in (names[i : i + AT_ONCE] for i in range(0, len(names), AT_ONCE)):
        cleanings = (_one(cluster, name, moved.get(name, ())) for name in batch)
        answers = await asyncio.gather(*cleanings)
        for name, (done, problem, node) in zip(batch, answers, strict=True):
            cleaned += bool(done)
            if node is not None:
                after[name] = node
            failed += [name] if problem else []
            if done or problem:
                say(f"{name}: {problem or done}")
    for name in sorted(kept):
        say(f"{name}: {kept[name]}")
    if failed:
        raise CommandError(
            f"{count(len(failed), 'node')} could not be cleaned: {some(failed)}; "
            "the lines above say why, run this again"
        )
    lines = [f"{count(cleaned, 'node')} cleaned; now: {_THEN.format(namespace)}"]
    for view in sorted(await cluster.nodes(), key=lambda node: node.name):
        # After a dry run only the answers know how it would be.
        lines += left_by_people(after.get(view.name, view) if cluster.dry_run else view)
    lines += await _records_left(cluster)
    lines += left
    # A dry run has stopped nobody: those that publish are the agents of the cluster.
    outside = [] if cluster.dry_run else await _agents_outside(cluster)
    return "\n".join([*lines, *outside])


async def _ended(
    cluster: Cluster, sessions: list[QuarantineView], namespace: str, say: Say
) -> tuple[dict[str, str], list[str]]:
    """What still works on nodes ends: by node, why it is not given back yet; what nobody takes
    back.
    """
    jobs = await running_jobs(cluster, namespace)
    kept = await end_jobs(cluster, jobs, say)
    asked = await withdraw(cluster, sessions, namespace, say)
    ended = [(job.namespace, job.uid) for job in jobs if job.node not in kept] + asked.jobs
    # In a dry run nothing ends, so there is no end to wait for.
    slow = {} if cluster.dry_run else await pods_left(cluster, ended, namespace, say)
    return {**slow, **asked.kept, **kept}, asked.left


async def _sessions(cluster: Cluster) -> list[QuarantineView]:
    try:
        return await cluster.sessions()
    except CommandError as error:
        if error.forbidden:
            raise
        return []  # the definitions are gone already


def _moved(sessions: list[QuarantineView]) -> dict[str, tuple[str, ...]]:
    """What sessions have on record of labels that were changed, by node: where the Node's own
    record went, nothing else knows whose they are.
    """
    found: dict[str, tuple[str, ...]] = {}
    for session in sessions:
        name = session.spec.node_name
        found[name] = (*found.get(name, ()), *cleared_in((session,)))
    return found


async def _one(
    cluster: Cluster, name: str, recorded: tuple[str, ...]
) -> tuple[str, str, NodeView | None]:
    """What was done on one node, what went wrong and how it is then: one bad node must not keep
    the others.
    """
    try:
        node = await cluster.node(name)
        done, after = await clean(cluster, node, recorded) if node is not None else ("", None)
    except CommandError as error:
        return "", str(error), None
    return done, "", after


async def _stop(cluster: Cluster, namespace: str, say: Say) -> None:
    """Delete the workloads, wait for their pods, and make sure that nobody leads any more."""
    base = f"/apis/apps/v1/namespaces/{namespace}"
    await _check_place(cluster, base, namespace)
    await cluster.delete(f"{base}/deployments/{COMPONENT_REMEDIATOR}")
    await cluster.delete(f"{base}/daemonsets/{COMPONENT_AGENT}")
    if cluster.dry_run:
        return  # nothing ends, so there is no end to wait for
    waited = 0.0
    while pods := await _pods_of_programs(cluster):
        if waited == 0:
            say(f"waiting for {count(len(pods), 'pod')} of gpuward to end")
        if waited >= PODS_GONE_WITHIN_S:
            raise CommandError(
                f"{count(len(pods), 'pod')} of gpuward still there, such as {pods[0]}; nothing "
                "was taken off any node; kubectl get pods -A -l app.kubernetes.io/name=gpuward "
                "shows them (another namespace is named with -n), then run this again"
            )
        await asyncio.sleep(LOOK_EVERY_S)
        waited += LOOK_EVERY_S
    holder = await _leader(cluster, namespace)
    if holder:
        raise CommandError(
            f"a remediator outside this cluster still leads ({holder}); stop it, then run this "
            "again; nothing was taken off any node"
        )


async def _pods_of_programs(cluster: Cluster) -> list[str]:
    """namespace/name of every pod of our programs, in any namespace; those of Jobs are ended
    after them.
    """
    jobs = f"{LABEL_COMPONENT} notin ({','.join(OF_JOBS)})"
    query = {"labelSelector": f"{LABEL_NAME}=gpuward,{jobs}", "fieldSelector": NOT_ENDED}
    found = await cluster.everything("/api/v1/pods", query)
    return sorted(f"{at(pod, 'metadata.namespace')}/{at(pod, 'metadata.name')}" for pod in found)


async def _check_place(cluster: Cluster, base: str, namespace: str) -> None:
    """Refuse at once where our pods run and nothing that is deleted here is theirs."""
    for path in (f"deployments/{COMPONENT_REMEDIATOR}", f"daemonsets/{COMPONENT_AGENT}"):
        if await cluster.get(f"{base}/{path}") is not None:
            return
    pods = await _pods_of_programs(cluster)
    elsewhere = sorted({pod.partition("/")[0] for pod in pods} - {namespace})
    if elsewhere:
        raise CommandError(
            f"gpuward is not installed in namespace {namespace}, its pods run in "
            f"{', '.join(elsewhere)}; nothing was done, name it with -n {elsewhere[0]}"
        )


async def _leader(cluster: Cluster, namespace: str) -> str:
    """Who renews the lease although our pods are gone; "" for nobody."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{COMPONENT_REMEDIATOR}"
    lease = await cluster.get(path)
    spec: dict[str, Any] = (lease or {}).get("spec") or {}
    renewed = parse_time(str(spec.get("renewTime") or ""))
    if not spec.get("holderIdentity") or renewed is None:
        return ""
    if cluster.now() - renewed > LEASE_EXPIRES_S:
        return ""
    waited = 0.0
    while waited < _RENEWED_WITHIN_S:
        await asyncio.sleep(LOOK_EVERY_S)
        waited += LOOK_EVERY_S
        again = ((await cluster.get(path)) or {}).get("spec") or {}
        if again.get("renewTime") != spec.get("renewTime"):
            return str(again.get("holderIdentity") or "")
    return ""


async def _records_left(cluster: Cluster) -> list[str]:
    """What goes with the definitions and cannot be made again."""
    try:
        records = await cluster.records()
    except CommandError:
        return []  # the definitions are gone already, or an older release had none
    if not records:
        return []
    keep = "kubectl get gpurecords -o yaml > records.yaml keeps them"
    return [
        f"{count(len(records), 'record')} of what failed before go with the definitions; {keep}"
    ]


async def _agents_outside(cluster: Cluster) -> list[str]:
    """Agents without a pod: nobody but their owner can stop them, and they would label again."""
    try:
        healths = await cluster.healths()
    except CommandError:
        return []  # the definitions are gone already, nobody can publish any more
    beating = [
        health.metadata.name
        for health in healths
        if (at := parse_time(health.status.publisher.heartbeat)) is not None
        and cluster.now() - at < HEARTBEAT_FRESH_S
    ]
    if not beating:
        return []
    where = some(beating)
    remedy = "stop them there and run this again, or they label their nodes anew"
    return [f"agents outside the cluster (systemd?) published lately on {where}: {remedy}"]
