"""Read watch events line by line, and compare resource versions."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import aiohttp
import msgspec
import structlog

from remediator.kube.answer import Answer, name_of
from rules.api.metadata import ObjectMeta
from rules.text import tolerant
from rules.text.tolerant import Understood

T = TypeVar("T")
_LOG = structlog.get_logger()
_MAX_EVENT_BYTES = 16 * 1024 * 1024
MAX_VERSION_CHARS = 40


class Named(Protocol):
    """Any view with metadata."""

    @property
    def metadata(self) -> ObjectMeta:
        """Name, version and labels."""
        ...


class WatchEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a watch."""

    type: str
    object: msgspec.Raw


class AnyObject(msgspec.Struct, frozen=True, kw_only=True):
    """Metadata of any object, and code and message of a Status."""

    metadata: ObjectMeta = ObjectMeta()
    code: int = 0
    message: str = ""


class ObjectVersion(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Identity and version of an object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _Versioned(msgspec.Struct, frozen=True, kw_only=True):
    metadata: ObjectVersion = ObjectVersion()


class RelistError(Exception):
    """The watch cannot continue and the resource must be listed again."""


def decode_loosely(raw: msgspec.Raw) -> AnyObject:
    """The object's metadata; empty if it cannot be decoded."""
    return tolerant.understand(raw, AnyObject).value or AnyObject()


def version_of(raw: msgspec.Raw) -> tuple[str, ObjectVersion]:
    """Key and version of an object; empty if they cannot be decoded."""
    try:
        found = msgspec.json.decode(raw, type=_Versioned).metadata
    except tolerant.UNREADABLE:
        return "", ObjectVersion()
    return f"{found.namespace}/{found.name}" if found.namespace else found.name, found


async def lines(stream: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Complete lines of a watch, of any length up to a bound."""
    rest = bytearray()
    async for chunk in stream.iter_any():
        rest += chunk
        *complete, tail = rest.split(b"\n")
        for line in complete:
            if line.strip():
                yield bytes(line)
        rest = bytearray(tail)
        if len(rest) > _MAX_EVENT_BYTES:
            raise RelistError("one event of the watch is larger than 16 MiB")


def same_version(one: ObjectMeta, other: ObjectVersion) -> bool:
    """Whether it is the same object, unchanged."""
    same = one.resource_version == other.resource_version
    return same and one.uid == other.uid and bool(other.uid and other.resource_version)


def is_number(version: str) -> bool:
    """Whether this version can be compared."""
    return version.isascii() and version.isdigit() and len(version) < MAX_VERSION_CHARS


def newer(one: Named, other: Named) -> bool:
    """Whether `one` is a newer version of the object than `other`.

    Versions of one resource can be compared as numbers (documented since Kubernetes 1.35).
    """
    left, right = one.metadata.resource_version, other.metadata.resource_version
    same = one.metadata.uid == other.metadata.uid
    return same and is_number(left) and is_number(right) and int(left) > int(right)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A collection to watch and its selector."""

    name: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    crd: str = ""
    """The name of the CustomResourceDefinition that serves it, for the remedy when it is missing.
    """
    metadata_only: bool = False
    """Ask for the metadata of the objects only, because the objects are large."""

    def accept(self, kind: str = "") -> str:
        """The media type to ask for; `kind` is "List" for a list."""
        what = f";as=PartialObjectMetadata{kind};g=meta.k8s.io;v=v1" if self.metadata_only else ""
        return f"application/json{what}"


def explained(resource: Resource, answer: Answer) -> str:
    """Why a list failed, one sentence with the remedy."""
    if answer.code == 404 and resource.crd:
        return (
            f"CustomResourceDefinition {resource.crd} is missing; install it with "
            "`kubectl apply -k daemonset/crds`."
        )
    refused = answer.code in {401, 403}
    remedy = "check the remediator's service account, its ClusterRole and their binding"
    then = remedy if refused else "trying again"
    return f"Listing {resource.name}: {answer.sentence()}; {then}."


def understood(raw: msgspec.Raw, kind: type[T], resource: Resource) -> Understood[T]:
    """Decode an object as far as possible; log decoding problems."""
    found = tolerant.understand(raw, kind)
    if found.doubts:
        _LOG.warning(
            "object not understood",
            resource=resource.name,
            object=name_of(raw)[:253],
            why=found.doubt[:200],
        )
    return found
