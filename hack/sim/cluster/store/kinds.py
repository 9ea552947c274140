"""What the server knows about each kind it serves, and the registry of all of them.

Built-ins are described in `builtins`, custom kinds come from CustomResourceDefinitions.  The
API logic, discovery and tables read this; nothing here looks at stored objects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hack.sim.cluster.resource import Resource
from hack.sim.cluster.statuses import FieldProblem
from hack.sim.cluster.store.selectors import FieldReader

Object = dict[str, Any]

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table: a header, its type, whether only `-o wide` shows it, its cell."""

    name: str
    type: str
    cell: Callable[[Object, float], Any]
    wide: bool = False
    format: str = ""
    description: str = ""


class Schema:
    """Fills in, prunes and checks an object's content; this one accepts everything."""

    def complete(self, obj: Object, known: Object | None = None) -> tuple[Object, list[str]]:
        """The object with defaults and without unknown fields; the paths that were unknown.

        `known` is a revision that was completed before: what is shared with it may be skipped.
        """
        return obj, []

    def problems(self, obj: Object, old: Object | None = None) -> list[FieldProblem]:
        """Every rule that the object breaks; `old` is what an update replaces."""
        return []


def _no_readers() -> Mapping[str, FieldReader]:
    return {}


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """A served kind."""

    resource: Resource
    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    subresources: tuple[str, ...] = ()
    generation: bool = False
    status_on_create: bool = True
    unconditional_update: bool = True
    create_on_update: bool = False
    custom: bool = False
    columns: tuple[Column, ...] = ()
    fields: Mapping[str, FieldReader] = field(default_factory=_no_readers)
    indexed: tuple[str, ...] = ()
    schema: Schema = field(default_factory=Schema)
    storage: str = ""
    respelled: bool = False
    """Stored in the spelling of another API version (see `event_shapes`)."""

    @property
    def has_status(self) -> bool:
        """Whether status is a subresource, isolated from the rest."""
        return "status" in self.subresources

    @property
    def store_name(self) -> str:
        """The collection its objects live in (two API groups may share one)."""
        return self.storage or self.resource.group_resource

    @property
    def list_kind(self) -> str:
        """The kind of a list of it."""
        return self.resource.kind + "List"


class Registry:
    """All kinds being served, found as a URL names them."""

    def __init__(self, kinds: tuple[Kind, ...]) -> None:
        self._kinds: dict[tuple[str, str, str], Kind] = {}
        for kind in kinds:
            self.add(kind)

    def add(self, kind: Kind) -> None:
        """Serve a kind (again)."""
        resource = kind.resource
        self._kinds[resource.group, resource.version, resource.plural] = kind

    def remove(self, resource: Resource) -> None:
        """Stop serving a kind."""
        self._kinds.pop((resource.group, resource.version, resource.plural), None)

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        """The kind behind a URL."""
        return self._kinds.get((group, version, plural))

    def of(self, resource: Resource) -> Kind | None:
        """The kind of a resource value."""
        return self._kinds.get((resource.group, resource.version, resource.plural))

    def all(self) -> list[Kind]:
        """Every kind, in the order they were added."""
        return list(self._kinds.values())

    def groups(self) -> dict[str, list[str]]:
        """Each API group with its versions."""
        found: dict[str, list[str]] = {}
        for group, version, _ in self._kinds:
            versions = found.setdefault(group, [])
            if version not in versions:
                versions.append(version)
        return found
