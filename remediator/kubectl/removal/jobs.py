"""What of ours still runs on nodes when gpuward goes: its Jobs end before their nodes come back.

A test would load, and a reset would take, the GPUs of the pods that come next. Only Jobs that the
remediator made are ended: they carry our labels and say what they were made for.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from remediator.kubectl.answers import checked
from remediator.kubectl.cluster import NOT_ENDED, Cluster
from remediator.kubectl.command import CommandError
from rules.api.names import (
    ANNOTATION_REPAIR,
    COMPONENT_RESET_GPU,
    COMPONENT_RESTART_NODE,
    COMPONENT_VALIDATE,
)
from rules.api.object_name import segment
from rules.api.repair.writes import DeleteTestJob
from rules.api.requests import request
from rules.api.sentences import some
from rules.repair.adapter import ObjectMatch
from rules.repair.matching import annotation, at, first_holding, is_deleting, uid_of
from rules.text.counted import count
from rules.validate.jobs import ANNOTATION_NODE, ANNOTATION_OF, LABEL_COMPONENT, LABEL_NAME

OF_JOBS: Final = (COMPONENT_VALIDATE, COMPONENT_RESET_GPU, COMPONENT_RESTART_NODE)
"""Components of pods that Jobs run: they end on their nodes, not with our programs."""
END_WITHIN_S: Final = 360.0
"""A reset that has begun is finished: the grace of its pod is 300 s."""
LOOK_EVERY_S: Final = 1.0
TOLD_EVERY_S: Final = 30.0
_OURS: Final = f"{LABEL_NAME}=gpuward"
_OVER: Final = (ObjectMatch(condition="Complete"), ObjectMatch(condition="Failed"))

Json = Mapping[str, Any]
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningJob:
    """A Job of ours that is not over."""

    namespace: str
    name: str
    uid: str
    node: str
    """Where its pod is, or is to be."""


async def running_jobs(cluster: Cluster, namespace: str) -> list[RunningJob]:
    """Those in the remediator's namespace; CommandError where this person may not see them."""
    path = f"/apis/batch/v1/namespaces/{segment(namespace)}/jobs"
    found = await cluster.everything(path, {"labelSelector": _OURS})
    return [_job(namespace, json) for json in found if _made_by_us(json) and not _is_over(json)]


async def end_jobs(cluster: Cluster, jobs: Iterable[RunningJob], say: Say) -> dict[str, str]:
    """Delete them with their pods; by node, why one of its Jobs could not be."""
    kept: dict[str, str] = {}
    for job in jobs:
        write = DeleteTestJob(node=job.node, namespace=job.namespace, name=job.name, uid=job.uid)
        answer = await cluster.send(request(write))
        try:
            if answer.code != 404:
                checked(answer, writes=True)
        except CommandError as error:
            if not job.node:
                raise CommandError(
                    f"Job {job.name} could not be ended, and where it runs is not known: {error}; "
                    "nothing was taken off any node"
                ) from error
            kept[job.node] = f"not given back: its Job {job.name} could not be ended: {error}"
        else:
            say(f"{job.node}: Job {job.name} ended")
    return kept


async def pods_left(
    cluster: Cluster, ended: Iterable[tuple[str, str]], namespace: str, say: Say
) -> dict[str, str]:
    """Wait for the pods of Jobs that were `ended` (namespace, UID), now or by an earlier try; by
    node, what of them does not end.
    """
    uids: defaultdict[str, set[str]] = defaultdict(set, {namespace: set()})
    for where, uid in ended:
        uids[where].add(uid)
    waited = 0.0
    while left := await _leaving(cluster, uids):
        if waited >= END_WITHIN_S:
            return {node: _remedy(pods) for node, pods in left.items()}
        if waited % TOLD_EVERY_S == 0:
            pods = sum(len(each) for each in left.values())
            most = f"up to {END_WITHIN_S / 60:.0f} min, a reset that has begun is finished"
            say(f"waiting for {count(pods, 'pod')} of our Jobs on {some(left)} to end ({most})")
        await asyncio.sleep(LOOK_EVERY_S)
        waited += LOOK_EVERY_S
    return {}


async def _leaving(cluster: Cluster, uids: Mapping[str, set[str]]) -> dict[str, list[str]]:
    """namespace/name of such pods that still run, by node."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for namespace, of_jobs in uids.items():
        path = f"/api/v1/namespaces/{segment(namespace)}/pods"
        for pod in await cluster.everything(path, {"fieldSelector": NOT_ENDED}):
            node = at(pod, "spec.nodeName")
            ours = is_deleting(pod) and _label(pod, LABEL_COMPONENT) in OF_JOBS
            ours = ours and _label(pod, LABEL_NAME) == "gpuward"
            if isinstance(node, str) and node and (ours or _owners(pod) & of_jobs):
                found[node].append(f"{namespace}/{at(pod, 'metadata.name')}")
    return dict(found)


def _remedy(pods: list[str]) -> str:
    namespace, _, name = pods[0].partition("/")
    pod = f"kubectl -n {namespace} {{}} pod {name}"
    return (
        f"not given back: pod {pods[0]} of a Job of ours does not end; {pod.format('describe')} "
        "says why; run this again once it is gone (where the node is off and stays off, by "
        f"{pod.format('delete')} --force --grace-period=0)"
    )


def _job(namespace: str, json: Json) -> RunningJob:
    node = at(json, "spec.template.spec.nodeName") or annotation(json, ANNOTATION_NODE)
    return RunningJob(
        namespace=namespace,
        name=str(at(json, "metadata.name")),
        uid=uid_of(json),
        node=str(node),
    )


def _made_by_us(json: Json) -> bool:
    """A Job that a person made by our examples may have our labels; it says for nobody."""
    return bool(annotation(json, ANNOTATION_OF) or annotation(json, ANNOTATION_REPAIR))


def _is_over(json: Json) -> bool:
    return first_holding(_OVER, json, {}) is not None


def _label(json: Json, key: str) -> str:
    labels = at(json, "metadata.labels")
    return str(labels.get(key, "")) if isinstance(labels, dict) else ""


def _owners(json: Json) -> set[str]:
    listed = at(json, "metadata.ownerReferences")
    owners = [each for each in listed if isinstance(each, dict)] if listed else []
    return {str(owner.get("uid")) for owner in owners}
