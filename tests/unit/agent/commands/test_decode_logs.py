"""`decode` on logs as people keep them, and the choices of what is shown."""

from __future__ import annotations

import gzip
import json
import lzma
import time
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


def export(message: str, *, binary: bool = False) -> bytes:
    body = message.encode()
    field = b"MESSAGE\n" + len(body).to_bytes(8, "little") + body if binary else b"MESSAGE=" + body
    return b"__CURSOR=s=1\n__REALTIME_TIMESTAMP=%d\n_TRANSPORT=kernel\n%s\n\n" % (US, field)


LOGS = {
    "gzip": gzip.compress(DMESG.encode()),
    "two gzip members": gzip.compress(b"[    1.0] usb 1-1: x\n") + gzip.compress(DMESG.encode()),
    "xz": lzma.compress(DMESG.encode()),
    "UTF-16": DMESG.encode("utf-16"),
    "UTF-16 without a mark": DMESG.encode("utf-16-le"),
    "UTF-16, big": b"\xfe\xff" + DMESG.encode("utf-16-be"),
    "gzip of UTF-16": gzip.compress(DMESG.encode("utf-16")),
    "journal json": f"{entry('usb 1-1: x')}\n{entry(LOST)}\n".encode(),
    "journal json, list of bytes": f"{entry('usb')}\n{entry(list(LOST.encode()))}\n".encode(),
    "journal json-seq": f"\x1e{entry('usb')}\n\x1e{entry(LOST)}\n".encode(),
    "journal export": export("usb 1-1: x") + export(LOST),
    "journal export, binary": export("usb 1-1: x") + export(LOST, binary=True),
    "journal export without an end": export(LOST)[:-1],
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
    dmesg = (
        name in ("CRI around dmesg", "docker") or "zip" in name or "UTF" in name or name == "xz"
    )
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


NOW = time.time()
MIXED = "".join(
    f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(NOW - hours * 3600))}Z gpu-1 kernel: "
    f"{text}\n"
    for hours, text in ((30, LOST), (20, APP), (2, APP), (1, LOST))
).encode()


@pytest.mark.parametrize(
    ("flags", "lines", "status"),
    [
        pytest.param((), [1, 2, 3, 4], 0, id="all"),
        pytest.param(("--since", "24h"), [2, 3, 4], 0, id="since"),
        pytest.param(("--since", "2020-01-01"), [1, 2, 3, 4], 0, id="since a day"),
        pytest.param(("--min-severity", "fatal"), [1, 4], 0, id="min severity"),
        pytest.param(("--fail-on", "fatal"), [1, 2, 3, 4], 2, id="fail on"),
        pytest.param(("--fail-on", "fatal", "--since", "90s"), [], 0, id="fail on, none so new"),
    ],
)
def test_what_is_shown_can_be_chosen(
    flags: tuple[str, ...],
    lines: list[int],
    status: int,
    tmp_path: Path,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    found_status, found, _ = run(capfdbinary, tmp_path, MIXED, *flags)
    assert (found_status, [each["line"] for each in found]) == (status, lines)


def test_a_summary_counts_by_device_and_reason(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    _, found, _ = run(capfdbinary, tmp_path, MIXED, "--summary")
    assert [(g["severity"], g["reason"], g["count"]) for g in found] == [
        ("Fatal", "Xid79GPUFallenOffBus", 2),
        ("Info", "Xid13GraphicsException", 2),
    ]
    main(["decode", "--summary", str(tmp_path / "log")])
    first, _ = capfdbinary.readouterr().out.decode().splitlines()
    assert first.startswith("2 x 0000:9b:00 Fatal Xid79GPUFallenOffBus -> Drain, RestartNode (20")


def test_a_time_that_is_none_is_wrong_use(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    status, _, err = run(capfdbinary, tmp_path, MIXED, "--since", "yesterday")
    assert status == 64
    assert "yesterday" in err


def test_people_see_the_time_of_a_line(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    (tmp_path / "log").write_bytes(LOGS["journal short-iso"])
    main(["decode", str(tmp_path / "log")])
    assert capfdbinary.readouterr().out.decode().startswith(f"1: {STAMP} 0000:9b:00 Fatal")
