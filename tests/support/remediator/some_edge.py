"""The edge that parts of a replica work at, with only what a test needs of it."""

from __future__ import annotations

from typing import Any

from remediator.kube.isolation import Isolation
from remediator.world import Edge


def some_edge(clock: Any, **parts: Any) -> Edge:
    """What is not named is not there; it leads, and surprises are counted nowhere."""
    nothing: dict[str, Any] = dict.fromkeys(Edge.__slots__)
    given = {"may_act": lambda: True, "isolation": Isolation(clock), **parts}
    return Edge(**{**nothing, **given, "clock": clock})
