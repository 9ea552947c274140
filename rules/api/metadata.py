"""The metadata that every view of an API object shares. See `rules.api.nodes`."""

import hashlib
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from rules.api import timestamps

DOUBT_FIELD: Any = msgspec.field(name="gpuward.io/doubt", default="")
"""The field `doubt` of a view: never on the wire, set by `rules.text.tolerant`."""
_MAX_ID: Final = 64
"""The longest UID or boot ID in gpuward's objects (`daemonset/crds`)."""


def bounded_id(text: str) -> str:
    """Return the ID, or its hash if it is too long."""
    if len(text) <= _MAX_ID:
        return text
    return f"sha256-{hashlib.sha256(text.encode(errors='replace')).hexdigest()[:48]}"


class View(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of all views: names as on the wire, unknown fields skipped."""


class OwnerReference(View, frozen=True, kw_only=True):
    """An owner of the object; `controller` flags the one that manages it."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False

    @property
    def group(self) -> str:
        """API group, "" for the core group."""
        return self.api_version.rpartition("/")[0]


class ObjectMeta(View, frozen=True, kw_only=True):
    """The metadata that rules read. Only `ManagedMeta` has the fields of `managedFields`."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[OwnerReference, ...] = ()

    @property
    def created_at(self) -> float:
        """Seconds since the epoch; 0.0 without a creation time."""
        return timestamps.parse_time(self.creation_timestamp) or 0.0

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that manages the object, if any."""
        return next((owner for owner in self.owner_references if owner.controller), None)


class Writer(View, frozen=True, kw_only=True):
    """A client that wrote to the object, last at `time` by the API server's clock."""

    manager: str = ""
    operation: str = ""
    time: str = ""
    subresource: str = ""


class ManagedField(Writer, frozen=True, kw_only=True):
    """One manager's claim on fields of the object."""

    fields_v1: dict[str, Any] = msgspec.field(name="fieldsV1", default_factory=dict)

    def claims(self, path: Sequence[str]) -> bool:
        """Return whether this manager owns the field at `path`, each step as `f:NAME`."""
        fields: object = self.fields_v1
        for step in path:
            if not isinstance(fields, dict) or step not in fields:
                return False
            fields = fields[step]
        return True


class TimedMeta(ObjectMeta, frozen=True, kw_only=True):
    """Metadata with the writers and their times, without fields."""

    managed_fields: tuple[Writer, ...] = ()


class ManagedMeta(TimedMeta, frozen=True, kw_only=True):
    """Metadata with managed fields, of few objects only, because they are large."""

    managed_fields: tuple[ManagedField, ...] = ()


class ListMeta(View, frozen=True, kw_only=True):
    """Metadata of a list: where a watch can start, and the token of the next page."""

    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class LabelSelector(View, frozen=True, kw_only=True):
    """`matchLabels` and `matchExpressions` as raw wire values."""

    match_labels: dict[str, str] = msgspec.field(default_factory=dict)
    match_expressions: tuple[dict[str, Any], ...] = ()
