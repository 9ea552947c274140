"""The selected nodes, counted: by budget line and by pool, kept up to date by what changed.

`rules.fleet.turns` asks for it at every judgement. Comparing who is still the same object costs a
hundredth of counting anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import dataclass

from rules.api.nodes import NodeView
from rules.api.selectors import Matcher, parse_selector
from rules.drain.availability import being_built, is_unavailable
from rules.fleet.alike import Shared
from rules.fleet.budget import BudgetBook, LineKey, keys_of
from rules.fleet.common import FleetLabels, keys_for, shared_labels
from rules.fleet.pools import NodePools, pool_of
from rules.policy.policy import Policy


@dataclass(frozen=True, slots=True)
class _Counted:
    """How one node was counted, so that it can be taken off again."""

    node: NodeView
    lines: tuple[LineKey, ...] = ()
    """Empty where it is not selected."""
    pool: str = ""
    gone: bool = False
    unready: bool = False
    """It may still be built: whether it counts depends on the time as well."""


class NodeCensus:
    """All nodes of one snapshot after another."""

    def __init__(self) -> None:
        self._begin("", ())

    def _begin(self, selector: str, per: tuple[str, ...]) -> None:
        """Everything is counted anew by these."""
        self._selector, self._per = selector, per
        self._selects: Matcher = parse_selector(selector)
        self.selected: dict[str, NodeView] = {}
        """Those that the policy selects; not to be changed by who reads it."""
        self._counted: dict[str, _Counted] = {}
        self._keys = keys_for(per)
        self._of: dict[str, tuple[Shared | None, ...]] = {}
        self._groups: Counter[Shared] = Counter()
        self.labels = FleetLabels(self._of, self._groups)
        """What the selected nodes share, live."""
        self._totals: Counter[LineKey] = Counter()
        self._gone: dict[LineKey, set[str]] = {}
        self._pools: Counter[str] = Counter()
        self._unready: dict[str, NodeView] = {}

    def look(self, nodes: Mapping[str, NodeView], policy: Policy) -> None:
        """Take in how the nodes are now."""
        if (policy.node_selector, policy.budget.per) != (self._selector, self._per):
            self._begin(policy.node_selector, policy.budget.per)
        known = self._counted
        for name, node in nodes.items():
            counted = known.get(name)
            if counted is None or counted.node is not node:
                self._drop(name)
                self._add(name, node)
        if len(known) != len(nodes):
            for name in [name for name in known if name not in nodes]:
                self._drop(name)

    def pools(self) -> NodePools:
        """The pools of the selected nodes."""
        return NodePools(self._pools)

    def book(self, taken: Set[str], policy: Policy, now: float) -> BudgetBook:
        """The budget's lines; `taken` are unavailable whatever the nodes say (marks under way,
        virtual marks of Shadow).
        """
        book = BudgetBook(
            budget=policy.budget,
            totals=dict(self._totals),
            gone={line: set(names) for line, names in self._gone.items()},
        )
        for name, node in self._unready.items():
            if name in taken or not being_built(node, now):
                for line in keys_of(node, self._per):
                    book.totals[line] = book.totals.get(line, 0) + 1
                    book.gone.setdefault(line, set()).add(name)
        for name in taken:
            if (found := self.selected.get(name)) is not None:
                book.take(found)
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
            is_unavailable(node),
            node.ready != "True",
        )
        self.selected[name] = node
        shared = self._of[name] = shared_labels(node.labels, self._keys)
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
