"""The process that asks NVML, run by itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from agent.nvml.messages import Framer, FromChild
from rules.judge.observation import CallFailed

ROOT = Path(__file__).resolve().parents[4]
PATIENCE_S = 20.0
"""How long a child may take to end; it takes a fraction of that."""


def environment(folder=ROOT):
    """Of a child of this installation; it runs no start-up files of site packages."""
    packages = (path for path in sys.path if path.endswith("site-packages"))
    return {**os.environ, "PYTHONPATH": os.pathsep.join((str(folder), *packages))}


def run_child(mode, folder=ROOT, **options):
    command = [sys.executable, "-S", "-m", "agent.nvml.child", mode, "15"]
    return subprocess.run(
        command,
        input=b"",
        capture_output=True,
        cwd=folder,
        env=environment(folder),
        check=False,
        **options,
    )


def said(output):
    bodies = Framer().feed(output)
    return [msgspec.msgpack.decode(body, type=FromChild) for body in bodies]


def test_a_child_whose_parent_is_gone_shuts_down_in_order(path):
    ended = run_child(f"sim:{path}", timeout=PATIENCE_S)
    assert ended.returncode == 0
    assert ended.stderr == b""


def test_an_installation_without_the_simulator_says_so(tmp_path):
    for package in ("agent", "rules"):
        shutil.copytree(ROOT / package, tmp_path / package)
    ended = run_child("sim:node.yaml", tmp_path, timeout=PATIENCE_S)
    assert ended.returncode == 64
    assert "not part of this installation" in said(ended.stdout)[-1].text


def test_a_machine_without_the_library_says_so():
    ended = run_child("real", timeout=PATIENCE_S)
    faults = [message for message in said(ended.stdout) if isinstance(message, CallFailed)]
    if ended.returncode == 0:
        pytest.skip("this machine has a working NVIDIA driver")
    assert faults
    assert faults[0].call == "nvmlInitWithFlags"


def test_the_child_imports_no_logging_metrics_or_kubernetes():
    code = "import sys; import agent.nvml.life; print(*sys.modules)"
    listed = subprocess.run(
        [sys.executable, "-S", "-c", code],
        capture_output=True,
        cwd=ROOT,
        env=environment(),
        text=True,
        check=True,
    ).stdout.split()
    heavy = {"structlog", "prometheus_client", "kubernetes", "urllib3", "psutil", "yaml"}
    heavy |= {"asyncio", "hack", "logging"}
    assert not heavy & set(listed)
