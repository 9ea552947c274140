"""Find what faulty nodes have in common (a rack, a driver, a rollout), and how likely by chance.

The breaker uses it for sessions, the fleet for health statuses: a reported fault (a hot rack) can
have a common cause, too. A value that most of the fleet shares explains nothing. So the module
calculates the chance of each shared value and reports the least likely one. Nodes share one value
of a label (a rack), or several values of a label with most of their nodes faulty (three racks).
"""

import functools
from collections import Counter, defaultdict
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import exp, lgamma, log
from operator import itemgetter
from typing import Final, NamedTuple

from rules.api import messages
from rules.api.names import LABEL_DRIVER, LABEL_NVLINK_DOMAIN
from rules.api.nodes import HealthView
from rules.catalog.reason import Severity

_MOST_OF: Final = 0.5
"""Of several values, each must have at least this share of faulty nodes."""
_MOST_EXACT: Final = 200
"""For more nodes the chance is estimated, because the exact calculation takes too long."""

Shared = tuple[str, str]
"""A label's key and its value."""


class Alike(NamedTuple):
    """One label and some of its values."""

    key: str
    values: tuple[str, ...]

    @property
    def shared(self) -> tuple[Shared, ...]:
        """Each of the values with its key."""
        return tuple((self.key, value) for value in self.values)

    @property
    def name(self) -> str:
        """For metrics and keys of Events: it stays while more values join."""
        if len(self.values) > 1:
            return f"one of several values of {self.key}"
        return f"{self.key}={self.values[0]}"

    def among(self, hit: int, group: int) -> str:
        """Return `3 of the 8 nodes with rack=a`: `hit` nodes of the `group` with these values."""
        values = self.name
        if len(self.values) > 1:
            listed = messages.name_list(self.values)
            values = f"one of {len(self.values)} values of {self.key} ({listed})"
        of = f"{hit} of the {group} nodes" if hit < group else f"all {hit} nodes"
        return f"{of} with {values}"


class Found(NamedTuple):
    """Nodes with a shared value."""

    odds: float
    """The logarithm of the probability by chance, over all choices of that many values."""
    alike: Alike
    hit: int
    """How many faulty nodes have one of the values."""
    group: int
    """How many nodes of the fleet have one of the values."""


Hits = Mapping[Shared, Collection[str]]
"""The faulty nodes with each value."""


def found_alike(
    hits: Hits, faulty: int, groups: Mapping[Shared, int], fleet: int, least: int
) -> Iterator[Found]:
    """Return what at least `least` of the `faulty` nodes of a `fleet` share.

    Candidates are each value alone, and for each label its values with the highest shares of
    faulty nodes. `groups`: how many nodes have each value. A label without nodes is skipped. A
    value that nodes no longer have (a driver) counts for its faulty nodes.
    """
    values = Counter(key for key, _ in groups)
    for alike, hit, group in _choices(hits, _at_least(hits, groups, values), least):
        odds = log_chance(hit, faulty, group, fleet)
        taken, of = len(alike.values), max(values[alike.key], 1)
        odds += lgamma(of + 1) - lgamma(taken + 1) - lgamma(of - taken + 1)
        yield Found(odds, alike, hit, group)


def _at_least(
    hits: Hits, groups: Mapping[Shared, int], known: Collection[str]
) -> Mapping[Shared, int]:
    """Return how many nodes of the fleet have each value of `hits`, or had it when they failed."""
    return {
        one: max(groups.get(one, 0), len(its)) if one[0] in known else 0
        for one, its in hits.items()
    }


def nodes_of(alike: Alike, hits: Hits) -> tuple[str, ...]:
    """Return the nodes of `hits` with these values, sorted."""
    return tuple(sorted({name for one in alike.shared for name in hits[one]}))


def _choices(
    hits: Hits, groups: Mapping[Shared, int], least: int
) -> Iterator[tuple[Alike, int, int]]:
    """Return the candidates, each with its number of faulty nodes and of all nodes."""
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
    """Return the candidates of several values. A node with two values counts once."""
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


def log_chance(hit: int, faulty: int, group: int, fleet: int) -> float:
    """How likely at least `hit` of `faulty` nodes are among the `group` nodes of a `fleet`, were
    they spread by chance, as a logarithm; 0.0 where that is as many as were to be expected. `hit`
    are among them.
    """
    if not 0 < group < fleet:
        return 0.0
    part = group / fleet
    if hit <= faulty * part:
        return 0.0
    if faulty > _MOST_EXACT:
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


