"""What a CustomResourceDefinition says about its kind: where its objects live, how they scale.

The disruption controller and the garbage collector use it. Reads definitions only.
"""

from __future__ import annotations

from collections.abc import Iterable

from hack.sim.cluster.clients.client import Object
from hack.sim.cluster.resource import Resource


def crd_of(definitions: Iterable[Object], group: str, kind: str) -> Object | None:
    """The definition of a group and kind."""
    for crd in definitions:
        if crd["spec"]["group"] == group and crd["spec"]["names"]["kind"] == kind:
            return crd
    return None


def stored_resource(crd: Object) -> Resource:
    """The collection of the definition's storage version."""
    spec = crd["spec"]
    return Resource(
        spec["group"],
        _storage_version(crd)["name"],
        spec["names"]["plural"],
        spec["scope"] == "Namespaced",
        spec["names"]["kind"],
    )


def scale_path(crd: Object) -> list[str] | None:
    """The path of the wanted replica count, where the kind has a scale subresource."""
    scale = (_storage_version(crd).get("subresources") or {}).get("scale")
    if not scale:
        return None
    return str(scale["specReplicasPath"]).strip(".").split(".")


def _storage_version(crd: Object) -> Object:
    versions: list[Object] = crd["spec"]["versions"]
    return next((version for version in versions if version.get("storage")), versions[0])


def served_resources(crd: Object) -> list[Resource]:
    """The collections of all served versions."""
    spec = crd["spec"]
    return [
        Resource(
            spec["group"],
            version["name"],
            spec["names"]["plural"],
            spec["scope"] == "Namespaced",
            spec["names"]["kind"],
        )
        for version in spec["versions"]
        if version.get("served")
    ]
