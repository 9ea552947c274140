"""Label values and selectors: what the API server takes, run over all that may become one."""

import itertools

import msgspec
import pytest

from rules.api.metadata import LabelSelector
from rules.api.object_name import RefusedLabel, checked_labels, is_label_value, product_label
from rules.api.selectors import as_object, matcher, parse_selector, spelled
from rules.catalog.reasons import REASONS, RECOVERY_REASONS
from rules.catalog.xid import catalog, reason_for_xid


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("", True),
        ("580.82.07", True),
        ("4-4", True),
        ("a" * 63, True),
        ("a" * 64, False),
        ("-a", False),
        ("a.", False),
        ("a b", False),
        ("a:b", False),
        ("é", False),
        ("a\n", False),
    ],
)
def test_what_kubernetes_takes(text: str, *, good: bool) -> None:
    assert is_label_value(text) is good


def test_a_bad_value_costs_its_own_label_only() -> None:
    kept, refused = checked_labels({"a": "fine", "b": "not fine", "c": "x" * 999})
    assert kept == {"a": "fine"}
    assert refused[0] == RefusedLabel("b", "'not fine'")
    assert len(refused[1].value) <= 80


@pytest.mark.parametrize(
    ("product", "label"),
    [
        ("NVIDIA H100 80GB HBM3", "NVIDIA-H100-80GB-HBM3"),
        ("NVIDIA A100-SXM4-40GB", "NVIDIA-A100-SXM4-40GB"),
        ("Tesla T4", "Tesla-T4"),
        ("  GH200 480GB \t x ", "GH200-480GB-x"),
        ("NVIDIA RTX (TM) 6000/Ada", "NVIDIA-RTX-TM-6000Ada"),
        ("X" * 100, "X" * 63),
        ("é!", ""),
        ("", ""),
    ],
)
def test_a_product_is_spelled_as_feature_discovery_does(product: str, label: str) -> None:
    assert product_label(product) == label
    assert is_label_value(label)


def test_every_reason_can_stand_in_a_label_or_taint() -> None:
    names = {*REASONS, *RECOVERY_REASONS, *(reason_for_xid(xid).reason for xid in catalog())}
    assert len(names) > 200
    assert [name for name in names if not is_label_value(name)] == []


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
