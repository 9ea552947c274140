"""Writes that request a repair or test a node, and Node labels that free the GPUs for a reset.

Operators such as the GPU Operator run pods on GPUs by Node labels. The remediator changes those
from `true` to its own value, and an annotation makes gpuward's agent release the driver. An
annotation records the changed labels; sessions have the same record. Only recorded labels are
restored, because a label may have this value for another reason. The record is on the Node, so it
survives a restart, an aborted session and an uninstall. It is validated as a unit.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Final

import msgspec

from rules.api import names, object_name
from rules.api.nodes import NodeView, QuarantineView


@dataclass(frozen=True, slots=True, kw_only=True)
class SetRepairCondition:
    """Request a repair step by a Node condition, or withdraw it; UID precondition."""

    node: str
    node_uid: str
    session: str
    step: str
    kind: str
    """The condition's type."""
    asks: bool
    """True requests the step, False withdraws the request."""
    message: str
    at: float

    @property
    def disruptive(self) -> bool:
        """Whether it may end pods: a request does, a withdrawal does not."""
        return self.asks


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectAddress:
    """One object of any kind, or with an empty `name` its collection."""

    api_version: str
    resource: str
    """The plural in lower case."""
    namespace: str = ""
    name: str = ""
    fields: str = ""
    """The field selector of a list."""

    @property
    def path(self) -> str:
        """The URL path. BadSegmentError for invalid names."""
        root = "/apis" if "/" in self.api_version else "/api"
        parts = [*self.api_version.split("/")]
        parts += ["namespaces", self.namespace] if self.namespace else []
        return object_name.api_path(
            root, *parts, self.resource, *([self.name] if self.name else [])
        )

    @property
    def text(self) -> str:
        """For messages: `machines.cluster.x-k8s.io capi/gpu-1`."""
        group = self.api_version.rpartition("/")[0]
        kind = f"{self.resource}.{group}" if group else self.resource
        where = f"{self.namespace}/" if self.namespace else ""
        return f"{kind} {where}{self.name}".strip()


class Verb(StrEnum):
    """The verb of a write to an object of a repair provider."""

    CREATE = "create"
    PATCH = "patch"
    DELETE = "delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteRepairObject:
    """Request a repair step by an object that a provider watches, or withdraw it.

    A create returns 409 if the object exists. A patch carries UID or version in its body, a
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
    """False withdraws a request."""

    @property
    def disruptive(self) -> bool:
        """Whether it may end pods: a request does, a withdrawal does not."""
        return self.asks

    @property
    def name(self) -> str:
        """The object, for messages."""
        return self.address.text


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTestJob:
    """Create the Job that tests a node under load; 409 AlreadyExists if it exists."""

    disruptive: ClassVar[bool] = True
    node: str
    node_uid: str
    session: str
    namespace: str
    name: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTestJob:
    """Delete a Job of gpuward and its pod; UID precondition."""

    disruptive: ClassVar[bool] = False
    node: str
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetValidated:
    """Set the Node condition of the last load test; UID precondition."""

    disruptive: ClassVar[bool] = False
    node: str
    node_uid: str
    passed: bool
    message: str
    at: float


MAX_MOVED: Final = 16
"""The most labels that one adapter changes."""
_OURS: Final = f"{names.COMPONENT_REMEDIATOR}: "
"""The prefix of the annotation's value if gpuward wrote it."""
_MAX_BYTES: Final = 8192
"""Room for 16 keys of 317 characters with their values."""


def node_patch(
    node: NodeView,
    session: str,
    body: Mapping[str, Any],
    *,
    step: str = "",
    asks: bool = False,
) -> WriteRepairObject:
    """Return a merge patch of the Node for `step`; without a step it withdraws a request."""
    return WriteRepairObject(
        node=node.name,
        node_uid=node.uid,
        session=session,
        step=step,
        verb=Verb.PATCH,
        address=ObjectAddress(api_version="v1", resource="nodes", name=node.name),
        body=body,
        asks=asks,
    )


def priors(keys: Iterable[str]) -> tuple[str, ...]:
    """Return labels that deploy pods as they are recorded, `label=value`, before they change."""
    return tuple(f"{key}={names.DEPLOYED}" for key in keys)


