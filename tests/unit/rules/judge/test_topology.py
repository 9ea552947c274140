"""Interconnect class, NUMA split, NVLink domain and matrix of the known node shapes."""

import pytest

from rules.judge.observation import TopologySeen
from rules.judge.topology import (
    better,
    describe,
    interconnect,
    matrix_text,
    numa_split,
    nvlink_domain,
)

CLUSTER = "2f5c2b0e-1111-2222-3333-444455556666"
ZERO = "00000000-0000-0000-0000-000000000000"


def node(
    count: int,
    cells: dict[tuple[int, int], str] | None = None,
    *,
    default: str = "SYS",
    remote: str = "",
    numa: tuple[int | None, ...] | None = None,
    cluster: str = "",
) -> TopologySeen:
    cells = cells or {}
    return TopologySeen(
        at=1.0,
        gpus=tuple(f"GPU-{n}" for n in range(count)),
        links=tuple(
            tuple(
                "X" if a == b else cells.get((min(a, b), max(a, b)), default) for b in range(count)
            )
            for a in range(count)
        ),
        remotes=tuple((remote,) * 4 if remote else () for _ in range(count)),
        clusters=(cluster,) * count,
        cliques=(1,) * count,
        numa=numa if numa is not None else tuple(n * 2 // count for n in range(count)),
    )


PAIRS = {(0, 1): "NV4", (2, 3): "NV4"}


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        pytest.param(node(8, default="NV18", remote="switch"), "nvswitch", id="H100"),
        pytest.param(node(4, default="NV6", remote="gpu"), "nvlink-mesh", id="GB200 tray"),
        pytest.param(node(4, PAIRS, remote="gpu"), "nvlink-partial", id="A100 bridges"),
        pytest.param(node(8), "pcie", id="L40S"),
        pytest.param(node(1), "single", id="T4"),
        pytest.param(node(0), "single", id="none"),
    ],
)
def test_the_interconnect_class(seen: TopologySeen, expected: str) -> None:
    assert interconnect(seen) == expected


@pytest.mark.parametrize(
    ("numa", "with_cpus", "expected"),
    [
        pytest.param((0, 0, 0, 0, 1, 1, 1, 1), (0, 1), "4-4", id="even"),
        pytest.param((0,) * 8, (0, 1), "8-0", id="all on one"),
        pytest.param((0, 0, 0, 0, 1, 1, 1, 1), (), "4-4", id="nodes unknown"),
        pytest.param((0, 0, 1, 1, 2, 2, 3, 3), (0, 1), "", id="a GPU on a node without CPUs"),
        pytest.param((None,) * 8, (0, 1), "", id="GPUs do not say"),
        pytest.param((-1,) * 8, (0,), "", id="no affinity"),
    ],
)
def test_the_numa_split(
    numa: tuple[int | None, ...], with_cpus: tuple[int, ...], expected: str
) -> None:
    assert numa_split(node(8, numa=numa), with_cpus) == expected


@pytest.mark.parametrize(
    ("cluster", "expected"), [(CLUSTER, f"{CLUSTER}.1"), (ZERO, ""), ("", "")]
)
def test_the_nvlink_domain_is_absent_when_zero(cluster: str, expected: str) -> None:
    assert nvlink_domain(node(4, cluster=cluster)) == expected


def test_the_matrix_reads_like_nvidia_smi() -> None:
    assert matrix_text(node(2, default="NV18")) == ("\tGPU0\tGPU1\nGPU0\tX\tNV18\nGPU1\tNV18\tX")
    assert matrix_text(node(1)) == ""


def test_a_ragged_matrix_is_survived() -> None:
    seen = TopologySeen(at=0, gpus=("a", "b", "c"), links=(("X",), ()))
    assert "N/A" in describe(seen, ()).links
    assert interconnect(seen) == "pcie"


def test_a_dead_link_does_not_change_the_design() -> None:
    design = node(8, default="NV18", remote="switch")
    faulty = node(8, {(0, 1): "SYS"}, default="NV17", remote="switch")
    assert better(faulty, design) is design
    assert better(design, faulty) is design
    assert better(node(7, default="NV18", remote="switch"), design) is design
    assert better(node(2), node(1)).gpus == ("GPU-0", "GPU-1")
