"""The command line: settings, usage errors, help, and the imports of the daemon."""

import argparse
import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path, PurePath

import pytest

from agent.cli import main
from agent.daemon.log import logger
from agent.nvml.link import interpreter
from agent.settings import VERSION, AgentSettings, add_options, settings_of, version_in
from tests.support.run.commands import exit_status

ROOT = Path(__file__).parents[3]


def parsed(*arguments: str, environ: dict[str, str] | None = None) -> AgentSettings:
    parser = argparse.ArgumentParser()
    add_options(parser, environ or {}, collectors_only=False)
    return settings_of(parser.parse_args(arguments), environ or {})


def test_the_defaults() -> None:
    settings = parsed(environ={"NODE_NAME": "gpu-1"})
    assert (settings.kmsg, settings.nvml, settings.dcgm) == ("/dev/kmsg", "real", "off")
    assert settings.goe == "off", "a preview"
    assert (settings.udev, settings.listen, settings.node_name) == ("auto", ":9412", "gpu-1")
    assert not settings.accept_user_kmsg


def test_a_variable_sets_the_default_and_a_flag_wins() -> None:
    environ = {"GPUWARD_KMSG": "off", "GPUWARD_ACCEPT_USER_KMSG": "true", "GPUWARD_NVML": "off"}
    settings = parsed("--nvml", "real", environ=environ)
    assert (settings.kmsg, settings.accept_user_kmsg, settings.nvml) == ("off", True, "real")


def test_without_a_command_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status(main, ()) == 0
    output = capsys.readouterr()
    assert "gpuward-agent check  " in output.out
    assert output.err == ""


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        pytest.param(("walk",), "walk", id="unknown command"),
        pytest.param(("run", "--kmsgs", "x"), "--kmsgs", id="unknown flag"),
        pytest.param(("run", "--kubeconfig", "/nothing"), "/nothing does not exist", id="config"),
        pytest.param(("run", "--rules", "/nothing"), "/nothing cannot be read", id="rules"),
        pytest.param(("run", "--nvml", "fake"), "--nvml: 'fake' is not one of", id="nvml"),
        pytest.param(("run", "--dcgm", "localhost:9400"), "--dcgm: 'localhost:9400'", id="dcgm"),
        pytest.param(("run", "--expected-gpus", "-1"), "--expected-gpus", id="expected GPUs"),
        pytest.param(
            ("run", "--expected-gpus", "eight"), "'eight' is not a number", id="no number"
        ),
        pytest.param(("run", "--log", "xml"), "--log: 'xml' is not one of", id="log"),
        pytest.param(("check", "--nvml", "sim:/nothing"), "/nothing cannot be read", id="sim"),
        pytest.param(("check", "--kmsg", "/nothing"), "/nothing does not exist", id="log"),
        pytest.param(
            ("check", "--kmsg", "/proc"), "/proc is a directory", id="a folder for a log"
        ),
        pytest.param(("check", "--boot-id", "/nothing"), "/nothing cannot be read", id="boot id"),
    ],
)
def test_wrong_use_ends_with_64_and_one_sentence(
    arguments: tuple[str, ...], output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_status(main, arguments) == 64
    error = capsys.readouterr().err
    assert output in error
    assert len(error.strip().splitlines()) == 1


def test_a_variable_that_cannot_be_used_is_wrong_use(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in (("UDEV", "on"), ("POLL", "0"), ("ACCEPT_USER_KMSG", "perhaps")):
        with monkeypatch.context() as patch:
            patch.setenv(f"GPUWARD_{name}", value)
            assert exit_status(main, ("run",)) == 64
        assert f"--{name.lower().replace('_', '-')}: '{value}' is" in capsys.readouterr().err


def test_the_installed_program_finds_the_simulator_from_any_folder(tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("gpuward-agent")
    if not program.exists():
        pytest.skip("gpuward is not installed in this environment (pip install -e .)")
    node = ROOT / "hack" / "sim" / "driver" / "nodes" / "h100-1.yaml"
    result = subprocess.run(
        [program, "check", "-o", "json", f"--nvml=sim:{node}", "--kmsg=off"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, json.loads(result.stdout)["health"]) == (0, "Healthy")


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
    assert "only a checkout has" in ended.stderr


HEAVY = (
    "aiohttp",
    "hack",
    "kubernetes",
    "psutil",
    "pynvml",
    "pyudev",
    "rich",
    "structlog",
    "yaml",
)


def test_the_daemon_does_not_import_what_only_commands_and_the_nvml_child_need() -> None:
    code = "import agent.cli, agent.daemon.run, json, sys; print(json.dumps(list(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True)
    assert not set(HEAVY) & set(json.loads(run.stdout))


def test_the_nvml_child_imports_less_than_the_daemon() -> None:
    command, environment = interpreter()
    code = "import agent.nvml.life, json, sys; print(json.dumps(list(sys.modules)))"
    run = subprocess.run([*command, "-c", code], env=environment, capture_output=True, check=True)
    heavy = {"asyncio", "hack", "logging", "prometheus_client", "psutil", "urllib3", "yaml"}
    assert not heavy & set(json.loads(run.stdout))


def test_a_line_for_a_terminal_has_its_sentence_and_values(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logger("console").warning("the GPU is lost", pci="0000:3b:00")
    logger("json").error("the GPU is lost", pci="0000:3b:00", at=PurePath("x"))
    console, as_json = capsys.readouterr().err.splitlines()
    assert "the GPU is lost" in console
    assert "pci=0000:3b:00" in console
    output = json.loads(as_json)
    assert output.pop("timestamp").endswith("Z")
    assert output == {
        "pci": "0000:3b:00",
        "at": "PurePosixPath('x')",
        "level": "error",
        "message": "the GPU is lost",
    }


def test_the_version_is_that_of_the_installed_package() -> None:
    assert version("gpuward") == VERSION


def test_the_version_is_from_the_first_folder_that_has_one(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "gpuward_tools-9.dist-info").mkdir()
    (tmp_path / "b" / "gpuward-1.2.0rc1.dist-info").mkdir(parents=True)
    folders = [str(tmp_path / name) for name in ("none", "a", "b")]
    assert version_in(folders) == "1.2.0rc1"
    assert version_in(folders[:2]) == "0.0.0"
