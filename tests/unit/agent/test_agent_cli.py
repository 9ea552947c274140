"""The command line: settings, wrong use, help, and what the daemon must not load."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent.cli import main
from agent.settings import (
    OPTIONS,
    AgentSettings,
    SettingsError,
    add_options,
    settings_of,
    variable_of,
)
from tests.support.run.commands import exit_status

ROOT = Path(__file__).parents[3]


def parsed(*arguments: str, environ: dict[str, str] | None = None) -> AgentSettings:
    parser = argparse.ArgumentParser()
    add_options(parser, environ or {}, senses_only=False)
    return settings_of(parser.parse_args(arguments), environ or {})


def test_the_defaults() -> None:
    settings = parsed(environ={"NODE_NAME": "gpu-1"})
    assert (settings.kmsg, settings.nvml, settings.dcgm) == ("/dev/kmsg", "real", "off")
    assert (settings.udev, settings.listen, settings.node_name) == ("auto", ":9412", "gpu-1")
    assert not settings.accept_user_kmsg


def test_a_variable_sets_the_default_and_a_flag_wins() -> None:
    environ = {"GPUWARD_KMSG": "off", "GPUWARD_ACCEPT_USER_KMSG": "true", "GPUWARD_NVML": "off"}
    settings = parsed("--nvml", "real", environ=environ)
    assert (settings.kmsg, settings.accept_user_kmsg, settings.nvml) == ("off", True, "real")


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(("--nvml", "fake"), id="nvml"),
        pytest.param(("--dcgm", "localhost:9400"), id="dcgm"),
        pytest.param(("--udev", "on"), id="udev"),
        pytest.param(("--expected-gpus", "-1"), id="expected GPUs"),
        pytest.param(("--expected-gpus", "eight"), id="no number"),
        pytest.param(("--log", "xml"), id="log"),
        pytest.param(("--poll", "0"), id="poll"),
    ],
)
def test_wrong_values_are_named(arguments: tuple[str, str]) -> None:
    with pytest.raises(SettingsError) as raised:
        parsed(*arguments)
    assert arguments[0] in str(raised.value)
    assert arguments[1] in str(raised.value)


def test_a_switch_that_is_neither_is_named() -> None:
    with pytest.raises(SettingsError, match="GPUWARD_ACCEPT_USER_KMSG"):
        parsed(environ={"GPUWARD_ACCEPT_USER_KMSG": "maybe"})


def test_help_states_each_option_its_default_and_its_variable(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", "--help"])
    assert ended.value.code == 0
    said = " ".join(capsys.readouterr().out.split())
    for option in OPTIONS:
        assert f"--{option.name}" in said
        assert variable_of(option) in said
        assert not option.default or f"default: {option.default}" in said


def test_without_a_command_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status(main, ()) == 0
    said = capsys.readouterr()
    assert "Start with 'gpuward-agent check'" in said.out
    assert said.err == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(("walk",), "walk", id="unknown command"),
        pytest.param(("run", "--kmsgs", "x"), "--kmsgs", id="unknown flag"),
        pytest.param(("run", "--kubeconfig", "/nothing"), "/nothing does not exist", id="config"),
        pytest.param(("run", "--rules", "/nothing"), "/nothing cannot be read", id="rules"),
        pytest.param(("check", "--nvml", "sim:/nothing"), "/nothing cannot be read", id="sim"),
        pytest.param(("check", "--kmsg", "/nothing"), "/nothing does not exist", id="log"),
        pytest.param(("check", "--kmsg", "/proc"), "/proc is a folder", id="a folder for a log"),
        pytest.param(("check", "--boot-id", "/nothing"), "/nothing cannot be read", id="boot id"),
    ],
)
def test_wrong_use_ends_with_64_and_one_sentence(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_status(main, arguments) == 64
    told = capsys.readouterr().err
    assert said in told
    assert len(told.strip().splitlines()) == 1


def test_a_program_used_wrongly_ends_with_64_and_one_sentence() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "agent.cli", "run", "--rules", "/nothing"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "NO_COLOR": "1"},
    )
    assert ended.returncode == 64
    assert "/nothing cannot be read" in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1


def test_a_switch_that_is_neither_yes_nor_no_is_wrong_use(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GPUWARD_ACCEPT_USER_KMSG", "perhaps")
    assert exit_status(main, ("check", "--nvml=off", "--kmsg=off")) == 64
    told = capsys.readouterr().err
    assert "GPUWARD_ACCEPT_USER_KMSG='perhaps'" in told
    assert len(told.strip().splitlines()) == 1


def test_the_installed_program_finds_the_simulator_from_any_folder(tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("gpuward-agent")
    if not program.exists():
        pytest.skip("gpuward is not installed in this environment (pip install -e .)")
    node = ROOT / "hack" / "sim" / "driver" / "nodes" / "h100-1.yaml"
    looked = subprocess.run(
        [program, "check", "-o", "json", f"--nvml=sim:{node}", "--kmsg=off"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (looked.returncode, json.loads(looked.stdout)["health"]) == (0, "Healthy")


def test_a_node_description_that_is_no_yaml_is_wrong_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "node.yaml"
    broken.write_text("gpus: [\n")
    assert exit_status(main, ("check", f"--nvml=sim:{broken}")) == 64
    told = capsys.readouterr().err
    assert "is no node description" in told
    assert len(told.strip().splitlines()) == 1


def test_the_daemon_loads_no_heavy_library_and_nothing_of_the_simulator() -> None:
    code = "import sys, agent.cli, agent.daemon.run; print(*sorted(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    roots = {name.partition(".")[0] for name in loaded}
    assert "prometheus_client" in roots
    assert roots.isdisjoint({"rich", "structlog", "kubernetes", "aiohttp", "hack", "pynvml"})


def test_the_simulator_is_named_where_it_is_missing(tmp_path: Path) -> None:
    for package in ("agent", "rules"):
        (tmp_path / package).symlink_to(ROOT / package)
    ended = subprocess.run(
        [sys.executable, "-m", "agent.cli", "check", "--nvml", "sim:node.yaml"],
        cwd=tmp_path,
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 64
    assert "part of a checkout only" in ended.stderr
