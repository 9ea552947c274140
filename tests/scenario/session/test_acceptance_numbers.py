"""The numbered acceptance scenarios: each has a test that carries its number, or says why not
yet.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ALL = {1, 3, 6, 7, 9, 10, 12, 13, 15, 16, 18, 19, 20, 22, 23, 24, 25, 26, 27, 28, 31, 32} | {
    *(33, 34, 35, 36, 37, 38, 39, 40, 43, 44, 45, 46, 47, 48, 49, 50)
}
# Where the answers of an API server and races with it are what matters.
OVER_HTTP = {16, 28, 40, 43, 44, 48}
TEST = re.compile(r"def test_s(\d\d)_\w+")


def numbers_in(*folders: str) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for folder in folders:
        for file in sorted((ROOT / "tests" / folder).rglob("test_*.py")):
            for number in TEST.findall(file.read_text()):
                found.setdefault(int(number), []).append(file.name)
    return found


@pytest.mark.parametrize("number", sorted(ALL))
def test_the_scenario_has_a_test_that_carries_its_number(number: int) -> None:
    assert number in numbers_in("scenario", "e2e", "unit")


def test_no_test_carries_a_number_that_is_none_of_them() -> None:
    assert numbers_in("scenario", "e2e", "unit").keys() <= ALL


@pytest.mark.parametrize("number", sorted(OVER_HTTP))
def test_evictions_and_races_are_shown_over_http_too(number: int) -> None:
    assert number in numbers_in("e2e", "unit/remediator")


def test_the_page_lists_the_same() -> None:
    page = (ROOT / "docs" / "scenarios.md").read_text()
    rows = re.compile(r"^\| (\d+) ", re.MULTILINE)
    assert {int(number) for number in rows.findall(page)} == ALL
