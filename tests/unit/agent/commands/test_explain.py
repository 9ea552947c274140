"""`gpuward-agent explain`: Xids, SXids and reasons, and usage errors."""

import pytest

from agent.cli import main
from agent.commands.explain import explanation
from rules.catalog.explanations import PEERS, peer_sentence
from rules.catalog.reasons import sxid_catalog
from rules.catalog.xid import RECOVERY_ACTION_XID, catalog, reason_for_xid
from tests.support.run.commands import exit_status


def test_a_fatal_xid_is_explained_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "79", "--driver", "580.82.07"]) == 0
    text = capsys.readouterr().out
    for part in (
        "Xid79GPUFallenOffBus",
        "ROBUST_CHANNEL_GPU_HAS_FALLEN_OFF_THE_BUS",
        "Decisive: severity Fatal, level Drain, repair RestartNode.",
        "Cleared by     Reboot.",
        "a lost GPU needs a reboot",
        "restart the machine",
        "auto-repair replaces the node",
    ):
        assert part in text


@pytest.mark.parametrize("xid", sorted(catalog()))
def test_every_xid_has_an_assessment_and_the_peers_answers(xid: int) -> None:
    lines = explanation(xid)
    reason = reason_for_xid(xid)
    assert all(len(line) <= 80 for line in "\n".join(lines[1:]).splitlines())
    assert lines[0].startswith(f"Xid {xid}: {reason.reason}")
    if xid != RECOVERY_ACTION_XID:
        expected = f"severity {reason.severity}, level {reason.level}, repair {reason.action}."
        assert expected in " ".join(" ".join(lines).split())
    for key, name in PEERS:
        row = catalog()[xid]
        assert f"{name:<14} {peer_sentence(row, key)}" in lines
        assert peer_sentence(row, key) != getattr(row, key) + ".", "a code without text"


def test_154_is_explained_by_its_number() -> None:
    text = " ".join("\n".join(explanation(154)).split())
    assert "0x1 Decisive: severity Fatal, level Drain, repair ResetGPU." in text
    assert "0x5 Latch: severity Degraded, level Report, repair RecoverIMEXDomain." in text
    assert "else Latch: severity Degraded, level Report, repair Investigate." in text
    newer = "\n".join(explanation(154, branch=580))
    assert "0x5  Decisive: severity Fatal, level Drain, repair RestartNode." in newer


def test_an_unknown_number_never_acts() -> None:
    text = "\n".join(explanation(4242))
    assert "not in catalog" in text
    assert "severity Info, level Report, repair None" in text


def test_the_driver_answers_from_its_branch_on() -> None:
    assert any("replaces this" in line for line in explanation(109, branch=580))
    assert any(
        "reports no recovery action before R570" in line for line in explanation(109, branch=550)
    )


@pytest.mark.parametrize("subject", ["Xid79", "79", "xid 79", "XID79"])
def test_an_xid_is_accepted_in_several_forms(
    subject: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", subject]) == 0
    assert capsys.readouterr().out.startswith("Xid 79:")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["seventy"], "seventy"),
        (["79", "--driver", "x"], "x"),
        (["123456"], "123456"),
        (["RowRemapFailur"], "did you mean RowRemapFailure"),
    ],
)
def test_a_usage_error_is_one_sentence_and_64(
    arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_status(main, ("explain", *arguments)) == 64
    error = capsys.readouterr().err
    assert named in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(("xid", "expected"), [(13, True), (31, True), (43, False)])
def test_repeats_of_an_application_error_are_explained(xid: int, expected: bool) -> None:
    text = " ".join("\n".join(explanation(xid)).split())
    assert ("after 3 bursts within 24 h that no other GPU of the node shows" in text) is expected
    assert ("at one place of the chip. kubectl" in text) is (xid == 13)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param(["RowRemapFailure"], "replace the GPU or the node", id="reason"),
        pytest.param(["rowremapfailure"], "RowRemapFailure", id="in any case"),
        pytest.param(["ThermalSlowdown"], "3 of the last 5 readings", id="what ends it"),
        pytest.param(["Xid79GPUFallenOffBus"], "Xid 79:", id="a reason named for its Xid"),
        pytest.param(["sxid", "20009"], "SXid 20009: DLPL_RX_SHORT_ERROR_RATE", id="SXid"),
        pytest.param(["SXid99999"], "not in the catalog", id="unknown SXid"),
    ],
)
def test_reasons_and_sxids_are_explained(arguments, expected, capsys) -> None:
    assert main(["explain", *arguments]) == 0
    assert expected in capsys.readouterr().out


def test_an_sxid_number_without_prefix_is_hinted() -> None:
    number = next(one for one in sxid_catalog() if one not in catalog())
    assert f"explain sxid {number}" in explanation(number)[0]
