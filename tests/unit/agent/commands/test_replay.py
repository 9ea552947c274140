"""Recorded logs in their own time: the timeline that the live agent would have had."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from agent.cli import main

REPOSITORY = Path(__file__).parents[4]
XID_79 = "NVRM: Xid (PCI:0000:10:00): 79, pid=77, name=python, GPU has fallen off the bus."
XID_13 = "NVRM: Xid (PCI:0000:10:00): 13, pid=77, name=python, Graphics Exception"
LOAD = "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.82.07"


def log(folder: Path, *lines: str, name: str = "kern.log") -> str:
    path = folder / name
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)


def replay(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[str]]:
    code = main(["replay", "--node", "n1", *arguments])
    return code, capsys.readouterr().out.splitlines()


def test_issue14_a_fault_opens_and_a_reboot_is_known_but_not_believed_unseen(
    tmp_path, capsys
) -> None:
    path = log(
        tmp_path,
        f"2026-01-31T12:00:00Z n1 kernel: {XID_79}",
        f"2026-01-31T13:00:00Z n1 kernel: {LOAD}",
    )
    code, lines = replay(capsys, path, "--booted", "2026-01-31T12:59:00Z")
    assert code == 0
    assert lines[0].startswith("2026-01-31 12:00:00 UTC opened   Fatal Drain Xid79")
    assert "fallen off the bus" in lines[0]
    assert "(Reboot came, no look confirmed it)" in lines[-1]


def test_issue14_what_silence_closes_is_closed_in_the_records_time(tmp_path, capsys) -> None:
    path = log(tmp_path, f"2026-01-31T12:00:00Z n1 kernel: {XID_13}")
    code, lines = replay(capsys, path)
    assert code == 0
    assert any(line.startswith("2026-01-31 12:03:00 UTC closed") for line in lines), lines


def test_issue14_other_rules_judge_otherwise(tmp_path, capsys) -> None:
    path = log(tmp_path, f"2026-01-31T12:00:00Z n1 kernel: {XID_79}")
    rules = tmp_path / "rules.yaml"
    rules.write_text(
        "apiVersion: gpuward.io/v1alpha1\nkind: Rules\n"
        "reasons: {Xid79GPUFallenOffBus: {level: Report}}\n"
    )
    assert "Fatal Drain" in replay(capsys, path)[1][0]
    assert "Fatal Report" in replay(capsys, path, "--rules", str(rules))[1][0]


def test_issue14_times_from_the_boot_begin_anew_in_another_boot(tmp_path, capsys) -> None:
    path = log(tmp_path, f"[ 100.000000] {XID_79}", f"[   9.000000] {LOAD}", name="dmesg")
    code, lines = replay(capsys, path, "--json")
    assert code == 0
    value = json.loads("\n".join(lines))
    assert value["timeline"][0]["at"] == "1970-01-01T00:01:40Z"
    assert value["node"] == "n1"
    assert value["status"]["incidents"][0]["reason"].startswith("Xid79")


def test_issue14_the_same_log_packed_and_in_two_parts_says_the_same(tmp_path, capsys) -> None:
    first, second = (f"2026-01-31T12:00:0{n}Z n1 kernel: {XID_13}" for n in (1, 2))
    whole = replay(capsys, log(tmp_path, first, second))
    packed = tmp_path / "part.gz"
    packed.write_bytes(gzip.compress(f"{first}\n".encode()))
    parts = replay(capsys, log(tmp_path, second, name="later.log"), str(packed))
    assert parts == whole


def test_issue14_user_space_is_not_believed(tmp_path, capsys) -> None:
    path = log(tmp_path, f"<12>[    1.000000] {XID_79}")
    code = main(["replay", "--node", "n1", path])
    out = capsys.readouterr()
    assert (code, out.out.splitlines()[-1]) == (0, "0 facts, 0 incidents")
    assert "1 line written by user space" in out.err


def test_issue14_pages_of_dcgm_come_with_their_times(tmp_path, capsys) -> None:
    path = log(tmp_path, f"2026-01-31T12:00:00Z n1 kernel: {XID_13}")
    page = 'DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-1",pci_bus_id="00000000:10:00.0"} 40'
    pages = log(tmp_path, "# time 2026-01-31T12:00:30Z", page, "# time 2026-01-31T12:01:00Z", page,
                name="pages")  # fmt: skip
    code, lines = replay(capsys, path, "--dcgm", pages, "--json")
    assert code == 0
    sources = {s["name"]: s["state"] for s in json.loads("\n".join(lines))["status"]["sources"]}
    assert "Up" in {state for name, state in sources.items() if "dcgm" in name.lower()}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(("/nowhere",), "cannot read /nowhere", id="no file"),
        pytest.param(("{log}", "--booted", "noon"), "'noon' is no RFC 3339 time", id="no time"),
        pytest.param(("{log}", "--rules", "/nowhere"), "cannot be read", id="no rules"),
        pytest.param(("{bare}",), "a line has no time", id="no stamps"),
        pytest.param(("{log}", "--dcgm", "{log}"), "each page follows", id="no page"),
    ],
)
def test_issue14_what_cannot_be_replayed_is_said(tmp_path, capsys, arguments, said) -> None:
    names = {
        "log": log(tmp_path, f"2026-01-31T12:00:00Z n1 kernel: {XID_13}"),
        "bare": log(tmp_path, XID_13, name="bare"),
    }
    given = [one.format(**names) for one in arguments]
    assert main(["replay", "--node", "n1", *given]) == 64
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "command", [("replay", "--node", "n1"), ("decode",)], ids=["replay", "decode"]
)
@pytest.mark.parametrize("name", ["README.md", "docs/install.md", "pyproject.toml"])
def test_what_is_no_kernel_log_is_not_taken_for_a_clean_node(capsys, command, name) -> None:
    """A few lines of prose or YAML read like a driver's."""
    assert main([*command, str(REPOSITORY / name)]) == 3
    said = capsys.readouterr()
    assert said.out == ""
    assert "lines, 0 understood; give a kernel log, as dmesg or journalctl has it" in said.err


def test_a_log_that_says_nothing_of_gpus_is_a_log(tmp_path, capsys) -> None:
    quiet = log(
        tmp_path,
        "2026-01-31T12:00:00Z n1 kernel: e1000e 0000:00:1f.6 eth0: Link is Up\n"
        "2026-01-31T12:00:01Z n1 kernel: BTRFS info: disk space caching is enabled",
    )
    assert main(["replay", "--node", "n1", quiet]) == 0
    assert capsys.readouterr().out == "0 facts, 0 incidents\n"


def test_one_is_told_in_the_singular(tmp_path, capsys) -> None:
    one = log(tmp_path, f"2026-01-31T12:00:00Z n1 kernel: {XID_13}")
    assert main(["replay", "--node", "n1", one]) == 0
    assert "\n1 fact, 1 incident" in capsys.readouterr().out
