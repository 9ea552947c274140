"""`kubectl gpuward uninstall`: release every node, stop our programs, take our labels off.

A remediator that leads ends its own sessions: only it takes back what it asked of others, ends its
tests and puts labels back. `kubectl delete -k` comes afterwards, since it removes the definitions
first. Each step can be repeated; what people wrote and what others own stays.
"""

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, NamedTuple

from remediator.kubectl import in_force
from remediator.kubectl.cluster import GROUP_PATH, NOT_ENDED, Cluster
from remediator.kubectl.command import CommandError, Terminal
from remediator.view import operators
from rules.api import (
    device_taints,
    messages,
    names,
    object_name,
    pods,
    quarantine_taint,
    requests,
    timestamps,
)
from rules.api.nodes import FreshNode, NodeView
from rules.api.repair_writes import DeleteTestJob
from rules.api.requests import Request
from rules.repair import adapter
from rules.session import observation
from rules.session.repair import withdrawal
from rules.text import printable

REPORTED_EVERY_S: Final = 30.0
RENEWED_WITHIN_S: Final = 5.0
"""A living leader renews its Lease every 2 s."""
AT_ONCE: Final = 50
"""Nodes that are cleaned at the same time."""
TRIES: Final = 5
LABELS: Final = (*names.AGENT_LABELS, names.LABEL_QUARANTINE)
CONDITIONS: Final = (names.CONDITION_HEALTHY, names.CONDITION_DEGRADED, names.CONDITION_VALIDATED)
_OURS: Final = {"labelSelector": f"{pods.LABEL_NAME}=gpuward"}


class Waits(NamedTuple):
    """Seconds that `uninstall` waits."""

    released_within_s: float = 900.0
    """A remediator waits up to ten minutes for a request that may not be taken back."""
    pods_gone_within_s: float = 360.0
    """A GPU reset that has begun is finished: the grace of its pod is 300 s."""
    poll_s: float = 1.0


WAITS: Final = Waits()


async def uninstall(
    cluster: Cluster, options: argparse.Namespace, terminal: Terminal, waits: Waits = WAITS
) -> str:
    """Release, stop, clean; CommandError when something of gpuward is left."""
    namespace = options.namespace
    terminal.ask(
        f"This stops gpuward in namespace {namespace} and returns every quarantined node to "
        "service."
    )
    if cluster.dry_run:
        terminal.say(
            "dry run: each line is an action that uninstall would take; nothing is changed"
        )
    await _jobs(cluster, namespace)  # who may not see them learns it before anything is stopped
    leader = await in_force.read_leadership(cluster, namespace)
    if leader.spaces and namespace not in leader.spaces:
        raise CommandError(f"nothing was done: {leader.never_led}")
    await _release(cluster, namespace, terminal, waits)
    await _stop(cluster, namespace, terminal, waits)
    await _delete_device_taints(cluster, terminal)
    found = sorted(node.name for node in await cluster.nodes() if _touched(node))
    turns = asyncio.Semaphore(AT_ONCE)
    answers = await asyncio.gather(*(_clean(cluster, name, turns) for name in found))
    for name, (done, error) in zip(found, answers, strict=True):
        if done or error:
            terminal.say(f"{name}: {error or done}")
    if failed := [name for name, (_, error) in zip(found, answers, strict=True) if error]:
        raise CommandError(
            f"{printable.count(len(failed), 'node')} could not be cleaned: "
            f"{messages.name_list(failed)}; "
            "see the errors above, then run uninstall again"
        )
    # Our workloads are gone: without the flag kubectl would end as if it had failed.
    return (
        f"{printable.count(sum(bool(done) for done, _ in answers), 'node')} cleaned; now: "
        "kubectl delete --ignore-not-found -k YOUR-OVERLAY (or helm uninstall gpuward -n "
        f"{namespace})"
    )


