"""Owner references: who controls an object, and the reference a controller writes.

Every controller that creates objects uses these; the garbage collector follows them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Obj = dict[str, Any]


def reference(owner: Obj) -> Obj:
    """The controlling ownerReference that points at `owner`."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def controller_of(obj: Obj) -> Obj | None:
    """The reference with `controller: true`, of which an object has at most one."""
    for owner in obj["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            return dict(owner)
    return None


def is_controlled_by(obj: Obj, kind: str, uid: str) -> bool:
    """Whether the object's controller is the owner of that kind and UID."""
    owner = controller_of(obj)
    return owner is not None and owner["kind"] == kind and owner["uid"] == uid


def controlled_by(objects: Iterable[Obj], owner: Obj) -> list[Obj]:
    """Those of the objects whose controller is exactly `owner` (by UID)."""
    uid = owner["metadata"]["uid"]
    return [obj for obj in objects if is_controlled_by(obj, owner["kind"], uid)]
