"""Content negotiation: what the client sends and what it wants to read.

Called by the HTTP layer for every resource request.
"""

from __future__ import annotations

from dataclasses import dataclass

from hack.sim.cluster.statuses import not_acceptable

_SHAPES = frozenset({"Table", "PartialObjectMetadata", "PartialObjectMetadataList"})
_WRITABLE = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf")


@dataclass(frozen=True, slots=True)
class Answer:
    """The shape of the answer: the object itself, a table, or metadata only."""

    shape: str = "Object"
    version: str = "v1"


PLAIN = Answer()


def read_accept(header: str | None) -> Answer:
    """The first thing in an Accept header that this server can write, or 406."""
    if not header or header == "application/json":
        return PLAIN
    for part in header.split(","):
        media, *parameters = (piece.strip() for piece in part.split(";"))
        if media not in {"application/json", "*/*", "application/*"}:
            continue
        given = dict(one.split("=", 1) for one in parameters if "=" in one)
        shape = given.get("as")
        if shape is None:
            return PLAIN
        if shape in _SHAPES and given.get("g") == "meta.k8s.io":
            version = given.get("v", "v1")
            if version in {"v1", "v1beta1"}:
                return Answer("Table" if shape == "Table" else "Metadata", version)
    raise not_acceptable(_WRITABLE)
