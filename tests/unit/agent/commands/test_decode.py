"""`gpuward-agent decode` on logs in all supported formats."""

import gzip
import json
import lzma
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
        ("NVRM: Xid (PCI:0000:3b:00): 109, pid=1, name=x, Ch 00000008",
         "the driver's recovery action"),
        ("NVRM: GPU6 _kgspIsHeartbeatTimedOut: Heartbeat timed out", "an Xid 119 or 120"),
    ],
)  # fmt: skip
def test_a_line_that_needs_more_evidence_is_shown_with_that_evidence(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], line: str, waits: str
) -> None:
    log = tmp_path / "log"
    log.write_text(f"{line}\n")
    (found,) = decoded(capfdbinary, str(log))
    assert (found["severity"], found["action"]) == ("Info", "None")
    assert waits in found["needs"]
    assert main(["decode", "--fail-on", "degraded", str(log)]) == 0
    output = capfdbinary.readouterr().out.decode()
    assert f"-> Report, None [not confirmed by this line alone; needs {waits}" in output


def test_an_xid_without_a_recovery_action_is_assessed_by_itself(
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


def test_the_text_output_has_one_line_for_each_finding(
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


def test_a_closed_pipe_ends_quietly() -> None:
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


def test_findings_that_cannot_be_written_are_an_error(log: Path) -> None:
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


FALLEN = "NVRM: Xid (PCI:0000:9b:00): 79, pid=42, name=a, GPU has fallen off the bus."
APP = "NVRM: Xid (PCI:0000:9b:00): 13, pid=7, name=b, Graphics Exception"
US = 1_740_327_858_123_456
STAMP = "2025-02-23T16:24:18Z"
DMESG = f"[    1.0] usb 1-1: new device\n[    2.5] {FALLEN}\n"


def entry(message: object, transport: str = "kernel") -> str:
    return json.dumps(
        {"__REALTIME_TIMESTAMP": str(US), "_TRANSPORT": transport, "MESSAGE": message},
        separators=(",", ":"),
    )


LOGS = {
    "gzip": gzip.compress(DMESG.encode()),
    "two gzip members": gzip.compress(b"[    1.0] usb 1-1: x\n") + gzip.compress(DMESG.encode()),
    "xz": lzma.compress(DMESG.encode()),
    "journal json": f"{entry('usb 1-1: x')}\n{entry(FALLEN)}\n".encode(),
    "journal json, list of bytes": f"{entry('usb')}\n{entry(list(FALLEN.encode()))}\n".encode(),
    "journal json-seq": f"\x1e{entry('usb')}\n\x1e{entry(FALLEN)}\n".encode(),
    "journal short-iso": f"2025-02-23T17:24:18+0100 gpu-17 kernel: {FALLEN}\n".encode(),
    "CRI": f"2025-02-23T16:24:18.123456789Z stdout F {FALLEN}\n".encode(),
    "CRI around dmesg": f"2025-02-23T16:24:18.1Z stderr F [  2.5] {FALLEN}\n".encode(),
    "docker": json.dumps({"log": DMESG.splitlines()[1] + "\n", "stream": "stdout"}).encode(),
}


def run_on(
    capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path, log: bytes, *flags: str
) -> tuple[int, list[dict[str, object]], str]:
    path = tmp_path / "log"
    path.write_bytes(log)
    status = main(["decode", "--json", *flags, str(path)])
    out, err = capfdbinary.readouterr()
    return status, [json.loads(row) for row in out.splitlines()], err.decode()


@pytest.mark.parametrize("name", LOGS)
def test_the_formats_of_other_people_s_logs_are_read(
    name: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    status, (found,), err = run_on(capfdbinary, tmp_path, LOGS[name])
    assert (status, err) == (0, "")
    assert (found["xid"], found["pci"], found["user"]) == (79, "0000:9b:00", False)
    dmesg = name in ("CRI around dmesg", "docker", "xz") or "zip" in name
    assert found["time"] == ("+2.5" if dmesg else STAMP)


def test_lines_of_user_space_in_the_journal_are_labelled(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    log = f"{entry(FALLEN, 'syslog')}\n".encode()
    status, (found,), _ = run_on(capfdbinary, tmp_path, log, "--fail-on", "info")
    assert (status, found["user"]) == (0, True)


@pytest.mark.parametrize(
    "log",
    [
        pytest.param(b"a;b;c\n1;2;3\n", id="table"),
        pytest.param(b'{"msg": "hello"}\n{"msg": "x"}\n', id="another JSON"),
        pytest.param(bytes(range(1, 256)) * 3, id="bytes"),
        pytest.param(gzip.compress(b"a;b;c\n1;2;3\n"), id="table, compressed"),
    ],
)
def test_an_unknown_format_is_reported(
    log: bytes, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    status, found, err = run_on(capfdbinary, tmp_path, log)
    assert (status, found) == (3, [])
    assert "lines read, 0 recognised: " in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "log",
    [b"", b"[    1.0] usb 1-1: new device\n", b"usb 1-1: new device\n", b"\n\n", LOGS["CRI"][:46]],
)
def test_a_log_without_findings_is_not_an_error(
    log: bytes, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert run_on(capfdbinary, tmp_path, log) == (0, [], "")


@pytest.mark.parametrize("name", ["gzip", "xz"])
def test_damaged_compressed_data_is_one_sentence(
    name: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    log = LOGS[name]
    for damaged in (log[:-9], log[:12] + b"\xff" * 20 + log[32:]):
        status, _, err = run_on(capfdbinary, tmp_path, damaged)
        assert status == 64
        assert "compressed data" in err
        assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "severity", "expected"),
    [(FALLEN, "fatal", 2), (FALLEN, "info", 2), (APP, "fatal", 0), (APP, "info", 2)],
)
def test_fail_on_ends_with_2_from_that_severity_on(
    text: str,
    severity: str,
    expected: int,
    tmp_path: Path,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    log = f"[    2.5] {text}\n".encode()
    status, found, _ = run_on(capfdbinary, tmp_path, log, "--fail-on", severity)
    assert (status, len(found)) == (expected, 1)


def test_the_text_output_has_the_time_of_a_line(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    (tmp_path / "log").write_bytes(LOGS["journal short-iso"])
    main(["decode", str(tmp_path / "log")])
    assert capfdbinary.readouterr().out.decode().startswith(f"1: {STAMP} 0000:9b:00 Fatal")
