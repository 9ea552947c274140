"""Five policies beside ours, written from what is documented of them (docs/benchmark.md names
it).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from rules.catalog.signals import Signal
from rules.catalog.xid import nvidia_buckets
from rules.simulate.peers.peer import Peer

if TYPE_CHECKING:
    from rules.simulate.cluster.sim_node import SimNode

MINUTE_S: Final = 60.0
POLL_S: Final = 15.0


class Nothing(Peer):
    """Nobody acts but people, once they find out."""


class AnyXid(Peer):
    """Each Xid drains its node, without a budget and within PodDisruptionBudgets."""

    def heard(self, node: SimNode, xid: int) -> None:  # noqa: ARG002
        """Any number will do."""
        self.take(node)


class NvsentinelLike(Peer):
    """Every Xid that the vendor's catalog does not call harmless cordons; pods are waited for.

    Breaker: half of the nodes within five minutes, reset by people. The drain is the default mode,
    which lets everything end by itself. A driver that does not answer is recorded and no more, as
    its newest documents say; earlier releases cordoned.
    """

    evicts = False
    _HARMLESS: Final = frozenset({"RESTART_APP", "IGNORE", "WORKFLOW_XID_45"})
    _SHARE: Final = 0.5
    _WINDOW_S: Final = 5 * MINUTE_S
    _RESET_S: Final = 60 * MINUTE_S

    def __init__(self) -> None:
        self._cordoned: list[float] = []
        self._tripped_until = 0.0

    def heard(self, node: SimNode, xid: int) -> None:
        """The journal is read each 15 s."""
        buckets = nvidia_buckets(xid)
        if xid != 45 and (buckets is None or buckets[0] not in self._HARMLESS):
            self._soon(node)

    def reads(self, node: SimNode) -> None:
        """DCGM's health watches show a lost GPU and uncorrectable errors; not links and ports."""
        if node.machine.gone or any(
            values.get(Signal.ECC_UNCORRECTED_VOLATILE)
            or values.get(Signal.RECOVERY_ACTION)
            or values.get(Signal.REMAP_FAILURE)
            for values in node.machine.values.values()
        ):
            self._soon(node)

    def _soon(self, node: SimNode) -> None:
        wait_s = self.world.dice.random() * POLL_S
        self.world.clock.after(wait_s, lambda: self._cordons(node))

    def _cordons(self, node: SimNode) -> None:
        now = self.world.now
        if now < self._tripped_until or node.out:
            return
        self._cordoned = [at for at in self._cordoned if now - at < self._WINDOW_S]
        if len(self._cordoned) >= math.ceil(self._SHARE * len(self.world.by_number)):
            self._tripped_until = now + self._RESET_S
            return
        self._cordoned.append(now)
        self.take(node)


class KarpenterLike(Peer):
    """A node condition that lasts ten minutes replaces the node by force, while no more than a
    fifth of the pool is unhealthy; a node that is not Ready, after thirty.
    """

    forces = True
    _FATAL: Final = frozenset(
        {46, 48, 62, 63, 64, 74, 79, 95, 109, 110, 119, 120, 136, 140, 143, 158}
    )
    _TOLERATED_S: Final = 10 * MINUTE_S
    _NOT_READY_S: Final = 30 * MINUTE_S
    _SHARE: Final = 0.20

    def __init__(self) -> None:
        self._unhealthy: dict[str, float] = {}

    def heard(self, node: SimNode, xid: int) -> None:
        """The node's monitor knows a list of fatal numbers; its condition never clears."""
        if xid in self._FATAL:
            self._condition(node, self._TOLERATED_S)

    def reads(self, node: SimNode) -> None:
        """DCGM's health watches."""
        if node.machine.gone or any(
            values.get(Signal.ECC_UNCORRECTED_VOLATILE) or values.get(Signal.REMAP_FAILURE)
            for values in node.machine.values.values()
        ):
            self._condition(node, self._TOLERATED_S)

    def blind(self, node: SimNode, *, agent: bool, over: bool) -> None:
        """A driver that cannot be reached reads as a bad accelerator."""
        if agent:
            return
        if over:
            if node.fault is None and node.taken_at is None:
                self._unhealthy.pop(node.name, None)
        else:
            self._condition(node, self._TOLERATED_S)

    def readiness(self, node: SimNode) -> None:
        """The kubelet is silent."""
        if node.view.ready != "True":
            self._condition(node, self._NOT_READY_S)
        elif node.fault is None:
            self._unhealthy.pop(node.name, None)

    def _condition(self, node: SimNode, tolerated_s: float) -> None:
        since = self._unhealthy.setdefault(node.name, self.world.now)
        self.world.clock.after(tolerated_s, lambda: self._replaces(node, since))

    def _replaces(self, node: SimNode, since: float) -> None:
        if self._unhealthy.get(node.name) != since or node.out:
            return
        if len(self._unhealthy) > math.ceil(self._SHARE * len(self.world.by_number)):
            self.world.clock.after(5 * MINUTE_S, lambda: self._replaces(node, since))
            return
        self.take(node)

    def repaired(self, node: SimNode) -> None:
        """Another machine has taken its place."""
        self._unhealthy.pop(node.name, None)
        super().repaired(node)


class HealthCheckLike(Peer):
    """Remediates a machine whose node is not Ready for five minutes, and knows no GPU."""

    forces = True
    _TIMEOUT_S: Final = 5 * MINUTE_S

    def readiness(self, node: SimNode) -> None:
        """Ready is all it looks at."""
        if node.view.ready != "True":
            fault = node.fault
            self.world.clock.after(self._TIMEOUT_S, lambda: self._still(node, fault))

    def _still(self, node: SimNode, fault: object) -> None:
        if node.view.ready != "True" and node.fault is fault:
            self.take(node)


PEERS: Final[Mapping[str, Callable[[], Peer]]] = {
    "nvsentinel-like": NvsentinelLike,
    "karpenter-like": KarpenterLike,
    "machine-health-check-like": HealthCheckLike,
    "any-xid": AnyXid,
    "nothing": Nothing,
}
"""By the name that `--policy` takes."""
