"""Find out who changed a Node, from its `metadata.managedFields`.

`claimed_by_another` returns another owner of a field, `changes_since` the clients that wrote to
the Node since a time. The API server records a manager, an operation and a time only for fields
that a write sets. A write that only removes fields (`kubectl uncordon`, or the removal of the last
taint) leaves no entry and no time, so an empty result means "a client that set nothing else".

A manager's name is the first part of its client's user agent. It appears in messages and does not
prove an identity. `rules/data/managers.json` lists the names of known programs.
Called by `rules.api.quarantine_taint` and `rules.session`.
"""

from collections.abc import Sequence
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Final

import msgspec

from rules.api import names, timestamps
from rules.api.nodes import ManagedNode, NodeView
from rules.catalog.data_file import data_file

MERGED: Final = "ancient-changes"
"""The entry into which the API server merges the oldest of more than ten managers."""
CORDON: Final = ("f:spec", "f:unschedulable")
_NAME_LENGTH: Final = 100
_RESOLUTION_S: Final = 1.0
"""`managedFields` has times in full seconds, rounded down."""


class ManagerKind(StrEnum):
    """What kind of client a manager's name belongs to."""

    INTERACTIVE = "Interactive"
    """A client of an operator: kubectl, k9s, a dashboard, or a script that calls kubectl."""
    CONTROLLER = "Controller"
    """A program that cordons and uncordons nodes."""
    BYSTANDER = "Bystander"
    """A program that writes to nodes and never cordons or uncordons them."""
    OURS = "Ours"
    UNKNOWN = "Unknown"
    """A name that is not in the table."""


class NodeChange(msgspec.Struct, frozen=True, kw_only=True):
    """One manager's latest write to a Node."""

    program: str
    """The program's name, or the manager's name of at most 100 characters if unknown."""
    kind: ManagerKind
    at: float
    """Seconds since the epoch by the API server's clock, in full seconds."""


class _Row(msgspec.Struct, frozen=True):
    manager: str
    program: str
    kind: ManagerKind


class _File(msgspec.Struct, frozen=True):
    managers: tuple[_Row, ...]


KNOWN_MANAGERS: Final = msgspec.json.decode(data_file("managers.json"), type=_File).managers
"""The rows of `rules/data/managers.json`; `*` in a name stands for any text."""


def changes_since(node: NodeView, since: float) -> tuple[NodeChange, ...]:
    """Return who wrote metadata or spec of the Node at or after `since`, the newest first.

    `since` is in seconds since the epoch. Our own writes are included, with kind `OURS`. Writes to
    status are left out, entries without a readable time too (a server-side apply that changed
    nothing). Only a `ManagedNode` has the managers; other views return nothing.
    """
    if not isinstance(node, ManagedNode):
        return ()
    found = [
        _change(entry.manager[:_NAME_LENGTH], at)
        for entry in node.metadata.managed_fields
        if not entry.subresource
        and entry.manager != MERGED
        and (at := timestamps.parse_time(entry.time)) is not None
        and at > since - _RESOLUTION_S
    ]
    return tuple(sorted(found, key=lambda change: change.at, reverse=True))


def kind_of(manager: str) -> ManagerKind:
    """Return the kind of client that uses this manager name."""
    if manager == names.COMPONENT_REMEDIATOR:
        return ManagerKind.OURS
    row = _row(manager)
    return row.kind if row is not None else ManagerKind.UNKNOWN


def _row(manager: str) -> _Row | None:
    return next((row for row in KNOWN_MANAGERS if fnmatchcase(manager, row.manager)), None)


def _change(manager: str, at: float) -> NodeChange:
    row = _row(manager)
    program = row.program if row is not None else manager or "another manager"
    return NodeChange(program=program, kind=kind_of(manager), at=at)


def claimed_by_another(node: NodeView, path: Sequence[str], since: float) -> str:
    """Return the manager other than gpuward that owns the field at `path`; "" for none.

    Claims before `since` (seconds since the epoch) are not about gpuward's value and are ignored.
    A claim without a readable time counts: server-side apply of an unchanged value records no
    time. Only a `ManagedNode` has the managers; other views return "".
    """
    if not isinstance(node, ManagedNode):
        return ""
    claims = [entry for entry in node.metadata.managed_fields if entry.claims(path)]
    ours = any(entry.manager == names.COMPONENT_REMEDIATOR for entry in claims)
    for entry in claims:
        # Our own claim may have been put into the merged entry.
        if entry.manager == names.COMPONENT_REMEDIATOR or (entry.manager == MERGED and not ours):
            continue
        at = timestamps.parse_time(entry.time)
        if at is None or at >= since:
            return entry.manager[:_NAME_LENGTH] or "another manager"
    return ""


def annotated_by_us(node: NodeView, name: str) -> bool:
    """Return whether the remediator wrote the annotation's value; needs a `ManagedNode`."""
    path = ("f:metadata", "f:annotations", f"f:{name}")
    return isinstance(node, ManagedNode) and claimed_by_us_at(node, path) is not None


def claimed_by_us_at(node: ManagedNode, path: Sequence[str]) -> float | None:
    """Return when gpuward last wrote, if it owns the field at `path`; None otherwise, or if the
    time is unknown. A client that sets an equal value, such as a second cordon, is no owner.
    """
    ours = (e for e in node.metadata.managed_fields if e.manager == names.COMPONENT_REMEDIATOR)
    return next((timestamps.parse_time(entry.time) for entry in ours if entry.claims(path)), None)
