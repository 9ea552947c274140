"""The reason of each Xid: documented columns, recovery actions, unknown numbers."""

import pytest

from rules.catalog.reason import (
    Action,
    ClosesKind,
    Level,
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

DECISIVE = {46, 62, 64, 79, 95, 110, 119, 120, 136, 140, 143, 151, 158}
"""Xids that drain a node with one line."""
IN_CONTEXT = {48, 109, 155, 156, 160}
"""Xids that drain a node if other lines or the recovery action confirm them."""


def test_only_the_documented_xids_may_cost_a_node_by_a_line_alone() -> None:
    rows = {xid: reason_for_xid(xid) for xid in range(400)}
    acting = {xid for xid, row in rows.items() if row.level is not Level.REPORT}
    assert acting == DECISIVE | IN_CONTEXT
    assert {xid for xid, row in rows.items() if row.klass is ReasonClass.DECISIVE} == DECISIVE


def test_every_code_fits_a_taint_and_is_unique() -> None:
    codes = [reason_for_xid(xid).reason for xid in catalog()]
    assert all(is_reason_code(code) for code in codes)
    assert len(set(codes)) == len(codes) == 178
    assert reason_for_xid(79).reason == "Xid79GPUFallenOffBus"


def test_newer_xids_are_reported_and_cost_no_node() -> None:
    """185 is documented for R620; no public source names 178 to 184."""
    assert reason_for_xid(185).reason == "Xid185MemorySparing"
    for xid in range(178, 200):
        row = reason_for_xid(xid)
        assert (row.severity, row.level, row.action) == ("Info", "Report", "None")
        assert row.reason == f"Xid{xid}Unknown" or xid == 185


def test_a_latch_of_a_fatal_or_degraded_xid_never_closes_by_silence() -> None:
    for xid in catalog():
        reason = reason_for_xid(xid)
        silent = reason.closes_on.kind is ClosesKind.SILENCE
        assert silent == (reason.severity is Severity.INFO), reason


def test_a_remap_that_failed_asks_for_another_node() -> None:
    for xid in (63, 64):
        assert reason_for_xid(xid, remap_failed=True).action is Action.REPLACE_NODE


def test_before_r570_a_109_has_no_recovery_action() -> None:
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
                     "SXidUnknown", Action.INVESTIGATE, id="SXid without fatality"),
        pytest.param("nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 20034, Non-fatal", "SXidNonFatal",
                     Action.NONE, id="the line beats the catalog"),
        pytest.param("NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed "
                     "from 0x0 (None) "
                     "to 0x1 (PF FLR)", "RecoveryActionResetGPU", Action.RESET_GPU, id="154"),
        pytest.param("NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed "
                     "from 0x0 (None) "
                     "to 0x6 (any label)", "RecoveryActionBusReset", Action.RESTART_NODE,
                     id="154, bus reset"),
        pytest.param("NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed "
                     "from 0x0 (None) "
                     "to 0x7 (any label)", "RecoveryActionSystemReboot", Action.RESTART_NODE,
                     id="154, system reboot"),
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


def test_nvidias_action_buckets() -> None:
    assert nvidia_buckets(79) == ("RESTART_BM", "CONTACT_SUPPORT")
    assert nvidia_buckets(149, (0x004505C6, 0)) == ("RESET_GPU", "INVESTIGATE_LINK_SI")
    assert nvidia_buckets(4242) is None
