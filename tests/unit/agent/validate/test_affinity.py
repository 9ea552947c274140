"""A process moves beside its GPU where that is known and allowed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.validate.affinity import cpus_of, move_near


@pytest.fixture
def affinity() -> Iterator[set[int]]:
    before = os.sched_getaffinity(0)
    yield before
    os.sched_setaffinity(0, before)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0-3,8\n", {0, 1, 2, 3, 8}), ("5", {5}), ("\n", set()), ("", set())],
)
def test_a_list_of_cpus(text: str, expected: set[int]) -> None:
    assert cpus_of(text) == expected


@pytest.mark.parametrize("text", ["a-b", "0-99999999999", "1-2-3"])
def test_what_is_no_list_of_cpus(text: str) -> None:
    with pytest.raises(ValueError):
        cpus_of(text)


def test_a_process_moves_to_the_cpus_of_its_gpu(tmp_path: Path, affinity: set[int]) -> None:
    nearest = min(affinity)
    gpu = tmp_path / "0000:1b:00.0"
    gpu.mkdir()
    (gpu / "local_cpulist").write_text(f"{nearest},4000\n")
    move_near(gpu.name, tmp_path)
    assert os.sched_getaffinity(0) == {nearest}


@pytest.mark.parametrize("listed", ["4000-4001", "nonsense", None])
def test_a_process_stays_where_nothing_near_may_be_used(
    tmp_path: Path, affinity: set[int], listed: str | None
) -> None:
    gpu = tmp_path / "0000:1b:00.0"
    gpu.mkdir()
    if listed is not None:
        (gpu / "local_cpulist").write_text(listed)
    move_near(gpu.name, tmp_path)
    assert os.sched_getaffinity(0) == affinity
