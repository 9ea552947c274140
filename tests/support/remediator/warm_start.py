"""Remediators forked from a process that has imported the program already.

Of what a remediator computes in a test of some seconds, four fifths are imports. What is forked is
a process of its own with the same code, arguments, environment, signals and end. Some tests start
it afresh all the same (`RemediatorProcess(afresh=True)`), as a container does.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).parents[3]
_ANSWERS_WITHIN_S = 60.0
_MAX_BYTES = 1 << 20


class WarmProcess:
    """As much of `subprocess.Popen` as tests use."""

    def __init__(self, flags: list[str], *, cwd: Path, stderr: int, env: dict[str, str]) -> None:
        self.returncode: int | None = None
        self._line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._line.settimeout(_ANSWERS_WITHIN_S)
        self._line.connect(_address())
        asked = json.dumps({"flags": flags, "cwd": str(cwd), "env": env}).encode()
        socket.send_fds(self._line, [asked], [stderr])
        self.pid = int(self._line.recv(64))

    def poll(self) -> int | None:
        """The exit status if it is there; minus the number of the signal that ended it."""
        with contextlib.suppress(TimeoutError, BlockingIOError):
            self._hear(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit status; TimeoutError where it does not end."""
        self._hear(timeout)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Not to one that ended: its number may be another's by now."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)

    def _hear(self, timeout: float | None) -> None:
        if self.returncode is None:
            self._line.settimeout(timeout)
            self.returncode = int(self._line.recv(64))
            self._line.close()


@functools.cache
def _address() -> str:
    """Where the process that has imported everything listens; it ends with this one."""
    folder = tempfile.TemporaryDirectory(prefix="warm")
    address = f"{folder.name}/socket"
    server = subprocess.Popen(
        [sys.executable, "-m", __name__, address],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    atexit.register(folder.cleanup)
    atexit.register(server.communicate)
    assert server.stdout is not None
    assert server.stdout.readline() == b"ready\n"
    return address


def _serve(address: str) -> int:
    """Fork a remediator for whoever asks, until nobody can ask any more; in that process alone."""
    for module in ("remediator.cli", "remediator.run", "remediator.serve.server"):
        importlib.import_module(module)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
        door.bind(address)
        door.listen()
        os.write(1, b"ready\n")
        while door in select.select([door, sys.stdin], [], [])[0]:
            line, _ = door.accept()
            if os.fork() == 0:
                door.close()
                return _follow(line)
            line.close()
    return 0


def _follow(line: socket.socket) -> int:
    """Start one and tell how it ends; in the started process itself this is its whole life."""
    said, (stderr,), _, _ = socket.recv_fds(line, _MAX_BYTES, 1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid:
        os.close(stderr)
        line.send(str(pid).encode())
        _, status = os.waitpid(pid, 0)
        with contextlib.suppress(ConnectionError):
            line.send(str(os.waitstatus_to_exitcode(status)).encode())
        return 0
    line.close()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    asked = json.loads(said)
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["env"])
    nothing = os.open(os.devnull, os.O_RDONLY)
    for given, wanted in ((nothing, 0), (stderr, 1), (stderr, 2)):
        os.dup2(given, wanted)
    os.close(nothing)
    os.close(stderr)
    cli = importlib.import_module("remediator.cli")
    return int(cli.main(["run", *asked["flags"]]))


if __name__ == "__main__":
    sys.exit(_serve(sys.argv[1]))
