"""reset-gpu and restart-node on the command line: what they are given and leave (issue 13)."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from types import ModuleType

import pytest

from agent.cli import main
from agent.commands import reset_gpu, restart_node
from tests.support.agent.fake_host import BOOT, UUIDS, FakeHost
from tests.support.run.commands import exit_status


@pytest.fixture
def fake(tmp_path: Path) -> FakeHost:
    made = FakeHost(tmp_path)
    (made.root / "run/systemd/system").mkdir(parents=True)
    return made


def given(command: ModuleType, *flags: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    command.add_parser(parser.add_subparsers())
    name = command.PROGRAM.partition(" ")[2]
    return parser.parse_args([name, *flags])


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["reset-gpu"], "names 0 GPUs"),
        (["reset-gpu", "--gpus", "0"], "no UUID of a whole GPU"),
        (["reset-gpu", "--gpus", f"{UUIDS[0]},$(reboot)"], "no UUID of a whole GPU"),
        (["reset-gpu", "--gpus", UUIDS[0], "--wait", "x"], "--wait"),
        (["restart-node", "--boot", BOOT], "--session is missing"),
        (["restart-node", "--session", "s"], "--boot is missing"),
    ],
)
def test_wrong_use_is_one_sentence(
    flags: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_status(main, flags) == 64
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1


def test_the_pod_s_environment_says_which_gpus_and_which_boot(
    fake: FakeHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv(reset_gpu.ENV_GPUS, ",".join(UUIDS[:2]))
    monkeypatch.setenv(reset_gpu.ENV_BOOT, BOOT)
    log = tmp_path / "termination"
    log.touch()
    arguments = given(reset_gpu, "--json", "--termination-log", str(log))
    assert reset_gpu.run(arguments, fake.host) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads(log.read_bytes())
    assert printed["outcome"] == "done"
    assert printed["gpus"] == UUIDS[:2]


def test_a_refusal_ends_with_three(fake: FakeHost, capsys: pytest.CaptureFixture[str]) -> None:
    fake.process(300, "dcgm\x1b[31m", "/dev/nvidia0")
    assert reset_gpu.run(given(reset_gpu, "--gpus", UUIDS[0]), fake.host) == 3
    said = capsys.readouterr().out
    assert "Nothing was reset" in said
    assert "\x1b" not in said


def test_a_second_run_after_the_reboot_ends_well_and_asks_nobody(
    fake: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(restart_node.ENV_SESSION, "n0-1")
    monkeypatch.setenv(restart_node.ENV_BOOT, BOOT)
    assert restart_node.run(given(restart_node), fake.host) == 0
    (fake.proc / "sys/kernel/random/boot_id").write_text("another\n")
    assert restart_node.run(given(restart_node), fake.host) == 0
    assert fake.ran() == ["systemctl reboot"]
