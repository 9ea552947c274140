"""NVLink registers: both layouts without a driver version, unambiguous; Xid 74 bit by bit."""

import itertools

import pytest

from rules.catalog.nvlink import nvlink4_assessment, nvlink5_rule, nvlink5_rules
from rules.catalog.reason import Action, Severity
from rules.catalog.xid import reason_for_xid


def test_there_are_95_rules_and_three_second_readings() -> None:
    assert len(nvlink5_rules()) == 95 + 3
    assert {rule.xid for rule in nvlink5_rules()} == set(range(144, 151))


@pytest.mark.parametrize("layout", [0, 1], ids=["before R575", "from R575"])
def test_every_rule_finds_its_own_action_in_both_layouts(layout: int) -> None:
    for rule in nvlink5_rules():
        _, info = rule.layouts[layout]
        for status in rule.statuses or (0, 0xFFFFFFFF):
            found = nvlink5_rule(rule.xid, (info, status))
            assert found is not None, rule
            assert found.immediate == rule.immediate, rule


def test_no_register_matches_two_rules_with_different_actions() -> None:
    for one, other in itertools.combinations(nvlink5_rules(), 2):
        if one.xid != other.xid or one.immediate == other.immediate:
            continue
        if one.statuses and other.statuses and not set(one.statuses) & set(other.statuses):
            continue
        for (mask, value), (other_mask, other_value) in itertools.product(
            one.layouts, other.layouts
        ):
            assert (value ^ other_value) & mask & other_mask, (one, other)


@pytest.mark.parametrize(
    ("xid", "registers", "action"),
    [
        pytest.param(149, (0x004505C6, 0), "RESET_GPU", id="real: link down, older layout"),
        pytest.param(149, (0x000FE406, 0), "RESET_GPU", id="real: no link number"),
        pytest.param(149, (0x00086226, 1), "IGNORE", id="real: bit error rate"),
        pytest.param(145, (0x0409A0C2, 8), "IGNORE", id="real: receive pipe"),
        pytest.param(145, (0x040988E2, 8), "XID_154_EVAL", id="real: source track"),
        pytest.param(145, (0x000000C2, 0x1), "IGNORE", id="receive pipe"),
        pytest.param(145, (0x000004C2, 0x1), "RESET_GPU", id="receive pipe, second reading"),
        pytest.param(144, (0x00000021, 0x6), "RESET_GPU", id="two bits: the stronger"),
        pytest.param(144, (0x00000021, 0x9), "IGNORE", id="two ignorable bits"),
        pytest.param(149, (0x00000246, 0x2), None, id="149's status is a code, not bits"),
        pytest.param(144, (0x00000003, 0x80000000), None, id="no rule"),
        pytest.param(144, (0x00000021,), None, id="one register only"),
        pytest.param(74, (0x00000021, 0x2), None, id="not an NVLink 5 number"),
    ],
)
def test_known_registers(xid: int, registers: tuple[int, ...], action: str | None) -> None:
    rule = nvlink5_rule(xid, registers)
    assert (rule.immediate if rule else None) == action


@pytest.mark.parametrize(
    ("xid", "registers", "fatal", "severity", "action"),
    [
        pytest.param(149, (0x004505C6, 0), True, Severity.FATAL, Action.RESET_GPU, id="reset"),
        pytest.param(149, (0x00086226, 1), False, Severity.INFO, Action.NONE, id="ignore"),
        pytest.param(145, (0x040988E2, 8), False, Severity.INFO, Action.RESTART_APP, id="by 154"),
        pytest.param(
            144, (0x3, 0x80000000), False, Severity.INFO, Action.NONE, id="no rule, nonfatal"
        ),
        pytest.param(
            144, (0x3, 0x80000000), True, Severity.DEGRADED, Action.INVESTIGATE, id="no rule"
        ),
        pytest.param(148, (), True, Severity.DEGRADED, Action.INVESTIGATE, id="no registers"),
    ],
)
def test_the_rule_becomes_the_reason(
    xid: int, registers: tuple[int, ...], fatal: bool, severity: Severity, action: Action
) -> None:
    reason = reason_for_xid(xid, registers=registers, line_fatal=fatal)
    assert (reason.severity, reason.action) == (severity, action)


@pytest.mark.parametrize(
    ("registers", "severity", "action"),
    [
        pytest.param((1 << 23,), Severity.INFO, Action.NONE, id="ignorable"),
        pytest.param((1 << 20,), Severity.INFO, Action.INVESTIGATE, id="follows another"),
        pytest.param((1 << 4,), Severity.DEGRADED, Action.RUN_DIAGNOSTICS, id="parity"),
        pytest.param((1 << 12 | 1 << 4,), Severity.DEGRADED, Action.CHECK_MECHANICALS,
                     id="mechanical"),
        pytest.param((1 << 21,), Severity.DEGRADED, Action.RUN_DIAGNOSTICS, id="marginal"),
        pytest.param((0, 0, 0x10000), Severity.DEGRADED, Action.INVESTIGATE,
                     id="real: third register"),
        pytest.param((0, 0, 0, 1 << 18), Severity.DEGRADED, Action.RESET_GPU, id="fabric reset"),
        pytest.param((0, 0, 0, 0, 1 << 20), Severity.INFO, Action.NONE, id="ECC threshold"),
        pytest.param((1 << 2,), Severity.DEGRADED, Action.INVESTIGATE, id="unknown bit"),
        pytest.param((0,) * 7, Severity.DEGRADED, Action.INVESTIGATE, id="all zero"),
        pytest.param((0, 0xFFFF, 0, 0, 1 << 18), Severity.DEGRADED, Action.RUN_DIAGNOSTICS,
                     id="second is data"),
    ],
)  # fmt: skip
def test_registers_of_xid_74(
    registers: tuple[int, ...], severity: Severity, action: Action
) -> None:
    assessment = nvlink4_assessment(registers)
    assert (assessment.severity, assessment.action) == (severity, action)
    assert reason_for_xid(74, registers=registers).severity is severity
