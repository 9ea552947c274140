"""`restart-node` requests one reboot and only in its boot; options and results of reset-gpu and
restart-node.
"""

import argparse
import json
from pathlib import Path
from types import ModuleType

import pytest

from agent.cli import main
from agent.commands import reset_gpu, restart_node
from agent.commands.repair import EXIT_STATUS, Outcome, RepairResult
from agent.commands.restart_node import NodeRestart
from rules.repair.adapter import ADAPTERS, NewObject
from rules.repair.ladder import Step
from tests.support.agent.fake_host import BOOT, UUIDS, FakeHost
from tests.support.run.commands import exit_status


@pytest.fixture
def fake(tmp_path: Path) -> FakeHost:
    made = FakeHost(tmp_path)
    (made.root / "run/systemd/system").mkdir(parents=True)
    return made


def restarted(
    fake: FakeHost, boot_id: str = BOOT, **options: float
) -> tuple[RepairResult, list[str]]:
    synced: list[str] = []
    result = NodeRestart(
        host=fake.host,
        boot_id=boot_id,
        session="s",
        log_line=lambda _: None,
        sync=lambda: synced.append("sync"),
        **options,
    ).run()
    return result, synced


def test_the_reboot_is_requested_after_sync(fake: FakeHost) -> None:
    result, synced = restarted(fake)
    assert result.outcome is Outcome.DONE
    assert (synced, fake.ran()) == (["sync"], ["systemctl reboot"])


def test_a_pod_that_runs_again_after_the_reboot_requests_nothing(fake: FakeHost) -> None:
    result, _ = restarted(fake, boot_id="the boot before")
    assert result.outcome is Outcome.NEEDLESS
    assert fake.ran() == []


def test_a_refusal_of_systemd_is_shown(fake: FakeHost) -> None:
    fake.status.write_text("1")
    result, _ = restarted(fake)
    assert result.outcome is Outcome.FAILED
    assert "systemctl exited with 1" in result.message


@pytest.mark.parametrize(
    ("status", "state", "outcome"),
    [
        ("1", "degraded", Outcome.FAILED),
        ("127", "", Outcome.FAILED),
        ("1", "stopping", Outcome.UNKNOWN),
        ("1", "", Outcome.UNKNOWN),
        ("killed", "running", Outcome.UNKNOWN),
    ],
)
def test_a_request_during_the_reboot_is_not_reported_as_failed(
    fake: FakeHost, status: str, state: str, outcome: Outcome
) -> None:
    fake.status.write_text(status)
    fake.state.write_text(state)
    result, _ = restarted(fake)
    assert result.outcome is outcome
    assert fake.ran().count("systemctl reboot") == 1


def test_a_request_without_an_answer_has_an_unknown_result(fake: FakeHost) -> None:
    result, _ = restarted(fake, ask_s=0.0)
    assert result.outcome is Outcome.UNKNOWN
    action = ADAPTERS["RestartNodeJob"].steps[Step.RESTART_NODE]
    assert isinstance(action, NewObject)
    (rule,) = action.object["spec"]["podFailurePolicy"]["rules"]
    assert EXIT_STATUS[result.outcome] not in (0, *rule["onExitCodes"]["values"])


@pytest.mark.parametrize("lacks", ["run/systemd/system", "../proc/2/stat"])
def test_nothing_is_requested_if_the_init_cannot_be_reached(fake: FakeHost, lacks: str) -> None:
    path = fake.root / lacks
    path.unlink() if path.is_file() else path.rmdir()
    result, _ = restarted(fake)
    assert result.outcome is Outcome.REFUSED
    assert fake.ran() == []


def test_a_missing_host_program_is_a_failure_with_a_message(
    fake: FakeHost, tmp_path: Path
) -> None:
    (tmp_path / "nsenter").unlink()
    result, _ = restarted(fake)
    assert result.outcome is Outcome.FAILED
    assert "cannot be started" in result.message


def given(command: ModuleType, *flags: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    command.add_parser(parser.add_subparsers())
    name = command.PROGRAM.partition(" ")[2]
    return parser.parse_args([name, *flags])


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["reset-gpu"], "names 0 GPUs"),
        (["reset-gpu", "--gpus", "0"], "no UUID of an entire GPU"),
        (["reset-gpu", "--gpus", f"{UUIDS[0]},$(reboot)"], "no UUID of an entire GPU"),
        (["reset-gpu", "--gpus", UUIDS[0], "--wait", "x"], "--wait"),
        (["restart-node", "--boot", BOOT], "--session is required"),
        (["restart-node", "--session", "s"], "--boot is required"),
    ],
)
def test_wrong_use_is_one_sentence(
    flags: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_status(main, flags) == 64
    output = capsys.readouterr().err
    assert message in output
    assert output.count("\n") == 1


def test_gpus_and_boot_come_from_the_environment(
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
    output = capsys.readouterr().out
    assert "Nothing was reset" in output
    assert "\x1b" not in output


def test_a_second_run_after_the_reboot_succeeds_without_a_request(
    fake: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(restart_node.ENV_SESSION, "n0-1")
    monkeypatch.setenv(restart_node.ENV_BOOT, BOOT)
    assert restart_node.run(given(restart_node), fake.host) == 0
    (fake.proc / "sys/kernel/random/boot_id").write_text("another\n")
    assert restart_node.run(given(restart_node), fake.host) == 0
    assert fake.ran() == ["systemctl reboot"]
