"""`why` of a pod, read on behalf of a person: three requests before those about its node.

Pods and Events are asked for by name, so the API server sends no others. What the person's
permissions do not show is named, and the rest still told.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec

from remediator.kubectl.answers import unreadable
from remediator.kubectl.cluster import Cluster
from remediator.kubectl.command import CommandError
from remediator.kubectl.options import DEFAULT_NAMESPACE
from remediator.kubectl.why.pod import EventView, PodLook, naming, of_ours, pods_named
from rules.api.names import COMPONENT_REMEDIATOR
from rules.api.nodes import QuarantineView
from rules.api.object_name import api_path, field_selector
from rules.api.pods import PodView

T = TypeVar("T")

_POD: Final = "pod"
_MOST: Final = 20
"""In so many namespaces pods of one name are told of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedPod:
    """A pod as somebody named it."""

    name: str
    namespace: str = ""
    """ "": whichever has one of that name."""


def asked_pod(options: argparse.Namespace) -> AskedPod | None:
    """The pod that stands in the place of the node; None where a node does.

    With `pod/NAME` the option `-n` means the pod's namespace, as kubectl has it, and gpuward is
    looked for where it is by default; `NAMESPACE/NAME` leaves `-n` to say where gpuward is.
    """
    place, slash, name = str(options.node).partition("/")
    if not slash:
        return None
    if place != _POD:
        return AskedPod(name=name, namespace=place)
    if options.namespace != DEFAULT_NAMESPACE:
        options.pods_in, options.namespace = options.namespace, DEFAULT_NAMESPACE
    return AskedPod(name=name, namespace=getattr(options, "pods_in", ""))


async def look_at_pods(cluster: Cluster, asked: AskedPod) -> tuple[list[PodLook], list[str]]:
    """Every pod of that name that is there, or that gpuward had go, and what could not be seen.

    Where a namespace is named the one pod of it, whether it is there or not.
    """
    where = f"in namespace {asked.namespace}" if asked.namespace else "of all namespaces"
    about = f"involvedObject.kind=Pod,source={COMPONENT_REMEDIATOR}"
    unseen: list[str] = []

    async def named(plural: str, query: str, kind: type[T], lost: str) -> list[T]:
        try:
            found = await cluster.everything(_path(asked, plural), {"fieldSelector": query})
        except CommandError as error:
            if not error.forbidden:
                raise
            unseen.append(f"{plural} {where} (list {plural}): {lost}")
            return []
        return [_read(one, kind) for one in found]

    by_name = field_selector("metadata.name", asked.name)
    pods = await named("pods", by_name, PodView, "whether it is there, and on which node")
    of_it = f"{about},{field_selector('involvedObject.name', asked.name)}"
    told = of_ours(await named("events", of_it, EventView, "whether gpuward evicted it"))
    if unseen and not asked.namespace:
        unseen.append("where you may see one namespace alone: kubectl gpuward why NAMESPACE/POD")
    sessions = await cluster.sessions()
    there = {pod.metadata.namespace: pod for pod in pods}
    looks = [
        PodLook(
            namespace=namespace,
            name=asked.name,
            now=cluster.now(),
            pod=there.get(namespace),
            events=tuple(one for one in told if one.involved_object.namespace == namespace),
            sessions=tuple(naming(sessions, f"{namespace}/{asked.name}")),
            unseen=tuple(unseen),
        )
        for namespace in _namespaces(asked, pods, told, sessions)
    ]
    return looks, unseen


def _namespaces(
    asked: AskedPod,
    pods: Sequence[PodView],
    told: Sequence[EventView],
    sessions: Iterable[QuarantineView],
) -> list[str]:
    """Where a pod of that name is or was."""
    if asked.namespace:
        return [asked.namespace]
    named = (pod.rpartition("/") for session in sessions for pod in sorted(pods_named(session)))
    found = (
        *(pod.metadata.namespace for pod in pods),
        *(one.involved_object.namespace for one in told),
        *(namespace for namespace, _, name in named if name == asked.name),
    )
    return list(dict.fromkeys(found))[:_MOST]


def _path(asked: AskedPod, plural: str) -> str:
    inside = ("namespaces", asked.namespace) if asked.namespace else ()
    return api_path("/api/v1", *inside, plural)


def _read(found: dict[str, Any], kind: type[T]) -> T:
    try:
        return msgspec.convert(found, kind)
    except msgspec.ValidationError as error:
        raise CommandError(unreadable(error)) from error
