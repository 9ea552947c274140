"""Binding a pod to a node, the scheduler's one write.

Called for `POST pods/NAME/binding`.  Like the real server it asks nothing of the node: cordon
and taints are the scheduler's business.
"""

from __future__ import annotations

from typing import Any

from hack.sim.cluster import resource as r
from hack.sim.cluster.calls import WriteOptions
from hack.sim.cluster.statuses import accepted, conflict, required, unprocessable
from hack.sim.cluster.store.kinds import Kind, Object
from hack.sim.cluster.store.managed_fields import update_managed_fields
from hack.sim.cluster.store.objects import ObjectApi
from hack.sim.cluster.store.timestamps import rfc3339

_BINDING = r.Resource("", "v1", "pods/binding", True, "Binding")


def bind(
    api: ObjectApi, kind: Kind, namespace: str, name: str, body: Any, options: WriteOptions
) -> Object:
    """Give the pod its node; the Status of success, or ApiError."""
    body = body if isinstance(body, dict) else {}
    node = (body.get("target") or {}).get("name") or ""
    if not node:
        raise unprocessable(_BINDING, name, [required("target.name")])
    old = api.get(kind, name, namespace)
    metadata, spec = old.obj["metadata"], old.obj.get("spec") or {}
    wanted = (body.get("metadata") or {}).get("uid")
    if wanted and wanted != metadata["uid"]:
        raise conflict(
            r.PODS,
            name,
            f"Precondition failed: UID in precondition: {wanted}, UID in object meta: "
            f"{metadata['uid']}",
        )
    if metadata.get("deletionTimestamp"):
        raise conflict(
            _BINDING, name, f"pod {name} is being deleted, cannot be assigned to a host"
        )
    if spec.get("nodeName"):
        raise conflict(
            _BINDING, name, f'pod {name} is already assigned to node "{spec["nodeName"]}"'
        )
    if not options.dry_run:
        now = rfc3339(api.clock())
        status = old.obj.get("status") or {}
        conditions = [
            one for one in status.get("conditions") or [] if one.get("type") != "PodScheduled"
        ]
        conditions.append(
            {
                "type": "PodScheduled",
                "status": "True",
                "lastProbeTime": None,
                "lastTransitionTime": now,
            }
        )
        bound = {
            **old.obj,
            "metadata": dict(metadata),
            "spec": {**spec, "nodeName": node},
            "status": {**status, "conditions": conditions},
        }
        bound["metadata"]["managedFields"] = update_managed_fields(
            old.obj,
            bound,
            manager=options.manager,
            subresource="binding",
            api_version="v1",
            at=now,
            custom=False,
        )
        api.put(kind, old, bound)
    return accepted()
