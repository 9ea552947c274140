"""Posts YAML manifests to an API server: definitions first, then the rest, created or merged.

The control plane, the demo and tests use it where kubectl may be missing and no OpenAPI is served.
It knows the built-in kinds of `resource` and those that the posted definitions define; anything
else is refused by name before the first write.
"""

import asyncio
import copy
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml

from hack.sim.cluster import resource as builtin
from hack.sim.cluster.client import Client, Object
from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.resource import (
    CUSTOM_RESOURCE_DEFINITIONS,
    NAMESPACES,
    Resource,
    custom_resources,
)

KUSTOMIZATION = "kustomization.yaml"
# Of libyaml where PyYAML was built with it: ten times as fast, the same objects.
LOADER: type[yaml.SafeLoader | yaml.CSafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_LOOKS = 200
_LOOK_EVERY_S = 0.05


class ManifestError(Exception):
    """A manifest that cannot be posted: one sentence that names it."""


def read_manifests(path: Path) -> list[Object]:
    """The objects of a file, or of a folder: in its kustomization's order, else by file name.

    Of a kustomization only `resources` is read: overlays that patch are kubectl's business.
    """
    if path.is_file():
        return _documents(path)
    listing = path / KUSTOMIZATION
    if listing.is_file():
        entries = (yaml.safe_load(listing.read_text(encoding="utf-8")) or {}).get(
            "resources"
        ) or []
        return [obj for entry in entries for obj in read_manifests(path / entry)]
    if not path.is_dir():
        raise ManifestError(f"there is no file or folder {path}: name an existing one")
    return [obj for file in sorted(path.glob("*.yaml")) for obj in _documents(file)]


def with_component(objects: Iterable[Object], component: Path) -> list[Object]:
    """The objects with a kustomize component: its resources and JSON patches; how it changes a
    program's pods is left out.
    """
    listing = yaml.safe_load((component / KUSTOMIZATION).read_text(encoding="utf-8"))
    found = [*objects, *read_manifests(component)]
    for patch in listing.get("patches", ()):
        operations = yaml.safe_load(patch["patch"])
        if not isinstance(operations, list):
            continue
        target = (patch["target"]["kind"], patch["target"]["name"])
        places = [i for i, o in enumerate(found) if (o["kind"], o["metadata"]["name"]) == target]
        if not places:
            raise ManifestError(f"{component.name} changes {' '.join(target)}, which is not there")
        try:
            found[places[0]] = json_patch(found[places[0]], operations)
        except (LookupError, TypeError, ValueError) as error:
            raise ManifestError(f"{component.name} does not fit {' '.join(target)}") from error
    return found


def json_patch(obj: Object, operations: Sequence[Object]) -> Object:
    """The object after the operations add, replace and test of a JSON patch (RFC 6902)."""
    obj = copy.deepcopy(obj)
    for operation in operations:
        *way, last = operation["path"].removeprefix("/").split("/")
        place: Any = obj
        for step in way:
            place = place[int(step)] if isinstance(place, list) else place[step]
        key: Any = int(last) if isinstance(place, list) and last != "-" else last
        value = operation["value"]
        if operation["op"] == "test":
            if place[key] != value:
                raise ValueError(f"{operation['path']} is {place[key]!r}")
        elif key == "-":
            place.append(value)
        elif operation["op"] == "add" and isinstance(place, list):
            place.insert(key, value)
        elif operation["op"] in {"add", "replace"}:
            place[key] = value
        else:
            raise ValueError(f"{operation['op']} is not supported")
    return obj


def _documents(path: Path) -> list[Object]:
    try:
        documents: list[Any] = list(yaml.load_all(path.read_text(encoding="utf-8"), LOADER))
    except yaml.YAMLError as error:
        raise ManifestError(f"{path} is not YAML: {error}") from error
    found: list[Object] = []
    for document in documents:
        if document is None:
            continue
        if not isinstance(document, dict) or not {"apiVersion", "kind"} <= document.keys():
            raise ManifestError(f"{path} holds a document without apiVersion and kind")
        items = document.get("items") if document["kind"] == "List" else [document]
        found += items or []
    return found


def known_resources(
    objects: Iterable[Object], definitions: Iterable[Object] = ()
) -> dict[tuple[str, str], Resource]:
    """Every collection by (apiVersion, kind): built-in ones and those defined.

    By definitions among the objects, and by those in force; items of a list carry no kind.
    """
    known = {
        (resource.api_version, resource.kind): resource
        for resource in vars(builtin).values()
        if isinstance(resource, Resource)
    }
    among = [obj for obj in objects if obj["kind"] == CUSTOM_RESOURCE_DEFINITIONS.kind]
    for definition in (*definitions, *among):
        for resource in served(definition):
            known[(resource.api_version, resource.kind)] = resource
    return known


def served(definition: Object) -> list[Resource]:
    """The collections of all served versions of a CustomResourceDefinition."""
    return [one for one, version in custom_resources(definition) if version.get("served")]


async def post_manifests(
    client: Client, objects: Sequence[Object], *, namespace: str = "default"
) -> None:
    """Create or merge the objects: namespaces and definitions first, then the rest in order."""
    known = known_resources(objects, (await client.list(CUSTOM_RESOURCE_DEFINITIONS))[0])
    addressed: list[tuple[Resource, Object]] = []
    for obj in objects:
        resource = known.get((obj["apiVersion"], obj["kind"]))
        if resource is None:
            raise ManifestError(
                f"{obj['kind']} {obj['metadata'].get('name')} ({obj['apiVersion']}) is of a kind "
                "that neither Kubernetes nor a posted definition has: post its definition first"
            )
        addressed.append((resource, obj))
    first = [pair for pair in addressed if pair[0] in (NAMESPACES, CUSTOM_RESOURCE_DEFINITIONS)]
    for resource, obj in first:
        await _create_or_merge(client, resource, obj, namespace)
    for resource, obj in first:
        if resource == CUSTOM_RESOURCE_DEFINITIONS:
            await established(client, obj["metadata"]["name"])
    for resource, obj in addressed:
        if (resource, obj) not in first:
            await _create_or_merge(client, resource, obj, namespace)


async def established(client: Client, definition: str) -> None:
    """Wait until a definition's kind is served."""
    for _ in range(_LOOKS):
        crd = await client.get(CUSTOM_RESOURCE_DEFINITIONS, definition)
        conditions = (crd.get("status") or {}).get("conditions") or ()
        if any(c["type"] == "Established" and c["status"] == "True" for c in conditions):
            if await _all_served(client, crd):
                return
        elif any(c["type"] == "NamesAccepted" and c["status"] == "False" for c in conditions):
            raise ManifestError(f"the API server refuses the names of {definition}: {conditions}")
        await asyncio.sleep(_LOOK_EVERY_S)
    raise ManifestError(
        f"the API server did not establish {definition} within {_LOOKS * _LOOK_EVERY_S:.0f} s: "
        "see its status conditions"
    )


async def _all_served(client: Client, crd: Object) -> bool:
    """A real API server answers 404 for a moment after Established is true."""
    for resource in served(crd):
        try:
            await client.list(resource)
        except ApiError as error:
            if error.code == 404:
                return False
            raise
    return True


async def _create_or_merge(
    client: Client, resource: Resource, obj: Object, default_namespace: str
) -> None:
    meta = obj["metadata"]
    namespace = (meta.get("namespace") or default_namespace) if resource.namespaced else None
    if resource.namespaced:
        obj = {**obj, "metadata": {**meta, "namespace": namespace}}
    try:
        await client.create(resource, obj, namespace)
    except ApiError as error:
        if error.code != 409:
            raise
        await client.patch(resource, meta["name"], obj, namespace)
