"""`kubectl gpuward uninstall`: give every node back, stop our programs, take our labels off.

A remediator that leads ends its own sessions: only it takes back what it asked of others, ends its
tests and puts labels back. `kubectl delete -k` comes afterwards, since it removes the definitions
first. Each step can be repeated; what people wrote and what others own stays and is named.
"""

from __future__ import annotations

import argparse
import asyncio
from typing import Any, Final

from remediator.kubectl.cluster import GROUP_PATH, MANAGER, NOT_ENDED, Cluster
from remediator.kubectl.command import CommandError, Terminal
from remediator.kubectl.leading import read_leadership
from remediator.view.people import mark_stays
from rules.api import names
from rules.api.mark import cordon_stays, marked, unmark_patch
from rules.api.names import COMPONENT_AGENT, COMPONENT_REMEDIATOR
from rules.api.nodes import FreshNode, NodeView, QuarantineView
from rules.api.object_name import segment
from rules.api.repair.writes import DeleteTestJob
from rules.api.requests import MERGE_PATCH, STRATEGIC_PATCH, Request, request
from rules.api.sentences import some
from rules.api.timestamps import format_time, parse_time
from rules.repair.adapter import REPAIR_CONDITIONS, ConditionIs
from rules.repair.objects import annotation, at, holds, uid_of
from rules.session.observation import HEARTBEAT_FRESH_S, is_open
from rules.session.repair.withdrawal import is_our_request
from rules.text.counted import count
from rules.validate.jobs import ANNOTATION_NODE, ANNOTATION_OF, LABEL_COMPONENT, LABEL_NAME

GIVEN_BACK_WITHIN_S: Final = 900.0
"""A remediator waits up to ten minutes for a request that may not be taken back."""
PODS_GONE_WITHIN_S: Final = 360.0
"""A GPU reset that has begun is finished: the grace of its pod is 300 s."""
LOOK_EVERY_S: Final = 1.0
TOLD_EVERY_S: Final = 30.0
LEASE_EXPIRES_S: Final = 20.0
AT_ONCE: Final = 50
"""Nodes cleaned side by side; what was done is said in the order of their names."""
TRIES: Final = 5
BY_COMMANDS: Final = (names.ANNOTATION_HOLD, names.ANNOTATION_REPAIRED)
"""Annotations that our own commands write for people: told apart by managedFields."""
BY_PEOPLE: Final = (
    *BY_COMMANDS,
    names.ANNOTATION_EXPECTED_GPUS,
    names.ANNOTATION_RELEASE_GPU,
    names.ANNOTATION_FABRIC_MODE,
)
LABELS: Final = (*names.AGENT_LABELS, names.LABEL_QUARANTINE)
CONDITIONS: Final = (
    names.CONDITION_HEALTHY,
    names.CONDITION_DEGRADED,
    names.CONDITION_VALIDATED,
)
_OF_JOBS: Final = (
    names.COMPONENT_VALIDATE,
    names.COMPONENT_RESET_GPU,
    names.COMPONENT_RESTART_NODE,
)
_OVER: Final = (ConditionIs(type="Complete"), ConditionIs(type="Failed"))
_THEN: Final = (
    "kubectl delete --ignore-not-found -k YOUR-OVERLAY (or helm uninstall gpuward -n {})"
)
"""Our workloads are gone by then: without the flag kubectl would end as if it had failed."""


