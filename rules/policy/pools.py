"""Policies of pools: several policies in one file, each for the nodes that its selector selects.

The fleet policy is the one without a name. The nodes of a pool are some of those that the fleet
policy selects. Its policy is complete: that of the fleet, with the pool's document applied as a
merge patch. Budget, circuit breaker and limits belong to the fleet.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from msgspec import structs

from rules.api import object_name, requests, selectors
from rules.api.quarantine import Mode
from rules.policy import reader
from rules.policy.policy import FLEET, FLEET_ONLY, Metadata, OverlappingPolicy, Policy
from rules.policy.reader import PolicyProblem

MAX_POOLS: Final = 32
"""Each decision about a node matches it with every pool."""


class PooledPolicy(Policy, frozen=True, kw_only=True):
    """The fleet policy, and the policies of its pools."""

    pools: tuple[Policy, ...] = ()
    """Those with the most requirements first."""

    @property
    def policies(self) -> tuple[Policy, ...]:
        """The fleet policy, then those of its pools."""
        return (self, *self.pools)

    def of(self, labels: Mapping[str, str]) -> Policy:
        """Return the policy of the pool that selects the node with the most requirements, else
        that of the fleet.
        """
        found = [p for p in self.pools if selectors.parse_selector(p.node_selector)(labels)]
        best = [p for p in found if _specificity(p) == _specificity(found[0])]
        if len(best) > 1:
            name = Metadata(name=" and ".join(sorted(p.name for p in best)))
            return OverlappingPolicy(**{**_fields(self), "metadata": name, "mode": Mode.SHADOW})
        return best[0] if best else self

    def each(self, change: Callable[[Policy], Policy]) -> Policy:
        """Return the policy with a change to it and to those of its pools."""
        return structs.replace(change(self), pools=tuple(map(change, self.pools)))


def _specificity(policy: Policy) -> int:
    return len(selectors.requirements(policy.node_selector))


def _fields(policy: Policy) -> dict[str, Any]:
    return {field: getattr(policy, field) for field in Policy.__struct_fields__}


def load_policies(documents: Sequence[object]) -> Policy | tuple[PolicyProblem, ...]:
    """Return the policy of a file with these documents, or what is wrong with it."""
    named = [(_name(document), document) for document in documents or [None]]
    fleets = [document for name, document in named if name == FLEET]
    if len(fleets) != 1:
        what = f"holds {len(fleets)} policies without metadata.name"
        return (PolicyProblem(path="", message=f"{what}; the fleet has exactly one"),)
    fleet = reader.load_policy(fleets[0])
    if len(named) == 1:
        return fleet
    if not isinstance(fleet, Policy):
        return tuple(replace(problem, document=FLEET) for problem in fleet)
    pools: list[Policy] = []
    problems: list[PolicyProblem] = []
    for name, document in named:
        if name == FLEET:
            continue
        pool = _pool(document, fleets[0], fleet)
        if isinstance(pool, Policy):
            found = [PolicyProblem(path=p, message=m) for p, m in _conflicts(pool, fleet, pools)]
            pools.append(pool)
        else:
            found = [*pool]
        problems += (replace(problem, document=name) for problem in found)
    if len(pools) > MAX_POOLS:
        message = f"holds {len(pools)} pools; {MAX_POOLS} are the most"
        problems.append(PolicyProblem(path="", message=message))
    ordered = tuple(sorted(pools, key=_specificity, reverse=True))
    return tuple(problems) or PooledPolicy(**_fields(fleet), pools=ordered)


def _name(document: object) -> str:
    metadata = document.get("metadata") if isinstance(document, dict) else None
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return name if isinstance(name, str) else FLEET


def _pool(document: Any, fleet_document: Any, fleet: Policy) -> Policy | tuple[PolicyProblem, ...]:
    """Return the complete policy of one pool, or what is wrong with its document."""
    selector = document.get("nodeSelector")
    wrong = [
        PolicyProblem(path=".".join(path), message="limits the fleet; only its policy can set it")
        for path in FLEET_ONLY
        if path[-1] in _section(document, path[:-1])
    ]
    if selector is None:
        message = "is missing; write the labels of the pool's nodes"
        wrong.append(PolicyProblem(path="nodeSelector", message=message))
    if wrong:
        return tuple(wrong)
    if isinstance(selector, str):
        document = {**document, "nodeSelector": selectors.joined(fleet.node_selector, selector)}
    return reader.load_policy(requests.merged(fleet_document or {}, document))


def _section(document: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        found = document.get(key)
        document = found if isinstance(found, dict) else {}
    return document


def _conflicts(pool: Policy, fleet: Policy, others: Iterable[Policy]) -> Iterator[tuple[str, str]]:
    """Yield path and message of what two policies of one file cannot both have."""
    if len(pool.name) > 63 or not object_name.is_object_name(pool.name):
        yield "metadata.name", f"is wrong: {pool.name!r:.80} is no name in lower case"
    own = selectors.requirements(pool.node_selector)
    if own == selectors.requirements(fleet.node_selector):
        yield "nodeSelector", "selects every node of the fleet; write the labels of the pool's"
    for other in others:
        if other.name == pool.name:
            yield "metadata.name", "is the name of an earlier pool"
        elif own == selectors.requirements(other.node_selector):
            yield "nodeSelector", f"is that of pool {other.name}; no node can be in both"
