"""The writes that ask for a repair, or test a node after one; a part of `rules.api.writes`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

from rules.api.object_name import api_path


@dataclass(frozen=True, slots=True, kw_only=True)
class SetRepairCondition:
    """Ask for a repair step by a Node condition of our own, or take that back; UID
    precondition.
    """

    node: str
    node_uid: str
    session: str
    step: str
    kind: str
    """The condition's type."""
    asks: bool
    """True sets it to True, False takes it back."""
    message: str
    at: float

    @property
    def harmful(self) -> bool:
        """Whoever follows the condition ends what runs there; taking it back ends nothing."""
        return self.asks


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectAddress:
    """One object of any kind, or with `name` "" the collection it is in, as its URL says it."""

    api_version: str
    resource: str
    """The plural in lower case."""
    namespace: str = ""
    name: str = ""

    @property
    def path(self) -> str:
        """The URL's path. BadSegmentError for what cannot be a part of one."""
        root = "/apis" if "/" in self.api_version else "/api"
        parts = [*self.api_version.split("/")]
        parts += ["namespaces", self.namespace] if self.namespace else []
        return api_path(root, *parts, self.resource, *([self.name] if self.name else []))

    @property
    def words(self) -> str:
        """For people: `machines.cluster.x-k8s.io capi/gpu-1`."""
        group = self.api_version.rpartition("/")[0]
        kind = f"{self.resource}.{group}" if group else self.resource
        where = f"{self.namespace}/" if self.namespace else ""
        return f"{kind} {where}{self.name}".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectQuery:
    """An object that a decision rests on and nobody watches: the edge reads it when asked."""

    address: ObjectAddress


class Verb(StrEnum):
    """What is done to an object of a repair provider."""

    CREATE = "create"
    PATCH = "patch"
    DELETE = "delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteRepairObject:
    """Ask for a repair step by an object that others follow, or take that back.

    A create answers 409 where the object exists; a patch carries UID or version in its body, a
    deletion in its preconditions.
    """

    node: str
    node_uid: str
    session: str
    step: str
    verb: Verb
    address: ObjectAddress
    body: Mapping[str, Any]
    asks: bool
    """False takes a request back."""

    @property
    def harmful(self) -> bool:
        """Whoever follows the object ends what runs on the node; taking it back ends nothing."""
        return self.asks

    @property
    def name(self) -> str:
        """The object, for people."""
        return self.address.words


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTestJob:
    """Make the Job that tests a node under load; 409 AlreadyExists where there is one of the
    name.
    """

    harmful: ClassVar[bool] = True
    node: str
    node_uid: str
    session: str
    namespace: str
    name: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTestJob:
    """End a Job of ours and its pod; UID precondition."""

    harmful: ClassVar[bool] = False
    node: str
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetValidated:
    """Say on the Node what its last test under load came to; UID precondition."""

    harmful: ClassVar[bool] = False
    node: str
    node_uid: str
    passed: bool
    message: str
    at: float