async def uninstall(cluster: Cluster, options: argparse.Namespace, terminal: Terminal) -> str:
    """Give back, stop, clean, report; CommandError when something of ours is left."""
    namespace = options.namespace
    terminal.ask(f"This ends gpuward in namespace {namespace} and gives every node it holds back.")
    if cluster.dry_run:
        terminal.say("dry run: each line says what would be done, and nothing is changed")
    # Who may not see what has to end learns it before anything is stopped.
    await _jobs(cluster, namespace)
    await _check_place(cluster, namespace)
    await _give_back(cluster, namespace, terminal)
    await _stop(cluster, namespace, terminal)
    found = sorted(node.name for node in await cluster.nodes() if _touched(node))
    cleaned: dict[str, NodeView] = {}
    failed: list[str] = []
    for start in range(0, len(found), AT_ONCE):
        batch = found[start : start + AT_ONCE]
        answers = await asyncio.gather(
            *(_clean(cluster, name) for name in batch), return_exceptions=True
        )
        for name, answer in zip(batch, answers, strict=True):
            if isinstance(answer, CommandError):
                failed.append(name)
                terminal.say(f"{name}: {answer}")
            elif isinstance(answer, BaseException):
                raise answer
            elif answer is not None and answer[0]:
                cleaned[name] = answer[1]
                terminal.say(f"{name}: {answer[0]}")
    if failed:
        raise CommandError(
            f"{count(len(failed), 'node')} could not be cleaned: {some(failed)}; "
            "the lines above say why, run this again"
        )
    lines = [f"{count(len(cleaned), 'node')} cleaned; now: {_THEN.format(namespace)}"]
    for node in sorted(await cluster.nodes(), key=lambda each: each.name):
        # After a dry run only the answers know how it would be.
        lines += _left(cleaned.get(node.name, node) if cluster.dry_run else node)
    # A dry run has stopped nobody: those that publish are the agents of the cluster.
    lines += [] if cluster.dry_run else await _agents_outside(cluster)
    return "\n".join(lines)


async def _sessions(cluster: Cluster) -> list[QuarantineView]:
    """Those that hold a node; none where the definitions are gone already."""
    try:
        found = await cluster.sessions()
    except CommandError as error:
        if error.forbidden:
            raise
        return []
    return [one for one in found if is_open(one) or mark_stays(one)]


async def _give_back(cluster: Cluster, namespace: str, terminal: Terminal) -> None:
    """Ask for the release of every session and wait for the end of all. Without a leader the mark
    comes off with the labels, but for nodes that something was asked for.
    """
    waited = 0.0
    by = await cluster.who()
    while sessions := await _sessions(cluster):
        # The leader may end meanwhile.
        leader = await read_leadership(cluster, namespace)
        if leader.lease is None or leader.lasts:
            if asked := sorted({one.spec.node_name for one in sessions if one.status.repair}):
                raise CommandError(
                    f"repairs were asked of others for {some(asked)}, and only a remediator takes "
                    "that back: none leads; start one and run this again, nothing was stopped"
                )
            return
        if cluster.dry_run:
            return
        for one in sessions:
            if is_open(one) and one.spec.release is None:
                now = format_time(cluster.now())
                asking = {"by": by, "reason": "gpuward is uninstalled", "at": now}
                path = f"{GROUP_PATH}/gpuquarantines/{one.name}"
                await cluster.patch(path, {"spec": {"release": asking}})
        nodes = some(sorted({one.spec.node_name for one in sessions}))
        if waited >= GIVEN_BACK_WITHIN_S:
            raise CommandError(
                f"the remediator does not give {nodes} back; kubectl gpuward why NODE says why; "
                f"where it never will, stop it (kubectl -n {namespace} delete deployment "
                f"{COMPONENT_REMEDIATOR}), and run this again"
            )
        if waited % TOLD_EVERY_S == 0:
            terminal.say(f"waiting for the remediator to give {nodes} back")
        await asyncio.sleep(LOOK_EVERY_S)
        waited += LOOK_EVERY_S


async def _check_place(cluster: Cluster, namespace: str) -> None:
    """Refuse at once where our pods run and nothing that is deleted here is theirs."""
    base = f"/apis/apps/v1/namespaces/{namespace}"
    for path in (f"deployments/{COMPONENT_REMEDIATOR}", f"daemonsets/{COMPONENT_AGENT}"):
        if await cluster.get(f"{base}/{path}") is not None:
            return
    pods = await _pods(cluster, set())
    if elsewhere := sorted({pod.partition("/")[0] for pod in pods} - {namespace}):
        raise CommandError(
            f"gpuward is not installed in namespace {namespace}, its pods run in "
            f"{', '.join(elsewhere)}; nothing was done, name it with -n {elsewhere[0]}"
        )


