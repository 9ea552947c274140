"""The budget: how many nodes may be unavailable, in the fleet and per label value.

A node that is unavailable for any reason (not Ready, cordoned, quarantined) counts already, so its
quarantine costs nothing. A node with isolated GPUs costs their share of its GPUs. A new session
needs room for a node, because it may have to quarantine the node after all. Detectors never
quarantine control-plane nodes or the only node of a pool. Requests of operators ignore the budget.
The census updates only changed nodes, which is a hundred times faster than a full count.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from rules.api import health, quarantine_taint, selectors
from rules.api.names import LABEL_GPUS, LABEL_NVLINK_DOMAIN
from rules.api.nodes import NodeView, QuarantineView
from rules.api.quarantine import Mode
from rules.api.selectors import Matcher
from rules.drain import node_room
from rules.fleet import common_cause
from rules.fleet.common_cause import FleetLabels, Shared
from rules.policy.policy import Budget, Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetLine:
    """One count and its limit: for all selected nodes (`key` empty) or one label value."""

    key: str
    value: str
    total: int
    unavailable: float
    """Nodes, and the shares of nodes with isolated GPUs."""
    limit: int

    @property
    def room(self) -> int:
        """How many more nodes may become unavailable."""
        return max(0, math.floor(self.limit - self.unavailable + _ROUNDING))

    @property
    def clause(self) -> str:
        """`3 of 30 nodes with rack=a are unavailable, the budget allows 3`."""
        where = f" with {self.key}={self.value}" if self.key else ""
        return (
            f"{self.unavailable:g} of {self.total} nodes{where} "
            f"{'is' if self.unavailable == 1 else 'are'} unavailable, the budget allows "
            f"{self.limit}"
        )

    @property
    def usage(self) -> str:
        """`used up` or `exceeded by 2`; "" if there is room."""
        if self.room:
            return ""
        over = self.unavailable - self.limit
        return f"exceeded by {over:g}" if over > _ROUNDING else "used up"


_ROUNDING: Final = 1e-9


def limit_of(total: int, budget: Budget) -> int:
    """Return the smaller of percent (rounded down) and `atMost`.

    A share of less than one node counts as one, so that a small cluster has a budget. `atMost: 0`
    allows none.
    """
    share = math.floor(total * budget.max_unavailable.percent / 100 + _ROUNDING)
    return min(max(1, share), budget.max_unavailable.at_most)


LineKey = tuple[str, str]
"""Label key and value; both empty for all selected nodes."""


def _labels_of(budget: Budget) -> tuple[str, ...]:
    """Return the labels whose values have a line each."""
    domain = (LABEL_NVLINK_DOMAIN,) if budget.per_domain is not None else ()
    return tuple(dict.fromkeys((*budget.per, *domain)))


def _line_limit(key: LineKey, total: int, budget: Budget) -> int:
    """Return the limit of one line; a domain also keeps its healthy nodes."""
    limits = [] if key[0] and key[0] not in budget.per else [limit_of(total, budget)]
    if key[0] == LABEL_NVLINK_DOMAIN and budget.per_domain is not None:
        limits.append(max(0, total - budget.per_domain.min_healthy))
    return min(limits)


def keys_of(node: NodeView, per: tuple[str, ...]) -> tuple[LineKey, ...]:
    """Return the lines a node counts in: that of all nodes, and each of its `per` labels."""
    labels = node.labels
    return ("", ""), *((key, labels[key]) for key in per if key in labels)


@dataclass(slots=True)
class BudgetBook:
    """The lines of one judgement; `take` counts a node that gets its turn."""

    budget: Budget
    totals: dict[LineKey, int] = field(default_factory=dict)
    gone: dict[LineKey, set[str]] = field(default_factory=dict)
    shares: dict[LineKey, dict[str, float]] = field(default_factory=dict)
    """The share of each node that isolated GPUs are."""

    def keys_of(self, node: NodeView) -> tuple[LineKey, ...]:
        """The lines a node counts in."""
        return keys_of(node, _labels_of(self.budget))

    def line(self, key: LineKey) -> BudgetLine:
        """The current state of one line."""
        total = self.totals.get(key, 0)
        gone = self.gone.get(key, set())
        shares = (part for name, part in self.shares.get(key, {}).items() if name not in gone)
        return BudgetLine(
            key=key[0],
            value=key[1],
            total=total,
            unavailable=len(gone) + sum(shares),
            limit=_line_limit(key, total, self.budget),
        )

    def lines(self) -> tuple[BudgetLine, ...]:
        """Every line, that of all selected nodes first."""
        return tuple(self.line(key) for key in sorted(self.totals))

    def is_gone(self, node: NodeView) -> bool:
        """Whether the node is unavailable already and costs nothing."""
        return node.name in self.gone.get(("", ""), ())

    def tightest(self, node: NodeView) -> BudgetLine:
        """The line with the least room for this node."""
        return min((self.line(key) for key in self.keys_of(node)), key=lambda line: line.room)

    def would_exceed(self, node: NodeView) -> tuple[BudgetLine, ...]:
        """The lines that this node exceeds if it becomes unavailable; none if it is already."""
        if self.is_gone(node):
            return ()
        lines = map(self.line, self.keys_of(node))
        return tuple(line for line in lines if not line.room)

    def take(self, node: NodeView, share: float = 1.0) -> None:
        """Count the node, or a share of it, as unavailable."""
        if share < 1.0:
            for key in self.keys_of(node):
                self.shares.setdefault(key, {})[node.name] = share
            return
        for key in self.keys_of(node):
            self.gone.setdefault(key, set()).add(node.name)


_CONTROL_PLANE: Final = (
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/master",
)
POOL_LABELS: Final = (
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "karpenter.sh/nodepool",
    "kubernetes.azure.com/agentpool",
    "node.kubernetes.io/instance-type",
)
"""Labels with the name of a node's pool, those of cloud providers first."""


