"""What nodes with one fault have in common: a rack, a driver, a rollout, and how telling it is.

Pure. The breaker says it of sessions, the fleet of verdicts: a rack that is only reported (too
hot) has a common cause as well as one that is being drained. That several nodes share something
means nothing where most of the fleet shares it; so the chance that it happened to them is worked
out, and the least likely thing they share is named.
"""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Final

from rules.api.names import LABEL_DRIVER, LABEL_NVLINK_DOMAIN
from rules.api.nodes import HealthView, NodeView
from rules.catalog.reason import Severity
from rules.fleet.alike import Alike, Shared, found_alike, nodes_of
from rules.policy.policy import Policy
from rules.session.observation import selects_node

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
        """What a person is told."""
        others = f"{self.elsewhere} elsewhere" if self.elsewhere else "none elsewhere"
        return (
            f"{self.reason} on {self.alike.among(len(self.nodes), self.group)}, {others}: look at "
            "what they share first"
        )


def keys_for(per: tuple[str, ...]) -> tuple[str, ...]:
    """The label keys that are compared under a policy with these `budget.per`."""
    return _keys(per)


@functools.lru_cache(maxsize=16)
def _keys(per: tuple[str, ...]) -> tuple[str, ...]:
    return (*per, *SHARED_LABELS)


def shared_labels(labels: Mapping[str, str], keys: tuple[str, ...]) -> tuple[Shared | None, ...]:
    """For each key the label of a node that it names and its value; None where it has none."""
    names = _named(tuple(labels), keys)
    return tuple((name, labels[name]) if name and labels[name] else None for name in names)


@functools.lru_cache(maxsize=4096)
def _named(present: tuple[str, ...], keys: tuple[str, ...]) -> tuple[str, ...]:
    """Nodes of a fleet carry few different sets of keys, which the API server sorts."""
    found: list[str] = []
    for key in keys:
        name = label_named(present, key)
        found.append("" if name in found else name)
    return tuple(found)


def label_named(present: Collection[str], key: str) -> str:
    """The label that `key` means on a node with these; `*/NAME` is one of any prefix or none."""
    if not key.startswith("*/"):
        return key if key in present else ""
    name = key[2:]
    return min((one for one in present if one == name or one.endswith(f"/{name}")), default="")


@dataclass(frozen=True, slots=True)
class FleetLabels:
    """What the nodes of a fleet may have in common, counted."""

    of: Mapping[str, tuple[Shared | None, ...]]
    """What each node shares, by its name; as `shared_labels` has it."""
    groups: Mapping[Shared, int]
    """How many share it."""


def fleet_labels(nodes: Mapping[str, NodeView], per: tuple[str, ...] = ()) -> FleetLabels:
    """Of nodes that nobody has counted yet; `per` as in the policy's budget."""
    keys = keys_for(per)
    of = {name: shared_labels(node.labels, keys) for name, node in nodes.items()}
    return FleetLabels(of, Counter(one for labels in of.values() for one in labels if one))


def common_causes(
    nodes: Mapping[str, NodeView], healths: Mapping[str, HealthView], per: tuple[str, ...] = ()
) -> tuple[CommonCause, ...]:
    """For each active fault of several nodes the most telling thing that they share, if any is."""
    several = _faulty_of(nodes, healths)
    return _found(several, fleet_labels(nodes, per)) if several else ()


def common_causes_by(
    policy: Policy, nodes: Mapping[str, NodeView], healths: Mapping[str, HealthView]
) -> tuple[CommonCause, ...]:
    """The same of the nodes that the policy selects, by its `per` keys too, as the fleet page
    compares them.
    """
    selected = {name: node for name, node in nodes.items() if selects_node(policy, node)}
    return common_causes(selected, healths, policy.budget.per)


def common_causes_among(
    fleet: FleetLabels, healths: Mapping[str, HealthView]
) -> tuple[CommonCause, ...]:
    """The same of a fleet that is counted already."""
    return _found(_faulty_of(fleet.of, healths), fleet)


def _faulty_of(
    nodes: Container[str], healths: Mapping[str, HealthView]
) -> Mapping[str, Sequence[str]]:
    """The nodes with each fault that several have."""
    faulty: defaultdict[str, list[str]] = defaultdict(list)
    for name, health in healths.items():
        if name in nodes:
            for reason in _faults(health):
                faulty[reason].append(name)
    return {reason: its for reason, its in faulty.items() if len(its) >= SEVERAL}


def _found(several: Mapping[str, Sequence[str]], fleet: FleetLabels) -> tuple[CommonCause, ...]:
    found = (_most_telling(reason, several[reason], fleet) for reason in sorted(several))
    return tuple(one for one in found if one is not None)


def _faults(health: HealthView) -> set[str]:
    return {
        incident.reason
        for incident in health.status.incidents
        if incident.active and incident.severity != Severity.INFO
    }


def _most_telling(reason: str, faulty: Sequence[str], fleet: FleetLabels) -> CommonCause | None:
    hits: defaultdict[Shared, list[str]] = defaultdict(list)
    rank: dict[str, int] = {}
    for name in faulty:
        for place, shared in enumerate(fleet.of[name]):
            if shared is not None:
                hits[shared].append(name)
                rank[shared[0]] = place
    telling = [
        (found.odds, rank[found.alike.key], found)
        for found in found_alike(hits, len(faulty), fleet.groups, len(fleet.of), SEVERAL)
        if found.odds < _UNLIKELY
    ]
    if not telling:
        return None
    best = min(telling)[2]
    return CommonCause(
        reason=reason,
        alike=best.alike,
        nodes=nodes_of(best.alike, hits),
        group=best.group,
        elsewhere=len(faulty) - best.hit,
    )
