"""Thresholds: documented numbers, overrides by a file, error messages."""

import pytest

from rules.catalog.reason import Action, Level, Severity
from rules.catalog.reasons import REASONS
from rules.catalog.thresholds import DEFAULT_RULES, RulesError, parse_rules
from rules.catalog.xid import reason_for_xid

HEAD = "apiVersion: gpuward.io/v1alpha1\nkind: Rules\n"


def test_every_number_has_its_unit_reason_and_source() -> None:
    for name, row in DEFAULT_RULES.thresholds.items():
        assert row.unit, name
        assert row.why, name
        assert row.source, name
        assert 1 <= row.count <= row.window, name


def test_a_file_changes_what_it_names_and_nothing_else() -> None:
    rules = parse_rules(
        (HEAD + "thresholds: {TemperatureMargin: {value: 4, clear: 6, count: 2}}").encode()
    )
    changed = rules["TemperatureMargin"]
    assert (changed.value, changed.clear, changed.count, changed.window) == (4, 6, 2, 5)
    assert changed.unit == DEFAULT_RULES["TemperatureMargin"].unit
    others = set(DEFAULT_RULES.thresholds) - {"TemperatureMargin"}
    assert all(rules[name] == DEFAULT_RULES[name] for name in others)


def test_a_threshold_without_hysteresis_keeps_both_sides_together() -> None:
    rules = parse_rules((HEAD + "thresholds: {RowRemapMany: {value: 100}}").encode())
    assert (rules["RowRemapMany"].value, rules["RowRemapMany"].clear) == (100, 100)


def test_a_file_changes_columns_of_a_reason() -> None:
    rules = parse_rules(
        (
            HEAD + "reasons: {Xid94ContainedMemoryError: {severity: Fatal, level: Drain, "
            "action: ResetGPU}}"
        ).encode()
    )
    changed = rules.apply(reason_for_xid(94))
    assert (changed.severity, changed.level, changed.action) == (
        Severity.FATAL,
        Level.DRAIN,
        Action.RESET_GPU,
    )
    assert rules.apply(REASONS["GPULost"]) == REASONS["GPULost"]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        pytest.param("", "object", id="empty"),
        pytest.param("[1, 2]", "object", id="a list"),
        pytest.param("a: [", "line", id="not YAML"),
        pytest.param('a: !!int ""', "not YAML", id="an empty number"),
        pytest.param("a: !!timestamp x", "not YAML", id="no moment"),
        pytest.param("\0", "character", id="bytes"),
        pytest.param("kind: Rules\n", "apiVersion", id="no version"),
        pytest.param(
            "apiVersion: gpuward.io/v2\nkind: Rules\n", "apiVersion", id="another version"
        ),
        pytest.param(HEAD + "treshold: {}", "treshold", id="unknown key"),
        pytest.param(
            HEAD + "thresholds: {Thermal: {value: 1}}", "ThermalSlowdown", id="unknown name"
        ),
        pytest.param(HEAD + "thresholds: {GPULost: {valu: 1}}", "valu", id="unknown field"),
        pytest.param(HEAD + "thresholds: {GPULost: {count: x}}", "thresholds", id="not a number"),
        pytest.param(HEAD + "thresholds: {GPULost: {count: 4}}", "GPULost", id="N above M"),
        pytest.param(HEAD + "thresholds: {GPULost: {count: 0}}", "GPULost", id="N of zero"),
        pytest.param(HEAD + "thresholds: {GPULost: {value: -1}}", "GPULost", id="negative"),
        pytest.param(HEAD + "thresholds: {GPULost: {value: .nan}}", "GPULost", id="not finite"),
        pytest.param(HEAD + "reasons: {X: {level: Evict}}", "Evict", id="unknown level"),
        pytest.param(HEAD + "reasons: {Xid-1: {level: Drain}}", "Xid-1", id="no reason code"),
    ],
)
def test_an_error_message_names_the_mistake(text: str, named: str) -> None:
    with pytest.raises(RulesError) as error:
        parse_rules(text.encode())
    message = str(error.value)
    assert message.startswith("rules file: ")
    assert named in message
    assert "\n" not in message
