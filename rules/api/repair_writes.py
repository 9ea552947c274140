"""The writes that ask for a repair or test a node, and who is moved off its GPUs for a reset.

Operators keep pods on GPUs by labels of the Node; only `true` is ever changed, to a value of our
own, and our own agent lets go of the driver for an annotation. What comes back is what the record
beside them names and nothing else: a label may have our value because somebody copied it. Session
objects keep the same record, for Nodes whose annotation went. All stands on the Node, so a
restart, another leader, an aborted session and an uninstall find it. What is read here may be
anybody's word: it is bounded, and one wrong part makes all of it nothing.
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
    def disruptive(self) -> bool:
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
        return object_name.api_path(
            root, *parts, self.resource, *([self.name] if self.name else [])
        )

    @property
    def words(self) -> str:
        """For people: `machines.cluster.x-k8s.io capi/gpu-1`."""
        group = self.api_version.rpartition("/")[0]
        kind = f"{self.resource}.{group}" if group else self.resource
        where = f"{self.namespace}/" if self.namespace else ""
        return f"{kind} {where}{self.name}".strip()


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
    def disruptive(self) -> bool:
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

    disruptive: ClassVar[bool] = True
    node: str
    node_uid: str
    session: str
    namespace: str
    name: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTestJob:
    """End a Job of gpuward and its pod; UID precondition."""

    disruptive: ClassVar[bool] = False
    node: str
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetValidated:
    """Say on the Node what its last test under load came to; UID precondition."""

    disruptive: ClassVar[bool] = False
    node: str
    node_uid: str
    passed: bool
    message: str
    at: float


MAX_MOVED: Final = 16
"""Labels that one adapter moves at most; ours moves five."""
_OURS: Final = f"{names.COMPONENT_REMEDIATOR}: "
"""How the value of our annotation begins; people write other values."""
_MAX_BYTES: Final = 8192
"""Sixteen keys of 317 characters with their values, and some."""


def node_patch(
    node: NodeView,
    session: str,
    body: Mapping[str, Any],
    *,
    step: str = "",
    asks: bool = False,
) -> WriteRepairObject:
    """A merge patch of the Node for `step`; without a step it takes back what one had asked."""
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


def priors(node: NodeView, clears: Iterable[str]) -> tuple[str, ...]:
    """What goes on record, `label=value`, before anybody is moved."""
    return tuple(
        f"{key}={names.DEPLOYED}" for key in clears if node.labels.get(key) == names.DEPLOYED
    )


def clearing(
    node: NodeView, session: QuarantineView, clears: tuple[str, ...], step: str, request: str
) -> WriteRepairObject | None:
    """The write that moves them off; None where nobody is to be moved, or it has landed.

    Whoever sets a label back meanwhile is not fought with: the reset itself looks who is there.
    """
    moved = moved_labels(node, cleared_in((session,)))
    if not clears or moved or _lets_go(node):
        return None
    keys = [each.partition("=")[0] for each in priors(node, clears)]
    notes: dict[str, str] = {}
    if names.ANNOTATION_RELEASE_GPU not in node.annotations:
        notes[names.ANNOTATION_RELEASE_GPU] = f"{_OURS}{request}"
    if not keys and not notes:
        return None
    if keys:
        former = dict.fromkeys(sorted(keys), names.DEPLOYED)
        notes[names.ANNOTATION_MOVED] = msgspec.json.encode(former).decode()
    meta = {
        "uid": node.uid,
        "resourceVersion": node.metadata.resource_version,
        "labels": dict.fromkeys(keys, names.PAUSED_BY_US),
        "annotations": notes,
    }
    return node_patch(node, session.name, {"metadata": meta}, step=step, asks=True)


def cleared_in(sessions: Iterable[QuarantineView]) -> tuple[str, ...]:
    """What sessions of the node have on record of labels that were changed."""
    return tuple(
        each for one in sessions for attempt in one.status.repair for each in attempt.cleared
    )


def restoring(
    node: NodeView | None, session: str, recorded: Iterable[str] = ()
) -> tuple[WriteRepairObject, ...]:
    """The write that lets everybody back; () where nobody was moved."""
    if node is None:
        return ()
    labels = dict.fromkeys(moved_labels(node, recorded), names.DEPLOYED)
    notes = [names.ANNOTATION_MOVED] if _on_node(node) else []
    notes += [names.ANNOTATION_RELEASE_GPU] if _lets_go(node) else []
    if not labels and not notes:
        return ()
    # Of exactly the Node that was seen: what an operator says meanwhile is not overwritten.
    meta: dict[str, Any] = {"uid": node.uid, "resourceVersion": node.metadata.resource_version}
    meta |= {"labels": labels} if labels else {}
    meta |= {"annotations": dict.fromkeys(notes)} if notes else {}
    return (node_patch(node, session, {"metadata": meta}),)


def _lets_go(node: NodeView) -> bool:
    return node.annotations.get(names.ANNOTATION_RELEASE_GPU, "").startswith(_OURS)


def moved_labels(node: NodeView, recorded: Iterable[str] = ()) -> tuple[str, ...]:
    """Labels that have our value and were changed by us, as the Node's record says, or the one of
    a session (`label=value`).
    """
    known = set(_on_node(node))
    pairs = (each.partition("=") for each in recorded)
    known |= {
        key
        for key, _, former in pairs
        if former == names.DEPLOYED and object_name.is_label_key(key)
    }
    return tuple(key for key in sorted(known) if node.labels.get(key) == names.PAUSED_BY_US)


def unexplained_labels(node: NodeView, recorded: Iterable[str] = ()) -> tuple[str, ...]:
    """Labels that have our value, and nobody wrote down that it was us."""
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
