"""`decode` on logs as people keep them, and its exit status."""

from __future__ import annotations

import gzip
import json
import lzma
from pathlib import Path

import pytest

from agent.cli import main

LOST = "NVRM: Xid (PCI:0000:9b:00): 79, pid=42, name=a, GPU has fallen off the bus."
APP = "NVRM: Xid (PCI:0000:9b:00): 13, pid=7, name=b, Graphics Exception"
US = 1_740_327_858_123_456
STAMP = "2025-02-23T16:24:18Z"
DMESG = f"[    1.0] usb 1-1: new device\n[    2.5] {LOST}\n"


def entry(message: object, transport: str = "kernel") -> str:
    return json.dumps(
        {"__REALTIME_TIMESTAMP": str(US), "_TRANSPORT": transport, "MESSAGE": message},
        separators=(",", ":"),
    )


LOGS = {
    "gzip": gzip.compress(DMESG.encode()),
    "two gzip members": gzip.compress(b"[    1.0] usb 1-1: x\n") + gzip.compress(DMESG.encode()),
    "xz": lzma.compress(DMESG.encode()),
    "journal json": f"{entry('usb 1-1: x')}\n{entry(LOST)}\n".encode(),
    "journal json, list of bytes": f"{entry('usb')}\n{entry(list(LOST.encode()))}\n".encode(),
    "journal json-seq": f"\x1e{entry('usb')}\n\x1e{entry(LOST)}\n".encode(),
    "journal short-iso": f"2025-02-23T17:24:18+0100 gpu-17 kernel: {LOST}\n".encode(),
    "CRI": f"2025-02-23T16:24:18.123456789Z stdout F {LOST}\n".encode(),
    "CRI around dmesg": f"2025-02-23T16:24:18.1Z stderr F [  2.5] {LOST}\n".encode(),
    "docker": json.dumps({"log": DMESG.splitlines()[1] + "\n", "stream": "stdout"}).encode(),
}


def run(
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
    status, (found,), err = run(capfdbinary, tmp_path, LOGS[name])
    assert (status, err) == (0, "")
    assert (found["xid"], found["pci"], found["user"]) == (79, "0000:9b:00", False)
    dmesg = name in ("CRI around dmesg", "docker", "xz") or "zip" in name
    assert found["time"] == ("+2.5" if dmesg else STAMP)


def test_what_user_space_wrote_to_the_journal_is_told(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    log = f"{entry(LOST, 'syslog')}\n".encode()
    status, (found,), _ = run(capfdbinary, tmp_path, log, "--fail-on", "info")
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
def test_a_format_that_is_not_understood_says_so(
    log: bytes, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    status, found, err = run(capfdbinary, tmp_path, log)
    assert (status, found) == (3, [])
    assert "lines, 0 understood; " in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "log",
    [b"", b"[    1.0] usb 1-1: new device\n", b"usb 1-1: new device\n", b"\n\n", LOGS["CRI"][:46]],
)
def test_a_log_that_says_nothing_is_no_error(
    log: bytes, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert run(capfdbinary, tmp_path, log) == (0, [], "")


@pytest.mark.parametrize("name", ["gzip", "xz"])
def test_damaged_compressed_data_is_one_sentence(
    name: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    whole = LOGS[name]
    for damaged in (whole[:-9], whole[:12] + b"\xff" * 20 + whole[32:]):
        status, _, err = run(capfdbinary, tmp_path, damaged)
        assert status == 64
        assert "compressed data" in err
        assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "severity", "expected"),
    [(LOST, "fatal", 2), (LOST, "info", 2), (APP, "fatal", 0), (APP, "info", 2)],
)
def test_fail_on_ends_with_2_from_that_severity_on(
    text: str,
    severity: str,
    expected: int,
    tmp_path: Path,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    log = f"[    2.5] {text}\n".encode()
    status, found, _ = run(capfdbinary, tmp_path, log, "--fail-on", severity)
    assert (status, len(found)) == (expected, 1)


def test_people_see_the_time_of_a_line(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    (tmp_path / "log").write_bytes(LOGS["journal short-iso"])
    main(["decode", str(tmp_path / "log")])
    assert capfdbinary.readouterr().out.decode().startswith(f"1: {STAMP} 0000:9b:00 Fatal")
