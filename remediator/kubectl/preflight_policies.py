"""Run checks of `preflight` for each policy of the file; check which nodes the pools select."""

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final

from rules.api import messages
from rules.api.nodes import NodeView
from rules.policy.policy import FLEET, OverlappingPolicy, Policy
from rules.text.printable import count

Finding = tuple[str, str, bool]
"""The name of a check, what it found, and whether that is good."""
_NAMED: Final = 10


async def of_each(
    policy: Policy,
    nodes: Sequence[NodeView],
    part: Callable[[Policy], object],
    check: Callable[[Policy, Sequence[NodeView]], Awaitable[list[Finding]]],
) -> list[Finding]:
    """Return the findings of all policies, each once. A finding that the fleet policy does not
    have names the pools.

    `part` returns what the check reads of a policy. Policies with an equal part are checked once,
    with the nodes of all of them.
    """
    found: dict[Finding, list[str]] = {}
    checked: list[object] = []
    for one in policy.policies:
        own = part(one)
        if own in checked:
            continue
        checked.append(own)
        names = [each.name for each in policy.policies if part(each) == own]
        selected = [node for node in nodes if part(policy.of(node.labels)) == own]
        for finding in await check(one, selected):
            found.setdefault(finding, []).extend(names)
    return [
        (name, text if FLEET in pools else f"pool {messages.name_list(pools)}: {text}", good)
        for (name, text, good), pools in found.items()
    ]


def pool_checks(policy: Policy, nodes: Sequence[NodeView]) -> Iterator[Finding]:
    """Yield the number of nodes that follow each pool's policy, as good if it is not 0."""
    found = Counter(policy.of(node.labels).name for node in nodes)
    for pool in policy.policies[1:]:
        nodes_found = count(found[pool.name], "node")
        text = f"{nodes_found} selected by {pool.node_selector!r}, mode {pool.mode}"
        yield f"pool {pool.name}", text, found[pool.name] > 0


def overlap_checks(policy: Policy, nodes: Sequence[NodeView]) -> Iterator[Finding]:
    """Yield the nodes that several pools select with equally many requirements."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for node in nodes:
        if isinstance(one := policy.of(node.labels), OverlappingPolicy):
            found[one.name].append(node.name)
    for pools, selected in sorted(found.items()):
        text = (
            f"select {messages.name_list(selected, _NAMED)} with equally many requirements, so "
            "gpuward changes nothing there; add a requirement to one nodeSelector, or change the "
            "labels"
        )
        yield f"pools {pools}", text, False
