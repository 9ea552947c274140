"""A label selector in its two forms: the text of kubectl and the object of the API."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from rules.api.metadata import LabelSelector
from rules.api.selectors import as_object, matcher, opposite, parse_selector, spelled

KEYS, VALUES = ("rack", "pool"), ("a", "b", "")
LABELS = [
    {key: value for key, value in zip(KEYS, pair, strict=True) if value is not None}
    for pair in itertools.product((None, *VALUES), repeat=2)
]


@pytest.mark.parametrize(
    "text",
    [
        "rack=a", "rack==a,pool=b", "rack=", "rack!=a", "rack in (a,b)", "rack notin (a),pool",
        "!rack", "rack=a,rack=b", "rack=a,rack!=b,!pool", "pool in (a),pool in (a,b)",
    ],
)  # fmt: skip
def test_both_forms_of_a_selector_mean_the_same(text: str) -> None:
    made = msgspec.convert(as_object(text), LabelSelector)
    for labels in LABELS:
        expected = parse_selector(text)(labels)
        assert matcher(made)(labels) is expected
        assert parse_selector(spelled(made))(labels) is expected


@pytest.mark.parametrize("text", ["a in b", "=b", "a b", "a in ()", "-=x", ",", "a=b,", "a,,b"])
def test_what_is_no_selector_becomes_no_object(text: str) -> None:
    with pytest.raises(ValueError, match="is no label selector"):
        as_object(text)


@pytest.mark.parametrize(
    "text",
    [
        "rack", "!rack", "rack=a", "rack==a", "rack=", "rack!=", "rack!=a", "rack in (a)",
        "rack in (a, b)", "rack notin (a,b)", " rack=a ",
    ],
)  # fmt: skip
def test_the_opposite_selects_just_what_a_selector_leaves(text: str) -> None:
    for labels in LABELS:
        assert parse_selector(opposite(text))(labels) is not parse_selector(text)(labels)


@pytest.mark.parametrize("text", ["", "rack,pool", "rack=a,!pool"])
def test_of_none_and_of_several_requirements_no_selector_is_the_opposite(
    text: str,
) -> None:
    assert opposite(text) == ""
