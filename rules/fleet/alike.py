"""What several nodes have in common, and how likely they have it by chance.

Pure. Nodes are alike by one value of a label (a rack), or by several values of the same label
where most nodes of each are meant: three racks that failed as a whole are not explained by one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from math import exp, lgamma, log
from typing import Final, NamedTuple

from rules.api.sentences import some

_MOST_OF: Final = 0.5
"""Of each of several values at least this part of its nodes must be hit: a few nodes in each of
many racks are spread, not alike.
"""
_MOST_WORKED_OUT: Final = 200
"""Of more nodes than these the chance is bounded instead of worked out: a fleet that is ill as a
whole must not cost half a second of thinking.
"""

Shared = tuple[str, str]
"""A label's key and its value."""


class Alike(NamedTuple):
    """One label, and the values of it that are meant."""

    key: str
    values: tuple[str, ...]

    @property
    def shared(self) -> tuple[Shared, ...]:
        """Each of the values with its key."""
        return tuple((self.key, value) for value in self.values)

    @property
    def name(self) -> str:
        """For metrics and keys of Events: it does not change while further values join."""
        if len(self.values) > 1:
            return f"one of several values of {self.key}"
        return f"{self.key}={self.values[0]}"

    def among(self, hit: int, group: int) -> str:
        """In a sentence: so many `hit` nodes of the `group` that is alike."""
        values = self.name
        if len(self.values) > 1:
            values = f"one of {len(self.values)} values of {self.key} ({some(self.values)})"
        of = f"all {group} nodes" if hit == group else f"{hit} of the {group} nodes"
        return f"{of} with {values}"


class Found(NamedTuple):
    """Nodes that are alike."""

    odds: float
    """The logarithm of how likely that is by chance, over all choices of so many values of those
    that the label has: of many racks one is full sooner than a certain one.
    """
    alike: Alike
    nodes: tuple[str, ...]
    group: int
    """How many nodes of the fleet have one of the values, well or not."""


def found_alike(
    hits: Mapping[Shared, Collection[str]], faulty: int, groups: Mapping[Shared, int], fleet: int
) -> Iterable[Found]:
    """In what the nodes of `hits`, some of the `faulty` ones of a `fleet`, may be alike: each
    value alone, and of each label the values of which at least this part is hit, for every such
    part. `groups`: how many nodes have a value; one that is not in it tells nothing.
    """
    values = Counter(key for key, _ in groups)
    for alike in _choices(hits, groups):
        nodes = tuple(sorted(name for one in alike.shared for name in hits[one]))
        group = sum(groups.get(one, 0) for one in alike.shared)
        odds = log_chance(len(nodes), faulty, group, fleet)
        odds += _log_choices(len(alike.values), max(values[alike.key], 1))
        yield Found(odds, alike, nodes, group)


def _choices(
    hits: Mapping[Shared, Collection[str]], groups: Mapping[Shared, int]
) -> Iterable[Alike]:
    by_key: defaultdict[str, list[tuple[float, str]]] = defaultdict(list)
    for shared, its in hits.items():
        key, value = shared
        yield Alike(key, (value,))
        group = groups.get(shared, 0)
        if group and len(its) / group >= _MOST_OF:
            by_key[key].append((len(its) / group, value))
    for key, parts in by_key.items():
        for least in sorted({part for part, _ in parts}, reverse=True):
            values = sorted(value for part, value in parts if part >= least)
            if len(values) > 1:
                yield Alike(key, tuple(values))


def _log_choices(taken: int, of: int) -> float:
    return lgamma(of + 1) - lgamma(taken + 1) - lgamma(of - taken + 1)


def chance(hit: int, faulty: int, group: int, fleet: int) -> float:
    """How likely at least `hit` of `faulty` nodes are among the `group` nodes of a `fleet`, were
    they spread by chance; 1.0 where that is as many as were to be expected. `hit` are among them.
    """
    return exp(log_chance(hit, faulty, group, fleet))


def log_chance(hit: int, faulty: int, group: int, fleet: int) -> float:
    """Its logarithm, which tells what is unlikely from what is unlikelier still."""
    if not 0 < group < fleet:
        return 0.0
    part = group / fleet
    if hit <= faulty * part:
        return 0.0
    if faulty > _MOST_WORKED_OUT:
        return _bound(hit / faulty, part, faulty)
    every, within, without = lgamma(faulty + 1), log(part), log(1 - part)
    tail = [
        every - lgamma(k + 1) - lgamma(faulty - k + 1) + k * within + (faulty - k) * without
        for k in range(hit, faulty + 1)
    ]
    most = max(tail)
    return most + log(sum(exp(each - most) for each in tail))


def _bound(share: float, part: float, faulty: int) -> float:
    """Chernoff's: never less than the chance itself."""
    apart = share * log(share / part)
    if share < 1:
        apart += (1 - share) * log((1 - share) / (1 - part))
    return -faulty * apart