async def _stop(cluster: Cluster, namespace: str, terminal: Terminal) -> None:
    """Delete our workloads and Jobs, wait for their pods, and make sure that nobody leads."""
    base = f"/apis/apps/v1/namespaces/{namespace}"
    await cluster.delete(f"{base}/deployments/{COMPONENT_REMEDIATOR}")
    await cluster.delete(f"{base}/daemonsets/{COMPONENT_AGENT}")
    jobs = await _jobs(cluster, namespace)
    for job in jobs:
        answer = await cluster.send(request(job))
        if answer.code != 404:
            cluster.checked(answer)
        terminal.say(f"{job.node}: Job {job.name} ended")
    if cluster.dry_run:
        return  # nothing ends, so there is no end to wait for
    waited = 0.0
    while pods := await _pods(cluster, {job.uid for job in jobs}):
        if waited >= PODS_GONE_WITHIN_S:
            raise CommandError(
                f"{count(len(pods), 'pod')} of gpuward still there, such as {pods[0]}; kubectl "
                "get pods -A -l app.kubernetes.io/name=gpuward shows them (another namespace is "
                "named with -n); run this again once they are gone"
            )
        if waited % TOLD_EVERY_S == 0:
            terminal.say(f"waiting for {count(len(pods), 'pod')} of gpuward to end")
        await asyncio.sleep(LOOK_EVERY_S)
        waited += LOOK_EVERY_S
    if holder := await _outside(cluster, namespace):
        raise CommandError(
            f"a remediator outside this cluster still leads ({holder}); stop it, then run this "
            "again"
        )


async def _jobs(cluster: Cluster, namespace: str) -> list[DeleteTestJob]:
    """The ends of Jobs that the remediator made: a test would load, and a reset would take, the
    GPUs of the pods that come next. One that a person made by our examples says for nobody.
    """
    path = f"/apis/batch/v1/namespaces/{segment(namespace)}/jobs"
    found = await cluster.everything(path, {"labelSelector": f"{LABEL_NAME}=gpuward"})
    return [
        DeleteTestJob(
            node=str(at(job, "spec.template.spec.nodeName") or annotation(job, ANNOTATION_NODE)),
            namespace=namespace,
            name=str(at(job, "metadata.name")),
            uid=uid_of(job),
        )
        for job in found
        if annotation(job, ANNOTATION_OF) or annotation(job, names.ANNOTATION_REPAIR)
        if not any(holds(each, job) for each in _OVER)
    ]


async def _pods(cluster: Cluster, jobs: set[str]) -> list[str]:
    """namespace/name of every pod of our programs, in any namespace, and of Jobs that end."""
    query = {"labelSelector": f"{LABEL_NAME}=gpuward", "fieldSelector": NOT_ENDED}
    found = []
    for pod in await cluster.everything("/api/v1/pods", query):
        of_job = (at(pod, "metadata.labels") or {}).get(LABEL_COMPONENT) in _OF_JOBS
        owners = {str(owner.get("uid")) for owner in at(pod, "metadata.ownerReferences") or ()}
        if not of_job or at(pod, "metadata.deletionTimestamp") or owners & jobs:
            found.append(f"{at(pod, 'metadata.namespace')}/{at(pod, 'metadata.name')}")
    return sorted(found)


