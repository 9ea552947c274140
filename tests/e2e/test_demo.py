"""The demo as an operator runs it: every act ends as promised, and kubectl shows it in 120
columns.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hack.sim.demo.acts import ACTS

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"
TIMEOUT_S = 150

pytestmark = pytest.mark.slow


def run_until_it_stays_up(process: subprocess.Popen[str]) -> list[str]:
    """Lines the demo prints until its fleet stays up."""
    lines: list[str] = []
    assert process.stdout is not None
    for line in process.stdout:
        lines.append(line.rstrip("\n"))
        if "the fleet stays up" in line:
            return lines
    raise AssertionError("the demo ended early:\n" + "\n".join(lines))


def normal(table: str) -> str:
    """The table without what differs from run to run: hashes and ages."""
    table = re.sub(r"-[0-9a-f]{8}\b", "-########", table)
    # The age of a Node stands in the middle, followed by its health.
    table = re.sub(r"\b\d+(?:s|m|m\d+s)(?= +(?:un)?(?:healthy|degraded|known)\b)", "AGE", table)
    # Whether the breaker opens before or after the first node of the rack is taken is a race.
    table = re.sub(r"(Cancelled|Released ) +(?=Enforce +Xid119)", "Ended         ", table)
    # GPUNodeHealth has two ages at the end of the line: of its last change and of itself.
    two = r"\s+\d+(?:s|m|m\d+s)(\s+)\d+(?:d|h|m|s|m\d+s)$"
    table = re.sub(two, "   AGE   AGE", table, flags=re.MULTILINE)
    lines = [re.sub(r"(\s)\d+(?:d|h|m|s|m\d+s)$", r"\1AGE", line) for line in table.splitlines()]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def compare(name: str, actual: str) -> None:
    """Equal to the golden file; UPDATE_GOLDEN=1 rewrites it."""
    path = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(actual)

    assert path.read_text() == actual


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_every_act_ends_as_promised_and_kubectl_shows_it() -> None:
    """Each fault has its expected outcome, and tables an operator can read."""
    with subprocess.Popen(
        [sys.executable, "-m", "hack.sim.demo", "--nodes", "24"],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, "COLUMNS": "160"},
    ) as demo:  # fmt: skip
        try:
            lines = run_until_it_stays_up(demo)
            text = "\n".join(lines)
            kubeconfig = re.search(r"--kubeconfig (\S+)", text)
            assert kubeconfig is not None, text

            def kubectl(*arguments: str) -> str:
                done = subprocess.run(
                    ["kubectl", "--kubeconfig", kubeconfig[1], *arguments],
                    check=True, capture_output=True, text=True, timeout=30,
                )  # fmt: skip
                return done.stdout

            assert sum(line.startswith("ok ") for line in lines) == len(ACTS), text
            sessions = kubectl("get", "gq") + kubectl("get", "gnh")
            nodes = kubectl("get", "nodes", "-L", "gpuward.io/health,gpuward.io/quarantine")
            assert all(len(line) <= 128 for line in (sessions + nodes).splitlines())
            compare("demo_sessions.txt", normal(sessions))
            compare("demo_nodes.txt", normal(nodes))
        finally:
            demo.send_signal(signal.SIGINT)
            demo.wait(TIMEOUT_S)

    assert demo.returncode == 130
