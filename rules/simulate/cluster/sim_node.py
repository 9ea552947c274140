"""One simulated node, and what a controller has to answer to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from rules.api.nodes import NodeView
from rules.drain.availability import is_unavailable
from rules.judge.workload import Workload as Program
from rules.simulate.cluster.clockwork import Clockwork
from rules.simulate.cluster.work import Pod
from rules.simulate.node.machine import Machine
from rules.simulate.score import Score
from rules.simulate.truth.dice import Dice
from rules.simulate.truth.year import Fault

Where = TypeVar("Where", contravariant=True)


class Controller(Protocol[Where]):
    """What looks after the fleet: gpuward, or a peer. `Where` is the world it is put into."""

    def start(self, world: Where) -> None:
        """The fleet is there."""

    def line(self, node: SimNode, text: str, gpu: int, program: Program | None) -> None:
        """The driver printed a line about one GPU."""

    def reads(self, node: SimNode) -> None:
        """What the GPUs or ports of a node read has changed."""

    def readiness(self, node: SimNode) -> None:
        """The node's Ready condition changed."""

    def shown(self, node: SimNode) -> None:
        """The Node object is another one, whoever changed it."""

    def by_hand(self, node: SimNode) -> None:
        """People cordoned the node, or uncordoned it."""

    def blind(self, node: SimNode, *, agent: bool, over: bool) -> None:
        """The driver's calls hang or the agent is gone; or that is over."""

    def emptied(self, node: SimNode) -> None:
        """No pod runs on the node any more."""

    def repaired(self, node: SimNode) -> None:
        """People are done with the node; it has booted anew."""

    def finish(self) -> None:
        """The time is over."""


@dataclass(slots=True, eq=False)
class SimNode:
    """One node: what is true of it and what stands in the API server."""

    number: int
    machine: Machine
    view: NodeView
    pod: Pod | None = None
    fault: Fault | None = None
    taken_at: float | None = None
    """Since when the policy keeps it out of service."""
    told: bool = False
    """Since then a pod was told to go."""
    by_people: bool = False
    """People cordoned it, not the policy."""
    repair_from: float | None = None
    idle_from: float | None = None
    """Since when it is out, empty and not repaired."""
    later: list[Fault] = field(default_factory=list)
    """What would have hit it while it was out."""

    @property
    def name(self) -> str:
        """The node's name."""
        return self.view.name

    @property
    def open(self) -> bool:
        """Whether new work may land there."""
        return not is_unavailable(self.view)

    @property
    def out(self) -> bool:
        """Whether somebody keeps it out of service."""
        return self.taken_at is not None or self.by_people or self.repair_from is not None


class Fleet(Protocol):
    """What placing work needs of the world that it is placed in."""

    dice: Dice
    clock: Clockwork
    score: Score

    @property
    def now(self) -> float:
        """The time, in seconds since the epoch."""

    @property
    def nodes(self) -> Mapping[str, SimNode]:
        """By name."""

    @property
    def by_number(self) -> Sequence[SimNode]:
        """All nodes in their order."""

    def starts_on(self, node: SimNode) -> None:
        """A pod was placed on the node."""

    def emptied(self, node: SimNode) -> None:
        """The node's pod is gone."""

    def prints(self, node: SimNode, text: str, gpu: int, program: Program) -> None:
        """The driver prints a line about a program on one GPU."""
