"""What the rules of one kind may see of the rest of the cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from hack.sim.cluster.resource import Resource
from hack.sim.cluster.store.kinds import Object
from hack.sim.cluster.store.store import Store


class Cluster(Protocol):
    """The store that the rules belong to; `ObjectApi` is one."""

    store: Store
    clock: Callable[[], float]

    def peek(self, resource: Resource, name: str, namespace: str = "") -> Object | None:
        """The object as it is now, or None."""
