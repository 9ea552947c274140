"""The path of a real control plane, with stand-ins for its programs.

`etcd` answers its health check; `kube-apiserver` is the simulated server behind the real one's
flags: port, token file, certificate folder. So starting, waiting, trusting, tokens and stopping
are run as they are with the real programs.
"""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]


def program(folder: Path, name: str, source: str) -> None:
    path, module = folder / name, folder / f"{name}.py"
    module.write_text(source)
    # The source tree is found by the environment: the programs run from anywhere.
    words = [f"PYTHONPATH={REPOSITORY}", sys.executable, str(module)]
    path.write_text(f'#!/bin/sh\nexec env {shlex.join(words)} "$@"\n')
    path.chmod(0o755)


CUT = """
import pathlib, sys
sys.path.insert(0, {repository!r})
from hack.sim.real_control_plane import Layout, RealControlPlane

layout = Layout(
    folder=pathlib.Path(sys.argv[1]), etcd_client_port=1, etcd_peer_port=2, api_port=3,
    controller_manager_port=4,
)
plane = RealControlPlane(layout)
plane.start("sleep", ["sleep", "600"])
pid = plane.programs[0][1].pid
while pathlib.Path(f"/proc/{{pid}}/comm").read_text() != "sleep\\n":
    pass
print(pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv (util-linux) is not here")
def test_a_run_that_is_killed_leaves_no_program_behind(tmp_path: Path) -> None:
    source = CUT.format(repository=str(REPOSITORY))
    cut = subprocess.Popen(
        [sys.executable, "-c", source, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with cut:
        assert cut.stdout is not None
        program = int(cut.stdout.readline())
        ended = os.pidfd_open(program)
        try:
            cut.kill()
            assert select.select([ended], [], [], 20)[0], "it lives on without its run"
        finally:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(ended, signal.SIGKILL)
            os.close(ended)
