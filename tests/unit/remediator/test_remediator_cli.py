"""`gpuward-remediator` used wrongly: 64 and one sentence."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from remediator.cli import main
from tests.support.remediator.kubectl_cluster import REPOSITORY, cluster
from tests.support.run.commands import exit_status
from tests.support.run.warm_start import WarmProcess


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param(["run", "--kubeconfig", "/nowhere"], "/nowhere does not exist", id="no file"),
        pytest.param(["run", "--listen", "x"], "HOST:PORT", id="listen address"),
        pytest.param(
            ["run", "--grafana-url", "javascript:x"], "https://HOST", id="no web address"
        ),
        pytest.param(["run", "--frobnicate"], "unrecognized arguments", id="unknown flag"),
        pytest.param(["policy", "check", "/nowhere"], "cannot be read", id="no policy file"),
    ],
)
def test_wrong_use_ends_with_64_and_one_sentence(
    arguments: list[str],
    expected: str,
    tmp_path: Path,
) -> None:
    """In a process of its own, because `run` configures the loggers of its process."""
    config = tmp_path / "kubeconfig"
    config.write_text(
        "{apiVersion: v1, kind: Config, current-context: x, contexts: [{name: x, context: "
        "{cluster: c}}], clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]}"
    )
    command = [sys.executable, "-m", "remediator.cli", *arguments]
    environ = {**os.environ, "KUBECONFIG": str(config)}
    process = WarmProcess(command, stderr=subprocess.PIPE, cwd=REPOSITORY, env=environ)
    output = process.communicate(timeout=60)[1].decode()
    assert process.returncode == 64
    assert expected in output
    assert "Traceback" not in output


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [([], "run the controller"), (["policy"], "validate a policy file and print its errors")],
    ids=["no command", "no action"],
)
def test_without_a_command_the_help_is_shown(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_status(main, arguments) == 0
    output = capsys.readouterr()
    assert expected in output.out
    assert output.err == ""


HEAVY = ("structlog", "prometheus_client", "rich", "pydantic")
OF_OTHER_COMMANDS = (
    "rules.session.decide",
    *("remediator.kubectl.why.why", "remediator.kubectl.plan"),
)
LOADED = """
import sys
from remediator.kubectl.cli import main
try:
    main(sys.argv[2:])
except SystemExit:
    pass
print([name for name in sys.argv[1].split(",") if name in sys.modules])
"""


@pytest.mark.parametrize(
    ("expected", "heavy"),
    [
        pytest.param(("--help",), (*HEAVY, "asyncio", "aiohttp", "msgspec", "yaml"), id="help"),
        pytest.param(("fleet",), (*HEAVY, *OF_OTHER_COMMANDS), id="fleet"),
    ],
)
def test_a_command_reads_nothing_heavy_that_it_does_not_need(tmp_path, expected, heavy):
    """Not a timed assertion: what costs the half second is named."""
    with cluster(tmp_path) as kubectl:
        given = ["--kubeconfig", str(kubectl.kubeconfig), *expected]
        done = subprocess.run(
            [sys.executable, "-c", LOADED, ",".join(heavy), *given],
            capture_output=True, text=True, check=False, cwd=REPOSITORY,
        )  # fmt: skip
    assert done.stdout.strip().endswith("[]"), done.stdout + done.stderr