def isolated_share(session: QuarantineView, node: NodeView) -> float:
    """Return the share of the node that the session isolates; 1.0 for the entire node."""
    accused = {device.uuid for device in session.status.devices}
    count = health.annotated_count(node.labels.get(LABEL_GPUS, ""))
    devices = session.status.mode == Mode.SHADOW or quarantine_taint.isolates_devices(
        node, session.name
    )
    if not accused or not count or not devices:
        return 1.0
    return min(1.0, len(accused) / count)


def control_plane(node: NodeView) -> bool:
    """Return whether the node is a control-plane node."""
    return any(label in node.labels for label in _CONTROL_PLANE)


def pool_of(node: NodeView) -> str:
    """Return the node's pool as `label=value`; "" for nodes without such a label."""
    for label in POOL_LABELS:
        if label in node.labels:
            return f"{label}={node.labels[label]}"
    return ""


@dataclass(frozen=True, slots=True)
class _Counted:
    """How one node was counted, to subtract it later."""

    node: NodeView
    lines: tuple[LineKey, ...] = ()
    """Empty if the node is not selected."""
    pool: str = ""
    gone: bool = False
    unready: bool = False
    """It may still be built, so whether it counts depends on the time."""


class NodeCensus:
    """Counts of the nodes, updated with each snapshot."""

    def __init__(self) -> None:
        self._begin("", ())

    def _begin(self, selector: str, per: tuple[str, ...]) -> None:
        """Count all nodes again, by this selector and these labels."""
        self._selector, self._per = selector, per
        self._selects: Matcher = selectors.parse_selector(selector)
        self.selected: dict[str, NodeView] = {}
        """The nodes that the policy selects; read only."""
        self._counted: dict[str, _Counted] = {}
        self._keys = common_cause.keys_for(per)
        self._of: dict[str, tuple[Shared | None, ...]] = {}
        self._groups: Counter[Shared] = Counter()
        self.labels = FleetLabels(self._of, self._groups)
        """What the selected nodes share, always current."""
        self._totals: Counter[LineKey] = Counter()
        self._gone: dict[LineKey, set[str]] = {}
        self._pools: Counter[str] = Counter()
        self._unready: dict[str, NodeView] = {}

    def update(self, nodes: Mapping[str, NodeView], policy: Policy) -> None:
        """Update the counts from the current nodes."""
        per = _labels_of(policy.budget)
        if (policy.node_selector, per) != (self._selector, self._per):
            self._begin(policy.node_selector, per)
        known = self._counted
        for name, node in nodes.items():
            counted = known.get(name)
            if counted is None or counted.node is not node:
                self._drop(name)
                self._add(name, node)
        if len(known) != len(nodes):
            for name in [name for name in known if name not in nodes]:
                self._drop(name)

    def alone(self, node: NodeView) -> str:
        """Why the node is the only selected one of its pool, a clause; "" if it is not."""
        pool = pool_of(node)
        if self._pools[pool] != 1:
            return ""
        if self._pools.total() == 1:
            return "it is the only node that the policy selects, so its pods fit nowhere else"
        if pool:
            return f"it is the only node of its pool ({pool}), so its pods fit nowhere else"
        return (
            "it is the only selected node without a pool label, which counts as a pool of its own "
            f"(set a label such as {POOL_LABELS[-1]})"
        )

    def book(self, taken: Mapping[str, float], policy: Policy, now: float) -> BudgetBook:
        """Return the budget's lines. `taken` nodes count as unavailable in any case, with their
        share: taints in flight, quarantines in Shadow, isolated GPUs.
        """
        book = BudgetBook(
            budget=policy.budget,
            totals=dict(self._totals),
            gone={line: set(names) for line, names in self._gone.items()},
        )
        for name, node in self._unready.items():
            if name in taken or not node_room.being_built(node, now):
                for line in keys_of(node, self._per):
                    book.totals[line] = book.totals.get(line, 0) + 1
                    book.gone.setdefault(line, set()).add(name)
        for name, share in taken.items():
            if (found := self.selected.get(name)) is not None:
                book.take(found, share)
        return book

    def _add(self, name: str, node: NodeView) -> None:
        if not self._selects(node.labels):
            self._counted[name] = _Counted(node)
            return
        lines = keys_of(node, self._per)
        counted = self._counted[name] = _Counted(
            node,
            lines,
            pool_of(node),
            node_room.is_unavailable(node),
            node.ready != "True",
        )
        self.selected[name] = node
        shared = self._of[name] = common_cause.shared_labels(node.labels, self._keys)
        self._groups.update(one for one in shared if one is not None)
        self._pools[counted.pool] += 1
        if counted.unready:
            self._unready[name] = node
            return
        for line in lines:
            self._totals[line] += 1
            if counted.gone:
                self._gone.setdefault(line, set()).add(name)

    def _drop(self, name: str) -> None:
        counted = self._counted.pop(name, None)
        if counted is None or self.selected.pop(name, None) is None:
            return
        for shared in filter(None, self._of.pop(name)):
            self._groups[shared] -= 1
            if not self._groups[shared]:
                del self._groups[shared]
        self._pools[counted.pool] -= 1
        if not self._pools[counted.pool]:
            del self._pools[counted.pool]
        self._unready.pop(name, None)
        if counted.unready:
            return
        for line in counted.lines:
            self._totals[line] -= 1
            if not self._totals[line]:
                del self._totals[line]
            if counted.gone:
                self._gone[line].discard(name)