async def _outside(cluster: Cluster, namespace: str) -> str:
    """Who renews the lease although our pods are gone; "" for nobody."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{COMPONENT_REMEDIATOR}"
    first: dict[str, Any] = ((await cluster.get(path)) or {}).get("spec") or {}
    renewed = parse_time(str(first.get("renewTime") or ""))
    if renewed is None or cluster.now() - renewed > LEASE_EXPIRES_S:
        return ""
    for _ in range(5 if first.get("holderIdentity") else 0):  # a living leader renews every 2 s
        await asyncio.sleep(LOOK_EVERY_S)
        again = ((await cluster.get(path)) or {}).get("spec") or {}
        if again.get("renewTime") != first.get("renewTime"):
            return str(again.get("holderIdentity") or "")
    return ""


def _touched(node: NodeView) -> bool:
    """Whether anything on the node may be ours."""
    return (
        marked(node)
        or any(key in node.labels for key in LABELS)
        or any(key in node.annotations for key in BY_COMMANDS)
        or bool(_conditions(node))
    )


def _conditions(node: NodeView) -> list[str]:
    """Types of the conditions that our programs set on it."""
    asked = (kind for kind in REPAIR_CONDITIONS if is_our_request(node, kind))
    return [*(kind for kind in CONDITIONS if node.condition(kind)), *asked]


async def _clean(cluster: Cluster, name: str) -> tuple[str, NodeView] | None:
    """Everything of ours off one node and nothing else: what was done, "" for nothing, and the
    node after that; None where it is gone. CommandError where it could not be.
    """
    path, done = f"/api/v1/nodes/{segment(name)}", ""
    for _ in range(TRIES):
        node = await cluster.node(name)
        if node is None:
            return None
        after: NodeView = node
        patch = _patch(node)
        if patch is None:
            break
        asked = Request(method="PATCH", path=path, body=patch, content_type=MERGE_PATCH)
        answer = await cluster.send(asked)
        if answer.code == 409:
            continue
        cluster.checked(answer)
        stays = cordon_stays(node) if marked(node) else ""
        done = "mark taken off" if marked(node) else "labels taken off"
        done += f"; it stays cordoned: {stays}" if stays else ""
        after = answer.decode(FreshNode)
        break
    else:
        raise CommandError("it changes too fast to be cleaned")
    if ours := _conditions(node):
        body = {"status": {"conditions": [{"$patch": "delete", "type": kind} for kind in ours]}}
        answer = await cluster.send(
            Request(method="PATCH", path=f"{path}/status", body=body, content_type=STRATEGIC_PATCH)
        )
        if answer.code != 404:
            cluster.checked(answer)
        done = done or "conditions taken off"
    return done, after


def _patch(node: FreshNode) -> dict[str, Any] | None:
    """The reverse of the mark, and our labels and annotations off; None where nothing is ours."""
    ours = [key for key in LABELS if key in node.labels]
    noted = [key for key in BY_COMMANDS if key in node.annotations and _by_command(node, key)]
    if not ours and not noted and not marked(node):
        return None
    base = {"metadata": {"resourceVersion": node.metadata.resource_version}}
    patch: dict[str, Any] = unmark_patch(node) if marked(node) else base
    patch["metadata"].setdefault("labels", {}).update(dict.fromkeys(ours))
    patch["metadata"].setdefault("annotations", {}).update(dict.fromkeys(noted))
    return patch


def _by_command(node: FreshNode, key: str) -> bool:
    for entry in node.metadata.managed_fields:
        metadata = entry.fields_v1.get("f:metadata")
        owned = metadata.get("f:annotations") if isinstance(metadata, dict) else None
        if entry.manager == MANAGER and isinstance(owned, dict) and f"f:{key}" in owned:
            return True
    return False


def _left(node: NodeView) -> list[str]:
    """What stays on a cleaned node because people or others put it there."""
    found = [key for key in BY_PEOPLE if key in node.annotations]
    found += [names.LABEL_OPT_OUT] if names.LABEL_OPT_OUT in node.labels else []
    found += ["its cordon"] if node.spec.unschedulable else []
    return [f"{node.name}: left as others set it: {', '.join(found)}"] if found else []


async def _agents_outside(cluster: Cluster) -> list[str]:
    """Agents without a pod: only their owner can stop them, and they would label again."""
    try:
        healths = await cluster.healths()
    except CommandError:
        return []  # the definitions are gone already, nobody can publish any more
    beating = [
        health.metadata.name
        for health in healths
        if health.status.publisher.heartbeat
        and (heard_at := health.heard_at) is not None
        and cluster.now() - heard_at < HEARTBEAT_FRESH_S
    ]
    if not beating:
        return []
    remedy = "stop them there and run this again, or they label their nodes again"
    return [f"agents outside the cluster (systemd?) published lately on {some(beating)}: {remedy}"]