def clearing(
    node: NodeView, session: QuarantineView, keys: Iterable[str], step: str, request: str
) -> WriteRepairObject | None:
    """Return the write that pauses the labels `keys` and makes gpuward-agent close the GPUs; None
    if there is nothing to change.

    A label that another client sets back is not changed again: the reset checks the GPU's users.
    """
    if moved_labels(node, cleared_in((session,))) or _releases_driver(node):
        return None
    notes: dict[str, str] = {}
    if names.ANNOTATION_RELEASE_GPU not in node.annotations:
        notes[names.ANNOTATION_RELEASE_GPU] = f"{_OURS}{request}"
    return _pausing(node, session, keys, step, notes)


def clearing_last(
    node: NodeView, session: QuarantineView, keys: Iterable[str], step: str
) -> WriteRepairObject | None:
    """Return the write that also pauses `keys`, without those that were paused already."""
    known = _on_node(node)
    return _pausing(node, session, [key for key in keys if key not in known], step, {})


def _pausing(
    node: NodeView,
    session: QuarantineView,
    keys: Iterable[str],
    step: str,
    notes: dict[str, str],
) -> WriteRepairObject | None:
    if keys := sorted(keys):
        former = dict.fromkeys(sorted({*_on_node(node), *keys}), names.DEPLOYED)
        notes[names.ANNOTATION_MOVED] = msgspec.json.encode(former).decode()
    if not notes:
        return None
    meta = {
        "uid": node.uid,
        "resourceVersion": node.metadata.resource_version,
        "labels": dict.fromkeys(keys, names.PAUSED_BY_US),
        "annotations": notes,
    }
    return node_patch(node, session.name, {"metadata": meta}, step=step, asks=True)


def cleared_in(sessions: Iterable[QuarantineView]) -> tuple[str, ...]:
    """Return the changed labels that sessions of the node recorded."""
    return tuple(
        each for one in sessions for attempt in one.status.repair for each in attempt.cleared
    )


def restoring(
    node: NodeView | None, session: str, recorded: Iterable[str] = ()
) -> tuple[WriteRepairObject, ...]:
    """Return the write that restores the labels; () if none was changed."""
    if node is None:
        return ()
    labels = dict.fromkeys(moved_labels(node, recorded), names.DEPLOYED)
    notes = [names.ANNOTATION_MOVED] if _on_node(node) else []
    notes += [names.ANNOTATION_RELEASE_GPU] if _releases_driver(node) else []
    if not labels and not notes:
        return ()
    # With the version that was read, so that changes by operators are not overwritten.
    meta: dict[str, Any] = {"uid": node.uid, "resourceVersion": node.metadata.resource_version}
    meta |= {"labels": labels} if labels else {}
    meta |= {"annotations": dict.fromkeys(notes)} if notes else {}
    return (node_patch(node, session, {"metadata": meta}),)


def _releases_driver(node: NodeView) -> bool:
    return node.annotations.get(names.ANNOTATION_RELEASE_GPU, "").startswith(_OURS)


def moved_labels(node: NodeView, recorded: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the labels with gpuward's value that the Node or a session records."""
    known = set(_on_node(node))
    pairs = (each.partition("=") for each in recorded)
    known |= {
        key
        for key, _, former in pairs
        if former == names.DEPLOYED and object_name.is_label_key(key)
    }
    return tuple(key for key in sorted(known) if node.labels.get(key) == names.PAUSED_BY_US)


def unexplained_labels(node: NodeView, recorded: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the labels with gpuward's value that are not recorded."""
    moved = moved_labels(node, recorded)
    ours = (key for key, value in node.labels.items() if value == names.PAUSED_BY_US)
    return tuple(sorted(key for key in ours if key not in moved))


def _on_node(node: NodeView) -> tuple[str, ...]:
    text = node.annotations.get(names.ANNOTATION_MOVED, "")
    if not text or len(text) > _MAX_BYTES:
        return ()
    try:
        former = msgspec.json.decode(text.encode(errors="replace"), type=dict[str, str])
    except (msgspec.DecodeError, ValueError, RecursionError):
        return ()
    right = all(
        object_name.is_label_key(key) and value == names.DEPLOYED for key, value in former.items()
    )
    return tuple(former) if right and len(former) <= MAX_MOVED else ()