async def _wait(
    remaining: Callable[[], Awaitable[list[str]]],
    within_s: float,
    poll_s: float,
    terminal: Terminal,
    what: str,
    stuck: str,
) -> None:
    """Wait until nothing remains; `what` names it, `stuck` is the remedy if it stays."""
    waited = 0.0
    while left := await remaining():
        if waited >= within_s:
            raise CommandError(f"{messages.name_list(left)}: {stuck}")
        if waited % REPORTED_EVERY_S == 0:
            terminal.say(f"waiting for {what} {messages.name_list(left)}")
        await asyncio.sleep(poll_s)
        waited += poll_s


async def _release(cluster: Cluster, namespace: str, terminal: Terminal, waits: Waits) -> None:
    """Ask for the release of every session and wait for the end of all. Without a leader the taint
    comes off with the labels, but for nodes that something was asked for.
    """
    by = await cluster.who()

    async def held() -> list[str]:
        try:
            found = await cluster.sessions()
        except CommandError as error:
            if error.forbidden:
                raise
            return []  # the definitions are gone already
        sessions = [one for one in found if observation.is_open(one) or operators.taint_stays(one)]
        # The leader may end meanwhile.
        leader = await in_force.read_leadership(cluster, namespace)
        if leader.lease is None or leader.lasts:
            if asked := sorted({one.spec.node_name for one in sessions if one.status.repair}):
                raise CommandError(
                    f"open repair requests for {messages.name_list(asked)} can only be "
                    "withdrawn by gpuward-remediator, which has no leader; start it and run "
                    "uninstall again. Nothing was stopped"
                )
            return []
        for one in () if cluster.dry_run else sessions:
            if observation.is_open(one) and one.spec.release is None:
                now = timestamps.format_time(cluster.now())
                asking = {"by": by, "reason": "gpuward is uninstalled", "at": now}
                path = f"{GROUP_PATH}/gpuquarantines/{one.name}"
                await cluster.patch(path, {"spec": {"release": asking}})
        return [] if cluster.dry_run else [one.spec.node_name for one in sessions]

    stop = f"kubectl -n {namespace} delete deployment {names.COMPONENT_REMEDIATOR}"
    await _wait(
        held, waits.released_within_s, waits.poll_s, terminal, "the remediator to release",
        "the remediator does not release it; see kubectl gpuward why NODE; if it cannot, "
        f"stop the remediator ({stop}) and run uninstall again",
    )  # fmt: skip


async def _stop(cluster: Cluster, namespace: str, terminal: Terminal, waits: Waits) -> None:
    """Delete our workloads and Jobs, wait for their pods, and make sure that nobody leads."""
    base = f"/apis/apps/v1/namespaces/{namespace}"
    await cluster.delete(f"{base}/deployments/{names.COMPONENT_REMEDIATOR}")
    await cluster.delete(f"{base}/daemonsets/{names.COMPONENT_AGENT}")
    for job in await _jobs(cluster, namespace):
        answer = await cluster.send(requests.request(job))
        if answer.code != 404:
            cluster.checked(answer)
        terminal.say(f"Job {job.name} ended")
    if cluster.dry_run:
        return  # nothing ends, so there is no end to wait for
    await _wait(
        partial(_pods, cluster), waits.pods_gone_within_s, waits.poll_s, terminal,
        "the end of pods",
        "still there; list them with kubectl get pods -A -l app.kubernetes.io/name=gpuward (-n "
        "NAMESPACE for another namespace); when they are gone, run uninstall again",
    )  # fmt: skip
    before = (await in_force.read_leadership(cluster, namespace)).lease
    if before is None or not (holder := before.spec.holder_identity):
        return
    await asyncio.sleep(RENEWED_WITHIN_S)
    after = (await in_force.read_leadership(cluster, namespace)).lease
    if after is not None and after.spec.renew_time != before.spec.renew_time:
        raise CommandError(
            f"a remediator outside this cluster still leads ({holder}); stop it, then run this "
            "again"
        )


