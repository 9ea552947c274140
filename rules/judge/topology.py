"""The design topology of a node: interconnect class, NUMA split, NVLink domain, link matrix.

Called by `judge` when the driver describes how the GPUs are joined; published as labels and
in GPUNodeHealth. It describes what was built, so a link that fails later never changes it: the
caller keeps the best description of the same set of GPUs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from rules.api.health import Topology
from rules.judge.observation import TopologySeen

_NVLINK: Final = re.compile(r"NV(\d{1,3})")
_ZERO: Final = frozenset("0-")
_MAX_MATRIX_BYTES: Final = 4096


class Interconnect(StrEnum):
    """How the GPUs of a node reach each other."""

    NVSWITCH = "nvswitch"
    NVLINK_MESH = "nvlink-mesh"
    NVLINK_PARTIAL = "nvlink-partial"
    PCIE = "pcie"
    SINGLE = "single"


def interconnect(seen: TopologySeen) -> Interconnect:
    """Classify the node.

    A switch at the far end of any link makes it `nvswitch`; NVLink between every pair makes a
    mesh, between some pairs `nvlink-partial`, between none `pcie`.
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
    """GPUs per NUMA node that has CPUs, in node order: `4-4`; empty when a GPU names none.

    `cpu_numa_nodes` empty means unknown: then the nodes that GPUs name are counted.
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
    """`<cluster UUID>.<clique>` as GPU feature discovery spells it.

    Empty when the UUID is all zero (a single node) or the GPUs do not agree.
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
    """Spell the matrix as `nvidia-smi topo -m` does; empty for a single GPU."""
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
    """Everything of one description, as it is published."""
    return Topology(
        interconnect=interconnect(seen),
        nvlink_domain=nvlink_domain(seen),
        links=matrix_text(seen),
        numa=numa_split(seen, cpu_numa_nodes),
    )


def better(seen: TopologySeen, known: TopologySeen | None) -> TopologySeen:
    """Keep the richer of two descriptions of the same GPUs: a dead link hides, it never adds.

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
