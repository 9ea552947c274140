"""Deleting objects: preconditions, finalizers, grace periods, propagation.

Called for DELETE and by the eviction logic.  A pod bound to a node only goes when its kubelet
confirms with grace 0; the garbage collector that follows ownerReferences is a controller.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hack.sim.cluster import resource as r
from hack.sim.cluster.calls import DeleteOptions
from hack.sim.cluster.statuses import (
    FieldProblem,
    forbidden,
    invalid,
    precondition_failed,
    unprocessable,
)
from hack.sim.cluster.store.kinds import Kind, Object
from hack.sim.cluster.store.objects import ObjectApi
from hack.sim.cluster.store.store import Stored
from hack.sim.cluster.store.timestamps import epoch, rfc3339

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"
_PROPAGATIONS = ("Foreground", "Background", "Orphan")
_IMMORTAL_NAMESPACES = frozenset({"default", "kube-system", "kube-public"})
_FINISHED = frozenset({"Succeeded", "Failed"})


def read_delete_options(body: Any, query: dict[str, str]) -> DeleteOptions:
    """The options of a DELETE from its body and query (the body wins)."""
    body = body if isinstance(body, dict) else {}
    preconditions = body.get("preconditions") or {}
    grace = body.get("gracePeriodSeconds", query.get("gracePeriodSeconds"))
    dry = body.get("dryRun") or ([query["dryRun"]] if query.get("dryRun") else [])
    propagation = body.get("propagationPolicy") or query.get("propagationPolicy")
    if propagation is None and body.get("orphanDependents") is not None:
        propagation = "Orphan" if body["orphanDependents"] else "Background"
    problems: list[FieldProblem] = []
    if dry not in ([], ["All"]):
        problems.append(invalid("dryRun", dry, "supported values: All"))
    if propagation not in {None, *_PROPAGATIONS}:
        problems.append(invalid("propagationPolicy", propagation, "not supported"))
    if problems:
        options = r.Resource("meta.k8s.io", "v1", "deleteoptions", False, "DeleteOptions")
        raise unprocessable(options, "", problems)
    return DeleteOptions(
        grace=None if grace is None else int(grace),
        uid=preconditions.get("uid"),
        resource_version=preconditions.get("resourceVersion"),
        propagation=propagation,
        dry_run=dry == ["All"],
    )


def check_preconditions(obj: Object, options: DeleteOptions) -> None:
    """409 when the object is not the one, or not the revision, that the caller means."""
    metadata = obj["metadata"]
    uid, version = metadata["uid"], metadata["resourceVersion"]
    if options.uid and options.uid != uid:
        raise precondition_failed(
            obj,
            f"the UID in the precondition ({options.uid}) does not match the UID in record "
            f"({uid}). The object might have been deleted and then recreated",
        )
    if options.resource_version and options.resource_version != version:
        raise precondition_failed(
            obj,
            f"the ResourceVersion in the precondition ({options.resource_version}) does not match "
            f"the ResourceVersion in record ({version}). The object might have been modified",
        )


def delete(
    api: ObjectApi, kind: Kind, name: str, namespace: str | None, options: DeleteOptions
) -> tuple[Stored, bool]:
    """Delete or begin to delete; what is left or was, and whether it is gone."""
    if kind.resource == r.NAMESPACES and name in _IMMORTAL_NAMESPACES:
        raise forbidden(kind.resource, name, "this namespace may not be deleted")
    old = api.get(kind, name, namespace)
    check_preconditions(old.obj, options)
    if kind.resource == r.PODS:
        grace = _pod_grace(old.obj, options)
        if grace is None:
            return old, False
        return _delete_pod(api, kind, old, grace, options)
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
    grace = options.grace
    if grace is None:
        grace = spec.get("terminationGracePeriodSeconds", 30)
    if not spec.get("nodeName") or (pod.get("status") or {}).get("phase") in _FINISHED:
        return 0
    return 1 if grace < 0 else grace


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
    stored = api.put(kind, old, marked)
    return (_remove(api, kind, stored), True) if gone else (stored, False)


def _delete_plain(
    api: ObjectApi, kind: Kind, old: Stored, options: DeleteOptions
) -> tuple[Stored, bool]:
    obj = api.strategies.before_delete(kind, old.obj)
    metadata = _with_propagation(kind, obj["metadata"], options)
    held = bool(metadata.get("finalizers")) or api.strategies.holds(kind, old.obj)
    if not held:
        return (old if options.dry_run else _remove(api, kind, old)), True
    changed = metadata.get("finalizers") != old.obj["metadata"].get("finalizers")
    if metadata.get("deletionTimestamp") and not changed:
        return old, False
    marked = {**old.obj, "metadata": metadata}
    if not metadata.get("deletionTimestamp"):
        metadata["deletionTimestamp"] = rfc3339(api.clock())
        metadata["deletionGracePeriodSeconds"] = 0
        if metadata.get("generation"):
            metadata["generation"] += 1
        if kind.resource == r.NAMESPACES:
            metadata.pop("deletionGracePeriodSeconds")
            marked["status"] = {**(old.obj.get("status") or {}), "phase": "Terminating"}
    if options.dry_run:
        return Stored(marked, old.revision), False
    stored = api.put(kind, old, marked)
    api.strategies.updated(kind, stored.obj)
    return api.collection(kind).objects.get(
        api.key(kind, metadata["name"], metadata.get("namespace")), stored
    ), False


def _with_propagation(kind: Kind, metadata: Object, options: DeleteOptions) -> Object:
    """The metadata with the finalizer that the propagation policy asks the collector for."""
    metadata = dict(metadata)
    finalizers = [
        one for one in metadata.get("finalizers") or [] if one not in {FOREGROUND, ORPHAN}
    ]
    propagation = options.propagation
    if (
        propagation is None
        and kind.resource == r.JOBS
        and finalizers == metadata.get("finalizers", [])
    ):
        # Unless told otherwise, or before: what it did before there was a collector.
        propagation = "Orphan"
    wanted = {"Foreground": FOREGROUND, "Orphan": ORPHAN}.get(propagation or "")
    if propagation is None:
        return metadata
    if wanted:
        finalizers.append(wanted)
    metadata["finalizers"] = finalizers
    if not finalizers:
        metadata.pop("finalizers")
    return metadata


def _remove(api: ObjectApi, kind: Kind, old: Stored) -> Stored:
    metadata = old.obj["metadata"]
    key = api.key(kind, metadata["name"], metadata.get("namespace"))
    removed = api.store.remove(api.collection(kind), key)
    api.strategies.removed(kind, removed.obj)
    return removed


def delete_collection(
    api: ObjectApi, kind: Kind, selected: list[Stored], options: DeleteOptions
) -> None:
    """Delete each selected object by itself, as a server does."""
    for one in selected:
        metadata = one.obj["metadata"]
        present = api.collection(kind).objects.get(
            api.key(kind, metadata["name"], metadata.get("namespace"))
        )
        if present is not None:
            each = replace(options, uid=metadata["uid"])
            delete(api, kind, metadata["name"], metadata.get("namespace"), each)
