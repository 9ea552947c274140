"""Pool and rack of a node, from its labels: the first key of a list that the node carries.

`*/rack` means a label of that name under any prefix or none. Clusters name racks as they like, so
both lists are settings (`--page-pool-labels`, `--page-rack-labels`).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rules.fleet.common import label_named

POOL_KEYS: Final = (
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "karpenter.sh/nodepool",
    "kubernetes.azure.com/agentpool",
    "*/pool",
    "*/nodepool",
    "node.kubernetes.io/instance-type",
)
RACK_KEYS: Final = (
    "topology.kubernetes.io/rack",
    "*/rack",
    "topology.k8s.aws/network-node-layer-3",
    "cloud.google.com/gce-topology-subblock",
    "gpuward.io/nvlink-domain",
    "topology.kubernetes.io/zone",
)
UNNAMED: Final = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupKeys:
    """Label keys that name a node's pool and rack, the most telling first."""

    pool: tuple[str, ...] = POOL_KEYS
    rack: tuple[str, ...] = RACK_KEYS

    @classmethod
    def of(cls, pool: str, rack: str) -> GroupKeys:
        """From two comma-separated settings; an empty one means the defaults."""
        return cls(pool=_keys(pool) or POOL_KEYS, rack=_keys(rack) or RACK_KEYS)

    def group(self, labels: Mapping[str, str]) -> tuple[str, str]:
        """Pool and rack, `other` where no key of the list is on the node."""
        present = frozenset(labels)
        pool, rack = _first(present, self.pool), _first(present, self.rack)
        return labels.get(pool, "") or UNNAMED, labels.get(rack, "") or UNNAMED


def _keys(text: str) -> tuple[str, ...]:
    return tuple(key for part in text.split(",") if (key := part.strip()))


@functools.lru_cache(maxsize=4096)
def _first(present: frozenset[str], wanted: tuple[str, ...]) -> str:
    """The key that names the group; nodes of a fleet carry few different sets of keys."""
    return next(filter(None, (label_named(present, key) for key in wanted)), "")
