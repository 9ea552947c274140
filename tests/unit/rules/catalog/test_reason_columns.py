"""The columns of a reason: values, order, and a table without contradictions."""

import pytest

from rules.catalog.explanations import device_at, places
from rules.catalog.reason import (
    Action,
    ClosesKind,
    ClosesOn,
    Level,
    Reason,
    ReasonClass,
    Severity,
    closes_on_state,
    is_reason_code,
)
from rules.catalog.reasons import REASONS, RECOVERY_REASONS
from rules.catalog.signals import Signal


def test_severity_and_level_are_ordered() -> None:
    assert sorted(["Fatal", "Info", "Degraded"], key=Severity) == ["Info", "Degraded", "Fatal"]
    assert max(Severity.DEGRADED, Severity.FATAL, Severity.INFO) is Severity.FATAL
    assert Level.DRAIN > Level.CORDON > Level.REPORT
    assert Severity.INFO <= Severity.INFO < Severity.DEGRADED
    assert Severity.FATAL >= Severity.DEGRADED


@pytest.mark.parametrize(
    "text",
    ["Silence(3m)", "Silence(90s)", "Silence(2h)", "Reset", "Reboot", "Human",
     "State(temperature_celsius, 3 of 5)", "State(driver, 1 of 1)"],
)  # fmt: skip
def test_the_end_of_an_incident_is_read_back(text: str) -> None:
    assert str(ClosesOn.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    ["", "Silence", "Silence(0m)", "Silence(3d)", "State(x, 0 of 3)", "State(x, 4 of 3)",
     "State(, 1 of 1)",
     "reset", "Reset(1)", "State"],
)  # fmt: skip
def test_nonsense_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        ClosesOn.parse(text)


@pytest.mark.parametrize(
    ("code", "valid"),
    [
        ("GPULost", True),
        ("A" * 63, True),
        ("A" * 64, False),
        ("", False),
        ("GPU-Lost", False),
        ("ä", False),
    ],
)
def test_reason_codes_fit_labels_and_taints(code: str, valid: bool) -> None:
    assert is_reason_code(code) == valid
    if not valid:
        with pytest.raises(ValueError, match="letters and digits"):
            Reason(
                reason=code,
                klass=ReasonClass.RECORD,
                severity=Severity.INFO,
                level=Level.REPORT,
                action=Action.NONE,
                closes_on=closes_on_state("x", 1, 1),
            )


EVERY = [*REASONS.values(), *RECOVERY_REASONS.values()]


@pytest.mark.parametrize("row", EVERY, ids=lambda row: row.reason)
def test_a_row_contradicts_nothing(row: Reason) -> None:
    if row.closes_on.kind is ClosesKind.SILENCE:
        assert row.severity is Severity.INFO
    if row.severity is Severity.FATAL:
        assert row.level is Level.DRAIN
    if row.level is Level.DRAIN:
        assert row.severity is Severity.FATAL
        assert row.klass in (ReasonClass.DECISIVE, ReasonClass.LATCH)
    assert row.source


def test_a_state_that_closes_is_a_signal_or_a_check() -> None:
    rows = [*REASONS.values(), *RECOVERY_REASONS.values()]
    named = {row.closes_on.signal for row in rows if row.closes_on.kind is ClosesKind.STATE}
    looks = {"agent", "dcgm", "driver", "host", "nic", "source"}
    assert named - set(Signal) == looks


PCI = "0000:0a:00"


@pytest.mark.parametrize(
    ("reason", "named"),
    [
        ("SXidFatal", f"NVSwitch at {PCI}"),
        ("SXidUnknown", f"NVSwitch at {PCI}"),
        ("NicPower", f"network adapter at {PCI}"),
        ("PcieContainment", f"PCI device at {PCI}"),
        ("GPULost", f"GPU at {PCI}"),
        ("ReasonOfANewerAgent", f"GPU at {PCI}"),
    ],
)
def test_an_address_alone_is_named_by_the_reasons_device(reason: str, named: str) -> None:
    assert device_at(reason, PCI) == named
    assert reason in REASONS or reason == "ReasonOfANewerAgent"
    assert places(reason, [PCI], []) == (named,)


def test_a_known_gpu_is_named_by_address_and_uuid() -> None:
    assert places("GPULost", [PCI], ["GPU-a"]) == (PCI, "GPU-a")
