"""The GPU topology of a node: interconnect, NUMA split, NVLink domain, link matrix, partitions.

Published as labels and in GPUNodeHealth. It describes the design of the node, so a link that fails
later does not change it: the caller keeps the most complete description of the same GPUs.
"""

import re
from collections import Counter
from collections.abc import Sequence
from enum import Enum, StrEnum
from typing import Final

from rules.api.health import Topology
from rules.catalog.signals import Signal
from rules.judge.observation import Service, TopologySeen
from rules.judge.state import GpuView, NodeState

_NVLINK: Final = re.compile(r"NV(\d{1,3})")
_ZERO: Final = frozenset("0-")
_MAX_MATRIX_BYTES: Final = 4096
FABRIC_COMPLETED: Final = 3
_IN_PROGRESS: Final = 2
"""nvmlGpuFabricState. Source: NVML reference."""
_SXID: Final = "SXid"


class Interconnect(StrEnum):
    """How the GPUs of a node reach each other."""

    NVSWITCH = "nvswitch"
    NVLINK_MESH = "nvlink-mesh"
    NVLINK_PARTIAL = "nvlink-partial"
    PCIE = "pcie"
    SINGLE = "single"


def interconnect(seen: TopologySeen) -> Interconnect:
    """Return the class of the interconnect.

    `nvswitch` if any link ends at a switch, `nvlink-mesh` with NVLink between every pair of GPUs,
    `nvlink-partial` between some pairs, `pcie` between none.
    """
    count = len(seen.gpus)
    if any(remote == "switch" for remotes in seen.remotes for remote in remotes):
        return Interconnect.NVSWITCH
    if count <= 1:
        return Interconnect.SINGLE
    pairs = [
        _NVLINK.fullmatch(_cell(seen.links, row, column)) is not None
        for row in range(count)
        for column in range(row + 1, count)
    ]
    if all(pairs):
        return Interconnect.NVLINK_MESH
    return Interconnect.NVLINK_PARTIAL if any(pairs) else Interconnect.PCIE


def numa_split(seen: TopologySeen, cpu_numa_nodes: Sequence[int]) -> str:
    """Return the GPUs per NUMA node with CPUs, in order: `4-4`; empty if a GPU has no NUMA node.

    If `cpu_numa_nodes` is empty, the NUMA nodes of the GPUs are used.
    """
    nodes = [node for node in seen.numa if node is not None and node >= 0]
    if len(nodes) != len(seen.gpus) or not nodes:
        return ""
    per_node = Counter(nodes)
    with_cpus = sorted(set(cpu_numa_nodes) or per_node)
    if not set(per_node) <= set(with_cpus):
        return ""
    return "-".join(str(per_node[node]) for node in with_cpus)


def nvlink_domain(seen: TopologySeen) -> str:
    """Return `<cluster UUID>.<clique>`, the format of GPU Feature Discovery.

    Empty if the UUID is all zero (a single node) or the GPUs differ.
    """
    named = {
        (cluster, clique)
        for cluster, clique in zip(seen.clusters, seen.cliques, strict=False)
        if cluster and not set(cluster) <= _ZERO and clique is not None
    }
    if len(named) != 1 or len(seen.clusters) < len(seen.gpus):
        return ""
    ((cluster, clique),) = named
    return f"{cluster}.{clique}"


def matrix_text(seen: TopologySeen) -> str:
    """Return the matrix in the format of `nvidia-smi topo -m`; empty for a single GPU."""
    count = len(seen.gpus)
    if count <= 1:
        return ""
    names = [f"GPU{index}" for index in range(count)]
    lines = ["\t" + "\t".join(names)]
    lines += [
        "\t".join([names[row], *(_cell(seen.links, row, column) for column in range(count))])
        for row in range(count)
    ]
    text = "\n".join(lines)
    return text if len(text) <= _MAX_MATRIX_BYTES else ""


def describe(seen: TopologySeen, cpu_numa_nodes: Sequence[int]) -> Topology:
    """Return the published topology of one description."""
    return Topology(
        interconnect=interconnect(seen),
        nvlink_domain=nvlink_domain(seen),
        links=matrix_text(seen),
        numa=numa_split(seen, cpu_numa_nodes),
    )


def better(seen: TopologySeen, known: TopologySeen | None) -> TopologySeen:
    """Return the more complete of two descriptions of the same GPUs: a dead link is not listed.

    A different set of GPUs with as many or more members replaces the old description.
    """
    if known is None:
        return seen
    if set(known.gpus) > set(seen.gpus):
        return known
    if set(known.gpus) == set(seen.gpus) and _links(known) > _links(seen):
        return known
    return seen


def _links(seen: TopologySeen) -> int:
    return sum(remote != "" for remotes in seen.remotes for remote in remotes) + sum(
        int(match[1]) for row in seen.links for cell in row if (match := _NVLINK.fullmatch(cell))
    )


def _cell(links: Sequence[Sequence[str]], row: int, column: int) -> str:
    if row == column:
        return "X"
    if row < len(links) and column < len(links[row]):
        return links[row][column]
    return "N/A"


class Partition(Enum):
    """Whether a GPU that is not registered with the fabric is outside all active partitions.

    With `FABRIC_MODE=1` the fabric manager registers only the GPUs of active partitions. The
    others stay in progress, with their links down, until one of their partitions is activated.
    Source: NVIDIA Fabric Manager guide, shared NVSwitch virtualization model.
    """

    NO = "no"
    POSSIBLE = "possible"
    """Other GPUs are registered and no status is an error: outside a partition, or hung."""
    BY_DESIGN = "by design"
    """An annotation declares that the fabric is shared."""


def outside_partition(state: NodeState, view: GpuView) -> Partition:
    """Return whether a GPU is outside a partition, by the last readings of all GPUs."""
    if view.values.get(Signal.FABRIC_STATE) != _IN_PROGRESS:
        return Partition.NO
    if view.values.get(Signal.FABRIC_STATUS):
        return Partition.NO
    if state.node.shared_fabric:
        return Partition.BY_DESIGN
    registered = any(
        other.enumerated and other.values.get(Signal.FABRIC_STATE) == FABRIC_COMPLETED
        for other in state.gpus.values()
    )
    return Partition.POSSIBLE if registered else Partition.NO


def links_rest(state: NodeState, view: GpuView) -> bool:
    """Whether all links of the GPU may be down by design.

    Without the annotation for a shared fabric, this requires a running fabric manager and a node
    without an Xid or SXid.
    """
    outside = outside_partition(state, view)
    if outside is not Partition.POSSIBLE:
        return outside is Partition.BY_DESIGN
    manager = state.services.get(Service.FABRIC_MANAGER)
    quiet = not any(
        incident.active and (incident.xids or incident.row.reason.startswith(_SXID))
        for incident in state.incidents
    )
    return quiet and manager is not None and manager.running is True
