"""Objects on a simulated or real API server, with the status that their controller would write."""

from typing import Any

from hack.sim.cluster.client import Object
from hack.sim.cluster.resource import Resource


async def made(
    client: Any, resource: Resource, name: str, namespace: str | None = None,
    *, status: Object | None = None, meta: Object | None = None, **content: Any,
) -> Object:  # fmt: skip
    """The object as it is kept; `meta` is further metadata, `content` further fields."""
    body = {
        "apiVersion": resource.api_version, "kind": resource.kind,
        "metadata": {"name": name, **(meta or {})}, **content,
    }  # fmt: skip
    if status is not None:
        body["status"] = status
    found = await client.create(resource, body, namespace)
    if status is None or found.get("status") == status:
        return found
    return await client.update_status(resource, {**found, "status": status}, namespace)


def with_gpus(node: str, gpus: int = 8) -> Object:
    """The spec of a pod on the node that has so many GPUs."""
    limits = {"nvidia.com/gpu": str(gpus)}
    container = {"name": "c", "image": "i", "resources": {"limits": limits}}
    return {"nodeName": node, "containers": [container]}
