"""A test run that is shared between processes reports the same as a run in one process."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]

BREAKS_DOWN = """
import os, signal
def test_passes(): pass
def test_is_killed(): os.kill(os.getpid(), signal.SIGKILL)
def test_after(tmp_path): assert tmp_path.is_dir()
def test_leaves(): os._exit(3)
def test_fails():
    print("what it printed")
    assert [1] == [2]
"""

SHARES = """
import pytest
@pytest.fixture(scope="session")
def shared():
    yield
    raise ValueError("what all had in common")
def test_one(shared): pass
@pytest.mark.skip(reason="why not")
def test_skipped(): pass
@pytest.mark.xfail(strict=True)
def test_expected(): assert False
"""


def outcome(folder: Path, *options: str) -> tuple[int, str]:
    """Exit status and output of a run in two processes."""
    plugins = ["-p", "tests.support.run.workers", "-p", "no:cacheprovider"]
    place = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(folder), str(folder)]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, "--forks", "2", *options, *place],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return run.returncode, run.stdout + run.stderr


def test_processes_that_break_down_cost_their_test_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "test_breaks_down.py").write_text(BREAKS_DOWN)
    (tmp_path / "test_shares.py").write_text(SHARES)
    code, output = outcome(tmp_path)
    assert code == 1, output
    assert re.search(r"\n4 failed, 3 passed, 1 skipped, 1 xfailed in ", output), output
    assert "test_is_killed: its process was ended by SIGKILL" in output
    assert "test_leaves: its process ended with exit status 3" in output
    assert "ValueError: what all had in common" in output
    assert "what it printed" in output


def test_a_run_that_stops_at_the_first_failure_ends_its_processes(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("def test_fails(): assert False\n")
    (tmp_path / "test_b.py").write_text("import time\ndef test_long(): time.sleep(600)\n")
    code, output = outcome(tmp_path, "-x")
    assert code == 1, output
    assert "stopping after 1 failures" in output
