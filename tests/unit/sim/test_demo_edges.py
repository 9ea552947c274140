"""The demo before and after its acts: help at once, sizes, and what a kill leaves behind."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hack.sim.demo import stage
from hack.sim.demo.__main__ import _parser, main
from remediator.kubectl.preflight import ADMISSION_POLICIES
from rules.repair.component import UNKNOWN_POLICY

ROOT = Path(__file__).resolve().parents[3]


def test_help_needs_nothing_and_is_the_programs_help(monkeypatch):
    """The file is printed before anything is installed; COLUMNS=80 python -m hack.sim.demo
    --help.
    """
    monkeypatch.setenv("COLUMNS", "80")
    text = _parser().format_help()
    assert (ROOT / "hack" / "sim" / "demo" / "help.txt").read_text() == text
    assert max(map(len, text.splitlines())) <= 80
    done = subprocess.run(
        [ROOT / "hack" / "demo", "--help"], capture_output=True, text=True, check=False,
        env={"PATH": os.environ["PATH"], "GPUWARD_VENV": "/nonexistent"},
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, text, "")


def test_a_wrong_option_is_refused_before_anything_is_installed():
    done = subprocess.run(
        [ROOT / "hack" / "demo", "--onse", "--bad"], capture_output=True, text=True, check=False,
        env={"PATH": os.environ["PATH"], "GPUWARD_VENV": "/nonexistent"},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (64, "")
    assert done.stderr == "hack/demo: there is no option --bad; see hack/demo --help\n"


@pytest.mark.parametrize("nodes", ["3", "1000"])
def test_a_size_that_does_not_work_is_a_sentence(nodes, capsys):
    assert main(["--nodes", nodes]) == 64
    text = capsys.readouterr().err
    assert text.startswith(f"hack/demo: --nodes {nodes}: ")
    assert str(stage.MOST_NODES) in text, "what may be given"
    assert text.count("\n") == 1


def test_folders_of_killed_demos_go_with_the_next_start(tmp_path):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    for name, pid in (("dead", ended.pid), ("alive", os.getpid())):
        folder = tmp_path / f"gpuward-demo-{name}"
        folder.mkdir()
        (folder / stage.PID_FILE).write_text(str(pid))
    (tmp_path / "gpuward-demo-begins").mkdir()
    stage.sweep(tmp_path)
    assert sorted(one.name for one in tmp_path.iterdir()) == [
        "gpuward-demo-alive", "gpuward-demo-begins"
    ]  # fmt: skip


def test_a_program_ends_with_a_demo_that_is_killed(tmp_path):
    """The child prints its process ID, the parent is killed with SIGKILL, the child ends."""
    (tmp_path / "sleeper.py").write_text(
        "import os, signal, time\nprint(os.getpid(), flush=True)\ntime.sleep(60)\n"
    )
    start = (
        "import subprocess, sys, os, time\n"
        "subprocess.Popen([sys.executable, '-m', 'hack.sim.demo.tied', str(os.getpid()), "
        "'sleeper'])\n"
        "time.sleep(60)\n"
    )
    path = f"{ROOT}:{tmp_path}"
    with subprocess.Popen(
        [sys.executable, "-c", start], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": path},
    ) as parent:  # fmt: skip
        assert parent.stdout is not None
        assert int(parent.stdout.readline()) > 0
        parent.send_signal(signal.SIGKILL)
        # The child holds the other end of the pipe: its end is the end of the file.
        assert parent.stdout.read() == ""


@pytest.mark.parametrize("nodes", [stage.MINIMUM_NODES, 24, stage.MOST_NODES])
def test_no_node_plays_in_two_acts(nodes):
    """What one act breaks must not show in another one's outcome."""
    names = stage.fleet(nodes).node_names()
    cast = stage.cast_of(names, "solo-0000")
    single = [value for name in cast.__slots__ if isinstance(value := getattr(cast, name), str)]
    everybody = [*single, *cast.rack]
    assert len(set(everybody)) == len(everybody)
    assert set(everybody) <= set(names)
    assert set(cast.with_agents) < set(single)


def test_the_demo_installs_what_preflight_asks_for():
    """Everything of base but the programs; the repair component that its policy needs."""
    found = {(obj["kind"], obj["metadata"]["name"]): obj for obj in stage.installed()}
    kinds = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
    assert {(kind, name) for kind in kinds for name in ADMISSION_POLICIES} <= found.keys()
    assert not {kind for kind, _ in found} & {"DaemonSet", "Deployment", "ConfigMap"}
    repairs, proofs = found[kinds[0], UNKNOWN_POLICY]["spec"]["variables"][:2]
    assert "GPUNeedsRestart" in repairs["expression"]
    assert "GPUValidated" in proofs["expression"]


PIP = """#!/bin/sh
echo "Obtaining file:///somewhere"
echo "Collecting aiohttp>=3.10 (from gpuward==0.1.0)"
echo "Processing /a/b/rich-15.0.0-py3-none-any.whl (from gpuward==0.1.0)"
echo "Installing collected packages: rich, aiohttp"
exit CODE
"""


@pytest.mark.parametrize("code", [0, 3])
def test_the_first_start_reports_its_progress(tmp_path, code):
    (tmp_path / "hack").mkdir()
    shutil.copy(ROOT / "hack" / "environment.sh", tmp_path / "hack")
    for name in ("pyproject.toml", "constraints.txt"):
        (tmp_path / name).touch()
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(PIP.replace("CODE", str(code)))
    python.chmod(0o755)
    script = tmp_path / "hack" / "script"
    script.write_text('set -eu\n. "$(dirname -- "$0")/environment.sh"\necho begins\n')
    clean = {k: v for k, v in os.environ.items() if not k.startswith("GPUWARD")}
    done = subprocess.run(
        ["sh", script], capture_output=True, text=True, check=False,
        env={**clean, "PYTHON": sys.executable},
    )  # fmt: skip
    assert "\n  aiohttp>=3.10\n  rich-15.0.0\n  installing them\n" in done.stderr
    if code == 0:
        assert re.search(r"ready after \d+ s\n$", done.stderr)
        assert (done.returncode, done.stdout) == (0, "begins\n")
        return
    # All output of pip, and no stamp: the next start tries again.
    assert "Obtaining file:///somewhere" in done.stderr
    assert (done.returncode, done.stdout) == (1, "")
    assert not (tmp_path / ".venv" / "gpuward.stamp").exists()
