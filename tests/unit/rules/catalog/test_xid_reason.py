"""What each Xid means: the documented columns, the driver's answer, and harmless unknowns."""

from __future__ import annotations

from typing import Any

import pytest

from rules.catalog.reason import (
    Action,
    ClosesKind,
    Level,
    Reason,
    ReasonClass,
    Severity,
    is_reason_code,
)
from rules.catalog.signals import driver_branch
from rules.catalog.xid import (
    catalog,
    nvidia_buckets,
    reason_for_kernel_line,
    reason_for_xid,
)
from rules.kernel_log.parse import parse


def columns(reason: Reason) -> tuple[str, str, str, str, str]:
    return (
        str(reason.klass),
        str(reason.severity),
        str(reason.level),
        str(reason.action),
        str(reason.closes_on),
    )


RESET = ("Decisive", "Fatal", "Drain", "ResetGPU", "Reset")
REBOOT = ("Decisive", "Fatal", "Drain", "RestartNode", "Reboot")
PROGRAM = ("Software", "Info", "Report", "RestartApp", "Silence(3m)")
NOTHING = ("Software", "Info", "Report", "None", "Silence(3m)")
RECORD = ("Record", "Info", "Report", "None", "Silence(3m)")
WATCH = ("NeedsContext", "Degraded", "Report", "Investigate", "Human")
MEMBER = ("NeedsContext", "Info", "Report", "None", "Silence(3m)")

EXPECTED = {
    **dict.fromkeys((46, 62, 64, 95, 110, 119, 120, 136, 140, 143, 158), RESET),
    **dict.fromkeys((79, 151), REBOOT),
    **dict.fromkeys((13, 31, 32, 39, 68, 69, 142), PROGRAM),
    **dict.fromkeys((43, 44, 45, 92, 93, 121, 137, 157, 161), NOTHING),
    **dict.fromkeys((167, 168, 169, 173, 175), WATCH),
    **dict.fromkeys((162, 163, 164, 165, 166, 170, 174, 176), RECORD),
    **dict.fromkeys((63, 172, 177), MEMBER),
    48: ("NeedsContext", "Fatal", "Drain", "ResetGPU", "Reset"),
    109: ("NeedsContext", "Fatal", "Drain", "ResetGPU", "Reset"),
    155: ("NeedsContext", "Fatal", "Drain", "ResetGPU", "Reset"),
    156: ("NeedsContext", "Fatal", "Drain", "ResetGPU", "Reset"),
    94: ("NeedsContext", "Info", "Report", "RestartApp", "Silence(3m)"),
    74: ("NeedsContext", "Degraded", "Report", "Investigate", "Reset"),
    **dict.fromkeys(
        range(144, 151), ("NeedsContext", "Degraded", "Report", "Investigate", "Reset")
    ),
    54: ("NeedsContext", "Degraded", "Report", "CheckMechanicals", "Human"),
    78: ("NeedsContext", "Degraded", "Report", "UpdateFirmware", "Human"),
    159: WATCH,
    154: RECORD,
    160: ("NeedsContext", "Degraded", "Cordon", "RestartNode", "Reboot"),
    171: ("NeedsContext", "Degraded", "Report", "ResetGPU", "Reset"),
}


@pytest.mark.parametrize("xid", sorted(EXPECTED))
def test_the_columns_of_an_xid(xid: int) -> None:
    assert columns(reason_for_xid(xid)) == EXPECTED[xid]


def test_only_the_documented_xids_may_cost_a_node_by_a_line_alone() -> None:
    acting = {xid for xid in range(1, 400) if reason_for_xid(xid).level is not Level.REPORT}
    assert acting == {48, 79, 109, 151, 155, 156, 160} | {
        xid for xid, expected in EXPECTED.items() if expected == RESET
    }
    decisive = {xid for xid in catalog() if reason_for_xid(xid).klass is ReasonClass.DECISIVE}
    assert decisive == acting - {48, 109, 155, 156, 160}


@pytest.mark.parametrize("xid", [0, 1, 29, 61, 178, 500, 99999])
def test_an_unknown_or_unused_number_reports_and_never_acts(xid: int) -> None:
    reason = reason_for_xid(xid)
    assert columns(reason) == RECORD
    assert reason.reason == f"Xid{xid}Unknown"


def test_every_code_fits_a_taint_and_is_unique() -> None:
    codes = [reason_for_xid(xid).reason for xid in catalog()]
    assert all(is_reason_code(code) for code in codes)
    assert len(set(codes)) == len(codes) == 177
    assert reason_for_xid(79).reason == "Xid79GPUFallenOffBus"