SHARED_LABELS: Final = (
    "topology.kubernetes.io/rack",
    "*/rack",
    "topology.k8s.aws/network-node-layer-3",
    "cloud.google.com/gce-topology-subblock",
    LABEL_NVLINK_DOMAIN,
    "node.kubernetes.io/instance-type",
    LABEL_DRIVER,
)
"""What several nodes may share, the most specific first; the policy's `per` keys come before.
`*/rack` means a label of that name under any prefix or none: clusters name racks as they like.
"""
SEVERAL: Final = 3
"""Fewer nodes than these are a coincidence, whatever they share."""
_UNLIKELY: Final = log(1e-3)
"""Less likely than this by chance, over all the values that a label has, is a common cause. With
it a fleet of ten racks that has three unrelated hot nodes names a rack once in some 10,000 times.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonCause:
    """Nodes with the same active fault that share what few others have."""

    reason: str
    alike: Alike
    nodes: tuple[str, ...]
    group: int
    """How many nodes are alike in that, well or not."""
    elsewhere: int
    """How many nodes have the fault and are not alike."""

    @property
    def shared(self) -> str:
        """What they share, as metrics name it."""
        return self.alike.name

    @property
    def message(self) -> str:
        """What an operator is reported."""
        others = f"{self.elsewhere} elsewhere" if self.elsewhere else "none elsewhere"
        return (
            f"{self.reason} on {self.alike.among(len(self.nodes), self.group)}, {others}: look at "
            "what they share first"
        )


@functools.lru_cache(maxsize=16)
def keys_for(per: tuple[str, ...]) -> tuple[str, ...]:
    """The label keys that are compared under a policy with these `budget.per`."""
    return (*per, *SHARED_LABELS)


def shared_labels(labels: Mapping[str, str], keys: tuple[str, ...]) -> tuple[Shared | None, ...]:
    """For each key the label of a node that it names and its value; None where it has none."""
    names = _named(tuple(labels), keys)
    return tuple((name, labels[name]) if name and labels[name] else None for name in names)


@functools.lru_cache(maxsize=4096)
def _named(present: tuple[str, ...], keys: tuple[str, ...]) -> tuple[str, ...]:
    """Cached, because the nodes of a fleet have few different sets of label keys."""
    found: list[str] = []
    for key in keys:
        name = label_named(present, key)
        found.append("" if name in found else name)
    return tuple(found)


def label_named(present: Collection[str], key: str) -> str:
    """Return the label that `key` matches; `*/NAME` matches any prefix, or none."""
    if not key.startswith("*/"):
        return key if key in present else ""
    name = key[2:]
    return min((one for one in present if one == name or one.endswith(f"/{name}")), default="")


@dataclass(frozen=True, slots=True)
class FleetLabels:
    """The labels of a fleet's nodes, counted."""

    of: Mapping[str, tuple[Shared | None, ...]]
    """The result of `shared_labels` for each node, by its name."""
    groups: Mapping[Shared, int]
    """How many nodes have each value."""


def common_causes(
    fleet: FleetLabels, healths: Mapping[str, HealthView]
) -> tuple[CommonCause, ...]:
    """Return for each active fault of several nodes what they share, if it is significant."""
    several = _faulty_of(fleet.of, healths)
    found = (_most_specific(reason, several[reason], fleet) for reason in sorted(several))
    return tuple(one for one in found if one is not None)


def _faulty_of(
    nodes: Container[str], healths: Mapping[str, HealthView]
) -> Mapping[str, Sequence[str]]:
    """Return the nodes of each fault that several nodes have."""
    faulty: defaultdict[str, list[str]] = defaultdict(list)
    for name, health in healths.items():
        if name in nodes:
            for reason in _faults(health):
                faulty[reason].append(name)
    return {reason: its for reason, its in faulty.items() if len(its) >= SEVERAL}


def _faults(health: HealthView) -> set[str]:
    return {
        incident.reason
        for incident in health.status.incidents
        if incident.active and incident.severity != Severity.INFO
    }


def _most_specific(reason: str, faulty: Sequence[str], fleet: FleetLabels) -> CommonCause | None:
    hits: defaultdict[Shared, list[str]] = defaultdict(list)
    rank: dict[str, int] = {}
    for name in faulty:
        for place, shared in enumerate(fleet.of[name]):
            if shared is not None:
                hits[shared].append(name)
                rank[shared[0]] = place
    significant = [
        (found.odds, rank[found.alike.key], found)
        for found in found_alike(hits, len(faulty), fleet.groups, len(fleet.of), SEVERAL)
        if found.odds < _UNLIKELY
    ]
    if not significant:
        return None
    best = min(significant)[2]
    return CommonCause(
        reason=reason,
        alike=best.alike,
        nodes=nodes_of(best.alike, hits),
        group=best.group,
        elsewhere=len(faulty) - best.hit,
    )
