"""`gpuward-agent decode` as a person or script uses it: real process, real pipes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from agent.cli import main
from agent.commands.decode import DecodedLine, json_reader
from rules.kernel_log.parse import parse
from rules.kernel_log.record import KIND_MEANINGS, LineKind
from tests.support.run.commands import exit_status

ROOT = Path(__file__).resolve().parents[4]
LINES = ROOT / "tests" / "data" / "kernel_lines.jsonl"
LOST = (
    "NVRM: Xid (PCI:0000:9B:00 GPU-I:01 GPU-CI:02): 79, pid=42, name=a, GPU has fallen off the "
    "bus."
)
KEYS = [
    "line", "time", "kind", "xid", "sxid", "sxid_fatal", "pci", "gpu_uuid", "mig_gi", "mig_ci",
    "pid",
    "process", "link", "unit", "caused_by", "recovery_from", "recovery_to", "user", "text",
    "severity", "reason", "action", "needs", "nvidia",
]  # fmt: skip


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "kern.log"
    path.write_text(f"ordinary\n\n{LOST}\nordinary\n<12>{LOST}\n")
    return path


def decoded(capfdbinary: pytest.CaptureFixture[bytes], *arguments: str) -> list[dict[str, Any]]:
    assert main(["decode", "--json", *arguments]) == 0
    return [json.loads(row) for row in capfdbinary.readouterr().out.splitlines()]


def test_every_object_has_every_key(log: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    first, second = decoded(capfdbinary, str(log))
    assert list(first) == list(second) == KEYS
    assert first == {
        "line": 3,
        "time": None,
        "kind": "xid",
        "xid": 79,
        "sxid": None,
        "sxid_fatal": None,
        "pci": "0000:9b:00",
        "gpu_uuid": None,
        "mig_gi": 1,
        "mig_ci": 2,
        "pid": 42,
        "process": "a",
        "link": None,
        "unit": None,
        "caused_by": None,
        "recovery_from": None,
        "recovery_to": None,
        "user": False,
        "text": LOST,
        "severity": "Fatal",
        "reason": "Xid79GPUFallenOffBus",
        "action": "RestartNode",
        "needs": None,
        "nvidia": {"immediate": "RESTART_BM", "investigatory": "CONTACT_SUPPORT"},
    }
    assert (second["line"], second["user"]) == (5, True)


def test_the_driver_version_changes_what_a_line_means(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    log = tmp_path / "log"
    log.write_text(
        "NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x5 (x)\n"
    )
    assert decoded(capfdbinary, str(log))[0]["action"] == "RecoverIMEXDomain"
    assert decoded(capfdbinary, "--driver", "590.1", str(log))[0]["action"] == "RestartNode"


@pytest.mark.parametrize(
    ("line", "waits"),
    [
        ("vfio-pci 0000:3b:00.0: Unable to change power state from D3cold to D0",
         "the address is a GPU that NVML does not see either"),
        ("pcieport 0000:00:1c.0: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Any, (Any)",
         "the address is a GPU or a bridge above one"),
        ("NVRM: Xid (PCI:0000:3b:00): 109, pid=1, name=x, Ch 00000008", "the driver's answer"),
        ("NVRM: GPU6 _kgspIsHeartbeatTimedOut: Heartbeat timed out", "an Xid 119 or 120"),
    ],
)  # fmt: skip
def test_a_line_alone_is_told_as_what_it_proves_and_what_it_needs(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], line: str, waits: str
) -> None:
    log = tmp_path / "log"
    log.write_text(f"{line}\n")
    (found,) = decoded(capfdbinary, str(log))
    assert (found["severity"], found["action"]) == ("Info", "None")
    assert waits in found["needs"]
    assert main(["decode", "--fail-on", "degraded", str(log)]) == 0
    said = capfdbinary.readouterr().out.decode()
    assert f"-> Report, None [not proven by this line alone; needs {waits}" in said


def test_an_xid_that_its_driver_never_answers_is_told_in_full(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    log = tmp_path / "log"
    log.write_text("NVRM: Xid (PCI:0000:3b:00): 109, pid=1, name=x, Ch 00000008\n")
    (found,) = decoded(capfdbinary, "--driver", "550.90", str(log))
    assert (found["severity"], found["needs"]) == ("Fatal", None)


def test_remembered_messages_change_nothing() -> None:
    raw = [json.loads(row)["line"].encode() for row in LINES.read_text("utf-8").splitlines()]
    one = json_reader(None, 0.0)
    twice = [one(line, 1) for line in raw + raw]
    fresh = [json_reader(None, 0.0)(line, 1) for line in raw]
    assert twice == fresh + fresh
    assert [tail is not None for tail in fresh] == [parse(line) is not None for line in raw]
    shared = DecodedLine.__struct_fields__
    assert "line" not in shared
    assert list(shared) == KEYS[2:]


def test_people_get_one_line_for_each_finding(
    log: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert main(["decode", str(log)]) == 0
    first, second = capfdbinary.readouterr().out.decode().splitlines()
    assert first == f"3: 0000:9b:00 GI 1 Fatal Xid79GPUFallenOffBus -> Drain, RestartNode: {LOST}"
    assert "[written by user space]" in second


def test_a_consequence_names_its_cause(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    log = tmp_path / "log"
    log.write_text("NVRM: Xid (PCI:0000:01:00): 45, Ch 1 caused by previous Xid 149\n")
    assert main(["decode", str(log)]) == 0
    assert b"[caused by Xid 149]" in capfdbinary.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        pytest.param(["/nonexistent/kern.log"], "/nonexistent/kern.log", id="no such file"),
        pytest.param(["/"], "cannot read /", id="a folder"),
        pytest.param(["--driver", "newest", os.devnull], "newest", id="driver"),
        pytest.param(["--jsn"], "--help", id="option"),
    ],
)
def test_wrong_use_is_one_sentence_and_64(
    arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_status(main, ("decode", *arguments)) == 64
    error = capsys.readouterr().err
    assert named in error
    assert error.count("\n") == 1


def start(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "agent.cli", "decode", *arguments],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_a_live_pipe_answers_at_once_and_ctrl_c_ends_quietly() -> None:
    with start("--json") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(LOST.encode() + b"\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["xid"] == 79
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=10)
    assert (process.returncode, error) == (130, b"")


def test_a_reader_that_leaves_ends_it_quietly() -> None:
    with start() as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(LOST.encode() + b"\n")
        process.stdin.flush()
        process.stdout.readline()
        process.stdout.close()
        process.stdin.write((LOST.encode() + b"\n") * 1000)
        process.stdin.close()
        process.stdin = None
        error = process.stderr.read()
        deadline = time.monotonic() + 10
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
    assert (process.returncode, error) == (0, b"")


def test_findings_that_cannot_be_written_are_said(log: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "agent.cli", "decode", str(log)],
            cwd=ROOT,
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert ended.returncode == 1
    assert ended.stderr.decode().startswith("gpuward-agent decode: cannot write the findings: ")


def test_every_kind_is_documented(capsys: pytest.CaptureFixture[str]) -> None:
    assert set(KIND_MEANINGS) == set(LineKind)
    with pytest.raises(SystemExit):
        main(["decode", "--help"])
    text = capsys.readouterr().out
    assert all(f"  {kind} " in text for kind in LineKind)
