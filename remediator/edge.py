"""What every part that acts on the cluster works with, handed over as one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from remediator.kube.api import Api
from remediator.kube.clock import Clock
from remediator.kube.gateway import Gateway
from remediator.kube.isolation import Isolation
from remediator.kube.telling import Telling
from remediator.metrics import Metrics
from remediator.world import World
from rules.policy.policy import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """One replica's hands and eyes."""

    api: Api
    gateway: Gateway
    telling: Telling
    world: World
    clock: Clock
    metrics: Metrics
    isolation: Isolation
    policy: Callable[[], Policy]
    may_act: Callable[[], bool]
    """This replica leads and its caches are complete."""


class EdgePart:
    """A part of a replica that works at its edge."""

    def __init__(self, edge: Edge) -> None:
        self._edge = edge
        self._api, self._gateway, self._world = edge.api, edge.gateway, edge.world
        self._telling = edge.telling
        self._clock, self._metrics, self._isolation = edge.clock, edge.metrics, edge.isolation
        self._policy, self._may_act = edge.policy, edge.may_act
