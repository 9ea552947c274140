"""What several nodes have in common, and how likely they have it by chance.

Pure. Nodes are alike by one value of a label (a rack), or by several values of the same label
where most nodes of each are meant: three racks that failed as a whole are not explained by one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from itertools import groupby
from math import exp, lgamma, log
from operator import itemgetter
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
        """In a sentence: so many `hit` nodes of the `group` that is alike; of more than the group
        where the policy selects some of them no more.
        """
        values = self.name
        if len(self.values) > 1:
            values = f"one of {len(self.values)} values of {self.key} ({some(self.values)})"
        of = f"{hit} of the {group} nodes" if hit < group else f"all {hit} nodes"
        return f"{of} with {values}"


class Found(NamedTuple):
    """Nodes that are alike."""

    odds: float
    """The logarithm of how likely that is by chance, over all choices of so many values of those
    that the label has: of many racks one is full sooner than a certain one.
    """
    alike: Alike
    hit: int
    """How many nodes of `hits` they are."""
    group: int
    """How many nodes of the fleet have one of the values, well or not."""


Hits = Mapping[Shared, Collection[str]]
"""The faulty nodes with each value, each node once."""


def found_alike(
    hits: Hits, faulty: int, groups: Mapping[Shared, int], fleet: int, least: int
) -> Iterator[Found]:
    """In what at least `least` nodes of `hits`, some of the `faulty` ones of a `fleet`, may be
    alike: each value alone, and of each label the values of which at least this part is hit, for
    every such part. `groups`: how many nodes have a value; a label that no node has now tells
    nothing, a value that was taken off them since (a driver) was had by those that were hit.
    """
    values = Counter(key for key, _ in groups)
    for alike, hit, group in _choices(hits, _at_least(hits, groups, values), least):
        odds = log_chance(hit, faulty, group, fleet)
        odds += _log_choices(len(alike.values), max(values[alike.key], 1))
        yield Found(odds, alike, hit, group)


def _at_least(
    hits: Hits, groups: Mapping[Shared, int], known: Collection[str]
) -> Mapping[Shared, int]:
    """How many nodes of the fleet have each value of `hits`, or had it when they were hit."""
    return {
        one: max(groups.get(one, 0), len(its)) if one[0] in known else 0
        for one, its in hits.items()
    }


def nodes_of(alike: Alike, hits: Hits) -> tuple[str, ...]:
    """The nodes of `hits` that are alike, sorted."""
    return tuple(sorted({name for one in alike.shared for name in hits[one]}))


def _choices(
    hits: Hits, groups: Mapping[Shared, int], least: int
) -> Iterator[tuple[Alike, int, int]]:
    """Each with how many nodes of `hits` and of the fleet it has."""
    by_key: defaultdict[str, list[tuple[float, str]]] = defaultdict(list)
    for shared, its in hits.items():
        key, value = shared
        group = groups[shared]
        if len(its) >= least:
            yield Alike(key, (value,)), len(its), group
        if group and len(its) / group >= _MOST_OF:
            by_key[key].append((len(its) / group, value))
    for key, parts in by_key.items():
        yield from _of_several(key, parts, hits, groups, least)


def _of_several(
    key: str,
    parts: list[tuple[float, str]],
    hits: Hits,
    groups: Mapping[Shared, int],
    least: int,
) -> Iterator[tuple[Alike, int, int]]:
    """Added up value by value: racks of many sizes have hundreds of parts. A node counts once,
    also where two values are said of it (a label, and the evidence of before).
    """
    values: list[str] = []
    nodes: set[str] = set()
    group = 0
    for _, same in groupby(sorted(parts, reverse=True), key=itemgetter(0)):
        for _, value in same:
            values.append(value)
            nodes.update(hits[key, value])
            group += groups[key, value]
        if len(values) > 1 and len(nodes) >= least:
            yield Alike(key, tuple(sorted(values))), len(nodes), group


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