def test_a_latch_of_a_fatal_or_degraded_xid_never_closes_by_silence() -> None:
    for xid in catalog():
        reason = reason_for_xid(xid)
        silent = reason.closes_on.kind is ClosesKind.SILENCE
        assert silent == (reason.severity is Severity.INFO), reason


@pytest.mark.parametrize(
    ("xid", "extra", "expected"),
    [
        pytest.param(48, {"contained": True}, ("Info", "Report", "RestartApp"), id="contained"),
        pytest.param(
            64, {"remap_failed": True}, ("Fatal", "Drain", "ReplaceNode"), id="64 failed"
        ),
        pytest.param(
            63, {"remap_failed": True}, ("Fatal", "Drain", "ReplaceNode"), id="63 failed"
        ),
        pytest.param(154, {"recovery_to": 2}, ("Fatal", "Drain", "RestartNode"), id="154 to 2"),
        pytest.param(154, {"recovery_to": 0}, ("Info", "Report", "None"), id="154 to 0"),
        pytest.param(
            154, {"recovery_to": 99}, ("Degraded", "Report", "Investigate"), id="154 to 99"
        ),
    ],
)
def test_context_changes_the_columns(
    xid: int, extra: dict[str, Any], expected: tuple[str, str, str]
) -> None:
    assert columns(reason_for_xid(xid, **extra))[1:4] == expected


def test_before_r570_the_driver_says_nothing_of_a_109() -> None:
    assert reason_for_xid(109, driver=565).klass is ReasonClass.DECISIVE
    assert reason_for_xid(109, driver=570).klass is ReasonClass.NEEDS_CONTEXT
    assert reason_for_xid(109).klass is ReasonClass.NEEDS_CONTEXT


@pytest.mark.parametrize(
    ("raw", "code", "action"),
    [
        pytest.param("3,1,1,-;NVRM: GPU 0000:18:00.0: GPU has fallen off the bus.", "GPULost",
                     Action.RESTART_NODE, id="lost"),
        pytest.param("nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 30 x",
                     "SXidFatal",
                     Action.RESTART_NODE, id="SXid fatal"),
        pytest.param("nvidia-nvswitch0: SXid (PCI:0004:00:00.0): 26008, SOE Watchdog error",
                     "SXidUnknown", Action.INVESTIGATE, id="SXid without a word"),
        pytest.param("nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 20034, Non-fatal", "SXidNonFatal",
                     Action.NONE, id="the word beats the catalog"),
        pytest.param("NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed "
                     "from 0x0 (None) "
                     "to 0x1 (PF FLR)", "RecoveryActionResetGPU", Action.RESET_GPU, id="154"),
        pytest.param("pcieport 0000:00:1c.0: AER: Corrected error received: 0000:00:1c.0",
                     "PcieAerCorrected", Action.NONE, id="AER corrected"),
    ],
)  # fmt: skip
def test_the_reason_of_a_line(raw: str, code: str, action: Action) -> None:
    line = parse(raw.encode())
    assert line is not None
    reason = reason_for_kernel_line(line)
    assert reason is not None
    assert (reason.reason, reason.action) == (code, action)


def test_records_have_no_reason() -> None:
    for raw in (
        "NVRM: GPU at PCI:0000:01:00: GPU-aeab3757-56a6-7e30-3f7c-1f322454bde2",
        "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  595.91.07",
        "nvidia-nvswitch0: SXid (PCI:0000:a9:00.0): 11111, Data {0x50610002, 0x10100030}",
    ):
        line = parse(raw.encode())
        assert line is not None
        assert reason_for_kernel_line(line) is None


@pytest.mark.parametrize(
    ("text", "branch"),
    [
        ("580.82.07", 580),
        ("580", 580),
        ("R575", 575),
        ("", None),
        ("x", None),
        (None, None),
        ("9" * 9, None),
        ("\u0664\u0665.1", None),
        ("470", 470),
    ],
)
def test_driver_branch(text: str | None, branch: int | None) -> None:
    assert driver_branch(text) == branch


def test_nvidias_own_words() -> None:
    assert nvidia_buckets(79) == ("RESTART_BM", "CONTACT_SUPPORT")
    assert nvidia_buckets(149, (0x004505C6, 0)) == ("RESET_GPU", "INVESTIGATE_LINK_SI")
    assert nvidia_buckets(4242) is None