async def _jobs(cluster: Cluster, namespace: str) -> list[DeleteTestJob]:
    """The ends of our Jobs: a test would load, and a reset would take, the GPUs of the pods that
    come next.
    """
    path = f"/apis/batch/v1/namespaces/{object_name.segment(namespace)}/jobs"
    found = [job["metadata"] for job in await cluster.everything(path, _OURS)]
    return [
        DeleteTestJob(node="", namespace=namespace, name=meta["name"], uid=meta["uid"])
        for meta in found
    ]


async def _pods(cluster: Cluster) -> list[str]:
    """namespace/name of every pod of our programs and Jobs, in any namespace."""
    found = await cluster.everything("/api/v1/pods", {**_OURS, "fieldSelector": NOT_ENDED})
    return [f"{pod['metadata']['namespace']}/{pod['metadata']['name']}" for pod in found]


async def _delete_device_taints(cluster: Cluster, terminal: Terminal) -> None:
    """Delete the DeviceTaintRules of sessions that no leader could end."""
    for version in device_taints.VERSIONS:
        path = device_taints.address(version).path
        for rule in (await cluster.get(path) or {}).get("items", ()):
            meta = rule["metadata"]
            if device_taints.LABEL_SESSION in meta.get("labels", {}):
                await cluster.delete(f"{path}/{object_name.segment(meta['name'])}")
                terminal.say(f"DeviceTaintRule {meta['name']} deleted")


def _touched(node: NodeView) -> bool:
    """Whether anything on the node may be ours."""
    return (
        quarantine_taint.quarantined(node)
        or any(key in node.labels for key in LABELS)
        or bool(_conditions(node))
    )


def _conditions(node: NodeView) -> list[str]:
    """Types of the conditions that our programs set on it."""
    asked = (kind for kind in adapter.REPAIR_CONDITIONS if withdrawal.is_our_request(node, kind))
    drains = (c.type for c in node.status.conditions if c.is_drain_report)
    return [*(kind for kind in CONDITIONS if node.condition(kind)), *asked, *drains]


async def _clean(cluster: Cluster, name: str, turns: asyncio.Semaphore) -> tuple[str, str]:
    """Everything of gpuward off one node and nothing else: what was done, and why it could not be;
    either may be "".
    """
    async with turns:
        try:
            for _ in range(TRIES):
                node = await cluster.node(name)
                if node is None:
                    return "", ""
                if (done := await _cleaned(cluster, node)) is not None:
                    return done, ""
        except CommandError as error:
            return "", str(error)
    return "", "the node changes too often to be cleaned up"


async def _cleaned(cluster: Cluster, node: FreshNode) -> str | None:
    """What was done; None where somebody else changed the node meanwhile."""
    path, done = f"/api/v1/nodes/{object_name.segment(node.name)}", ""
    if quarantine_taint.quarantined(node) or any(key in node.labels for key in LABELS):
        base = {"metadata": {"resourceVersion": node.metadata.resource_version}}
        patch: dict[str, Any] = (
            quarantine_taint.release_patch(node) if quarantine_taint.quarantined(node) else base
        )
        ours = dict.fromkeys(key for key in LABELS if key in node.labels)
        patch["metadata"].setdefault("labels", {}).update(ours)
        answer = await cluster.send(
            Request(method="PATCH", path=path, body=patch, content_type=requests.MERGE_PATCH)
        )
        if answer.code == 409:
            return None
        cluster.checked(answer)
        stays = quarantine_taint.cordon_stays(node) if quarantine_taint.quarantined(node) else ""
        done = (
            "taint and cordon removed" if quarantine_taint.quarantined(node) else "labels removed"
        )
        done += f"; it stays cordoned: {stays}" if stays else ""
    if kinds := _conditions(node):
        body = {"status": {"conditions": [{"$patch": "delete", "type": kind} for kind in kinds]}}
        answer = await cluster.send(
            Request(
                method="PATCH",
                path=f"{path}/status",
                body=body,
                content_type=requests.STRATEGIC_PATCH,
            )
        )
        if answer.code != 404:
            cluster.checked(answer)
        done = done or "conditions removed"
    return done
