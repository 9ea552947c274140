"""Keys given twice, wherever they hide, found without building a value."""

from __future__ import annotations

import pytest
import yaml

from rules.text.user_input import duplicate_keys


def said(text: str) -> list[str]:
    return [found.sentence for found in duplicate_keys(yaml.compose(text))]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", [], id="empty"),
        pytest.param("a: 1\nb: 2\n", [], id="none"),
        pytest.param("a: 1\n'a': 2\n", ["a is given twice, in lines 1 and 2; keep one of them"],
                     id="quoted is the same"),
        pytest.param("{a: 1, a: 2}", ["a is given twice, in line 1; keep one of them"], id="flow"),
        pytest.param("b:\n  c: 1\n  d: 1\n  c: 2\n",
                     ["b.c is given twice, in lines 2 and 4; keep one of them"], id="deeper"),
        pytest.param("l:\n- {x: 1}\n- x: 1\n  y: 1\n  x: 2\n",
                     ["l[1].x is given twice, in lines 3 and 5; keep one of them"],
                     id="in a list"),
        pytest.param("a: {k: 1}\nb: {k: 1}\n", [], id="in two mappings"),
        pytest.param("1: a\n'1': b\n", [], id="a number and a text"),
        pytest.param("a: 1\na: 2\na: 3\n",
                     ["a is given twice, in lines 1 and 2; keep one of them",
                      "a is given twice, in lines 1 and 3; keep one of them"], id="three times"),
        pytest.param("x: &x {k: 1, k: 2}\ny: *x\nz: *x\n",
                     ["x.k is given twice, in line 1; keep one of them"], id="aliases count once"),
        pytest.param("x: &x {k: *x}\n", [], id="an alias of itself ends"),
        pytest.param("? [a]\n: 1\n? [a]\n: 2\n", [], id="keys that are no text"),
    ],
)  # fmt: skip
def test_each_is_named_with_its_lines(text: str, expected: list[str]) -> None:
    assert said(text) == expected


def test_aliases_of_aliases_cost_nothing() -> None:
    lines = ["a0: &a0 {k: 1, k: 2}"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
    assert len(said("\n".join(lines))) == 1


def test_a_flood_is_bounded() -> None:
    assert len(said("\n".join(f"m{n}: {{k: 1, k: 2}}" for n in range(1000)))) <= 20
