"""What the policies of other systems have in common: hear a line, take a node, empty it, give it
back.

Written from what they document, far simpler than they are: detection rule, wait, limit, and how
pods leave. Repair and people are the same for everybody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from rules.judge.workload import Workload as Program
from rules.kernel_log.parse import parse_message
from rules.simulate.cluster.objects import newer

if TYPE_CHECKING:
    from rules.simulate.cluster.sim_node import SimNode
    from rules.simulate.cluster.world import World

_AGAIN_S: Final = (10.0, 120.0)
"""Seconds between two tries against a budget that refuses, first and longest."""


class Peer:
    """A controller that does nothing; each policy adds what it does."""

    evicts = True
    """Pods are told to go; else they are waited for."""
    forces = False
    """Budgets are passed over."""

    def start(self, world: World) -> None:
        """The fleet is there."""
        self.world = world

    def line(self, node: SimNode, text: str, gpu: int, program: Program | None) -> None:  # noqa: ARG002
        """The driver printed a line."""
        parsed = parse_message(text.format(pci=node.machine.pci(gpu)).encode())
        if parsed is not None and parsed.xid is not None:
            self.heard(node, parsed.xid)

    def heard(self, node: SimNode, xid: int) -> None:
        """An Xid was printed."""

    def reads(self, node: SimNode) -> None:
        """What can be read of the node has changed."""

    def readiness(self, node: SimNode) -> None:
        """The node's Ready condition changed."""

    def shown(self, node: SimNode) -> None:
        """The Node object is another one."""

    def by_hand(self, node: SimNode) -> None:
        """People cordoned the node, or uncordoned it."""

    def blind(self, node: SimNode, *, agent: bool, over: bool) -> None:
        """Nobody sees the GPUs."""

    def take(self, node: SimNode) -> None:
        """Cordon it and let its pods leave."""
        if node.out:
            return
        self.world.taken(node)
        self._cordon(node, on=True)
        if node.pod is None:
            self.world.hand_over(node)
        elif self.evicts:
            self._evict(node, _AGAIN_S[0])

    def _evict(self, node: SimNode, wait_s: float) -> None:
        pod = node.pod
        if pod is None or pod.terminating or node.taken_at is None:
            return
        self.world.drains(node)
        if not self.world.evict(pod, force=self.forces):
            longer_s = min(wait_s * 2.0, _AGAIN_S[1])
            self.world.clock.after(wait_s, lambda: self._evict(node, longer_s))

    def _cordon(self, node: SimNode, *, on: bool) -> None:
        spec = msgspec.structs.replace(node.view.spec, unschedulable=on)
        self.world.show(node, newer(node.view, spec=spec))

    def emptied(self, node: SimNode) -> None:
        """Its last pod is gone: whoever repairs may come."""
        if node.taken_at is not None:
            self.world.hand_over(node)

    def repaired(self, node: SimNode) -> None:
        """Back into service at once."""
        if node.taken_at is not None:
            self.give_back(node)

    def give_back(self, node: SimNode) -> None:
        """Take the cordon off."""
        self.world.given_back(node)
        self._cordon(node, on=False)

    def finish(self) -> None:
        """The time is over."""
