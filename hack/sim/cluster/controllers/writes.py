"""What a controller wants changed, as values, and the one place that sends them.

Reconcile functions return an `Outcome`; the running loops call `send`. A write never retries by
itself: a refused one makes the loop look again at the present state.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from hack.sim.cluster.clients.client import Client, Object
from hack.sim.cluster.controllers.timestamps import stamp
from hack.sim.cluster.resource import EVENTS, PODS, Resource

_NAME_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    """POST of a new object; `metadata.generateName` is filled in when it is sent."""

    resource: Resource
    body: Object


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateStatus:
    """PUT of the status of `body`, refused (409) where its resourceVersion is no longer
    current.
    """

    resource: Resource
    body: Object


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """A merge patch of `target`, guarded by its UID and, unless `blind`, its resourceVersion."""

    resource: Resource
    target: Object
    patch: dict[str, Any]
    subresource: str | None = None
    blind: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """DELETE of `target` under its UID; `grace_s` None leaves the object's own grace period."""

    resource: Resource
    target: Object
    grace_s: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bind:
    """The binding subresource: puts `pod` on the node."""

    pod: Object
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finalize:
    """PUT of a namespace's finalize subresource without its finalizers."""

    resource: Resource
    body: Object


@dataclass(frozen=True, slots=True, kw_only=True)
class Tell:
    """An Event about `about`; `kind` is Normal or Warning."""

    about: Object
    kind: str
    reason: str
    message: str
    component: str


Write = Create | UpdateStatus | Patch | Delete | Bind | Finalize | Tell


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one look at one object leads to: writes in order, and when to look again."""

    writes: tuple[Write, ...] = ()
    again_in_s: float | None = None


NOTHING = Outcome()


def with_status(obj: Object, status: Object) -> Object:
    """A copy of the object that differs in its status only."""
    return {**obj, "status": status}


def random_suffix(rng: random.Random) -> Callable[[], str]:
    """A source of the five letters that end a generated name."""
    return lambda: "".join(rng.choices(_NAME_LETTERS, k=5))


async def send(
    client: Client, write: Write, now: datetime, suffix: Callable[[], str]
) -> Object | None:
    """Send one write; the object as it is stored then, where the API answers with one."""
    match write:
        case Create():
            body = _named(write.body, suffix)
            return await client.create(write.resource, body, body["metadata"].get("namespace"))
        case UpdateStatus():
            body = write.body
            return await client.update_status(
                write.resource, body, body["metadata"].get("namespace")
            )
        case Patch():
            return await _send_patch(client, write)
        case Delete():
            meta = write.target["metadata"]
            await client.delete(
                write.resource,
                meta["name"],
                meta.get("namespace"),
                uid=meta["uid"],
                grace=write.grace_s,
                propagation="Background",
            )
        case Bind():
            meta = write.pod["metadata"]
            await client.bind(meta["namespace"], meta["name"], write.node)
        case Finalize():
            return await client.update(write.resource, write.body, subresource="finalize")
        case Tell():
            await client.create(
                EVENTS,
                _named(event(write, now), suffix),
                write.about["metadata"].get("namespace") or "default",
            )
    return None


def resource_of(write: Write) -> Resource:
    """The collection the write changes."""
    match write:
        case Bind():
            return PODS
        case Tell():
            return EVENTS
        case _:
            return write.resource


def event(tell: Tell, now: datetime) -> Object:
    """The Event object that says it (core/v1, as `kubectl describe` reads it)."""
    about = tell.about
    meta = about["metadata"]
    namespace = meta.get("namespace") or "default"
    regarding = {
        "apiVersion": about.get("apiVersion", ""),
        "kind": about.get("kind", ""),
        "name": meta["name"],
        "uid": meta["uid"],
        "resourceVersion": meta.get("resourceVersion", ""),
    }
    if meta.get("namespace"):
        regarding["namespace"] = meta["namespace"]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{meta['name']}.", "namespace": namespace},
        "involvedObject": regarding,
        "type": tell.kind,
        "reason": tell.reason,
        "message": tell.message,
        "source": {"component": tell.component},
        "firstTimestamp": stamp(now),
        "lastTimestamp": stamp(now),
        "count": 1,
    }


def _named(body: Object, suffix: Callable[[], str]) -> Object:
    meta = body["metadata"]
    if "name" in meta:
        return body
    rest = {key: value for key, value in meta.items() if key != "generateName"}
    prefix = meta["generateName"]
    return {**body, "metadata": {"name": prefix + suffix(), "generateName": prefix, **rest}}


async def _send_patch(client: Client, write: Patch) -> Object:
    meta = write.target["metadata"]
    guards = {"uid": meta["uid"]}
    if not write.blind:
        guards["resourceVersion"] = meta["resourceVersion"]
    patch = {**write.patch, "metadata": {**write.patch.get("metadata", {}), **guards}}
    return await client.patch(
        write.resource,
        meta["name"],
        patch,
        meta.get("namespace"),
        subresource=write.subresource,
    )
