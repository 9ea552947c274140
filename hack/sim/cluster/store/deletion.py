"""Deleting objects: preconditions, finalizers, grace periods, propagation.

A pod bound to a node only goes when its kubelet confirms with grace 0; the garbage collector that
follows ownerReferences is a controller.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hack.sim.cluster import resource as r
from hack.sim.cluster.errors import conflict, forbidden
from hack.sim.cluster.resource import DeleteOptions
from hack.sim.cluster.store.kinds import Kind, Object
from hack.sim.cluster.store.objects import ObjectApi, holds
from hack.sim.cluster.store.store import Stored
from hack.sim.cluster.store.tables import epoch, rfc3339

ORPHAN = "orphan"
_IMMORTAL_NAMESPACES = frozenset({"default", "kube-system", "kube-public"})
_FINISHED = frozenset({"Succeeded", "Failed"})


def read_delete_options(body: Any, query: dict[str, str]) -> DeleteOptions:
    """The options of a DELETE from its body and query (the body wins)."""
    body = body if isinstance(body, dict) else {}
    preconditions = body.get("preconditions") or {}
    grace = body.get("gracePeriodSeconds", query.get("gracePeriodSeconds"))
    return DeleteOptions(
        grace=None if grace is None else int(grace),
        uid=preconditions.get("uid"),
        resource_version=preconditions.get("resourceVersion"),
        propagation=body.get("propagationPolicy") or query.get("propagationPolicy"),
        dry_run=bool(body.get("dryRun") or query.get("dryRun")),
    )


def check_preconditions(kind: Kind, obj: Object, options: DeleteOptions) -> None:
    """409 when the object is not the one, or not the revision, that the caller means."""
    metadata = obj["metadata"]
    for name, wanted, found in (
        ("UID", options.uid, metadata["uid"]),
        ("ResourceVersion", options.resource_version, metadata["resourceVersion"]),
    ):
        if wanted and wanted != found:
            why = (
                f"the {name} in the precondition ({wanted}) does not match the {name} in record "
                f"({found}). The object might have been deleted and then recreated"
            )
            # These name the kind where other conflicts name the resource.
            raise conflict(
                replace(kind.resource, plural=kind.resource.kind), metadata["name"], why
            )


def delete(
    api: ObjectApi, kind: Kind, name: str, namespace: str | None, options: DeleteOptions
) -> tuple[Stored, bool]:
    """Delete or begin to delete; what is left or was, and whether it is gone."""
    if kind.resource == r.NAMESPACES and name in _IMMORTAL_NAMESPACES:
        raise forbidden(kind.resource, name, "this namespace may not be deleted")
    old = api.get(kind, name, namespace)
    check_preconditions(kind, old.obj, options)
    if kind.resource == r.PODS:
        grace = _pod_grace(old.obj, options)
        return (old, False) if grace is None else _delete_pod(api, kind, old, grace, options)
    return _delete_plain(api, kind, old, options)


def _pod_grace(pod: Object, options: DeleteOptions) -> int | None:
    """The grace period this delete sets; None when it changes nothing (grace only shrinks)."""
    metadata, spec = pod["metadata"], pod.get("spec") or {}
    if metadata.get("deletionTimestamp"):
        running = metadata.get("deletionGracePeriodSeconds")
        if running is None:
            return 0
        if options.grace is None or options.grace >= running:
            return None
        return max(0, options.grace)
    if not spec.get("nodeName") or (pod.get("status") or {}).get("phase") in _FINISHED:
        return 0
    grace = options.grace
    return int(spec.get("terminationGracePeriodSeconds", 30)) if grace is None else grace


def _delete_pod(
    api: ObjectApi, kind: Kind, old: Stored, grace: int, options: DeleteOptions
) -> tuple[Stored, bool]:
    metadata = _with_propagation(kind, old.obj["metadata"], options)
    running = epoch(metadata.get("deletionTimestamp"))
    if running is None:
        ends = api.clock() + grace
    else:
        ends = running - int(metadata.get("deletionGracePeriodSeconds") or 0) + grace
        if ends < api.clock():  # never into the past, and still for the kubelet to end
            ends, grace = api.clock(), min(grace, 1)
    metadata["deletionTimestamp"] = rfc3339(ends)
    metadata["deletionGracePeriodSeconds"] = grace
    if running is None and metadata.get("generation"):
        metadata["generation"] += 1
    marked = {**old.obj, "metadata": metadata}
    gone = grace == 0 and not metadata.get("finalizers")
    if options.dry_run:
        return Stored(marked, old.revision), gone
    stored = api.put(kind, marked)
    return (api.remove(kind, stored.obj), True) if gone else (stored, False)


def _delete_plain(
    api: ObjectApi, kind: Kind, old: Stored, options: DeleteOptions
) -> tuple[Stored, bool]:
    metadata = _with_propagation(kind, old.obj["metadata"], options)
    if not metadata.get("finalizers") and not holds(kind, old.obj):
        return (old if options.dry_run else api.remove(kind, old.obj)), True
    if metadata.get("deletionTimestamp") and metadata == old.obj["metadata"]:
        return old, False
    marked = {**old.obj, "metadata": metadata}
    if not metadata.get("deletionTimestamp"):
        metadata["deletionTimestamp"] = rfc3339(api.clock())
        metadata["deletionGracePeriodSeconds"] = 0
        if metadata.get("generation"):
            metadata["generation"] += 1
        if kind.resource == r.NAMESPACES:
            marked["status"] = {**(old.obj.get("status") or {}), "phase": "Terminating"}
    return (Stored(marked, old.revision) if options.dry_run else api.put(kind, marked)), False


def _with_propagation(kind: Kind, metadata: Object, options: DeleteOptions) -> Object:
    """The metadata with the finalizer that the propagation policy asks the collector for."""
    propagation = options.propagation
    known = metadata.get("finalizers") or []
    finalizers = [one for one in known if one != ORPHAN]
    if propagation is None and kind.resource == r.JOBS and finalizers == known:
        # Unless told otherwise, or before: what it did before there was a collector.
        propagation = "Orphan"
    if propagation is None:
        return dict(metadata)
    if propagation == "Orphan":
        finalizers.append(ORPHAN)
    rest = {key: value for key, value in metadata.items() if key != "finalizers"}
    return rest | ({"finalizers": finalizers} if finalizers else {})
