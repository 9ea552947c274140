"""Programs of gpuward forked from a process that has imported them already.

Of what a program computes in a test of some seconds, half and more is imports. What is forked is
a process of its own with the same code, arguments, environment, streams, signals and end; only
imports are spared, to its own children as well. Some tests start theirs again all the same, as a
container does.
"""

import atexit
import contextlib
import gc
import importlib
import io
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any, Final, NoReturn

REPOSITORY: Final = Path(__file__).parents[3]
_OPTIONS: Final = {"-S", "-P"}
"""Of the interpreter; what they keep out, no program of gpuward would take from there."""
_ANSWERS_WITHIN_S: Final = 60.0
_MAX_BYTES: Final = 1 << 20
_CWD, _ENVIRONMENT, _STREAMS, _SESSION = 4, 5, slice(9, 15), -2
"""Where `Popen` has them in what it gives to a start, after the command."""

IMPORTED: Final = {
    "agent": (*("agent.daemon.run", "agent.nvml.life", "agent.nvml.child", "hack.sim.driver"),),
    "remediator": (
        *("remediator.cli", "remediator.run", "remediator.page.server"),
        *("remediator.kubectl.command", "remediator.kubectl.cluster"),
    ),
}
"""By package: what its programs import. Each has a process of its own to fork from, since the
agent keeps modules out that others need.
"""


class WarmProcess(subprocess.Popen[bytes]):
    """`subprocess.Popen`, forked where it is to run a module of gpuward, otherwise started."""

    _line: socket.socket | None = None

    def _execute_child(self, args: Any, *given: Any) -> None:
        """Have it forked instead: what `Popen` calls once the pipes are made."""
        order = _order(args)
        if order is None:
            super()._execute_child(args, *given)  # type: ignore[misc]
            return
        cwd, env, session = given[_CWD], given[_ENVIRONMENT], given[_SESSION]
        stdin, _, _, stdout, _, stderr = streams = given[_STREAMS]
        order["cwd"] = os.fspath(cwd or Path.cwd())
        order["env"] = dict(os.environ if env is None else env)
        order["session"] = bool(session)
        self._hearing = threading.Lock()
        self._line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._line.settimeout(_ANSWERS_WITHIN_S)
        self._line.connect(_address(order["module"].partition(".")[0]))
        ours = [place if fd == -1 else fd for place, fd in enumerate((stdin, stdout, stderr))]
        socket.send_fds(self._line, [json.dumps(order).encode()], ours)
        self.pid = int(self._line.recv(64))
        self._child_created = True
        self._close_pipe_fds(*streams)  # type: ignore[attr-defined]

    def poll(self) -> int | None:
        """The exit status if it is there; minus the number of the signal that ended it."""
        if self._line is None:
            return super().poll()
        self._hear(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit status. Raises TimeoutExpired where it does not end in time."""
        if self._line is None:
            return super().wait(timeout)
        self._hear(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return self.returncode

    def _hear(self, timeout: float | None) -> None:
        """Wait for its end so long; another thread may be waiting, too."""
        assert self._line is not None
        if self._hearing.acquire(timeout=-1 if timeout is None else timeout):
            try:
                if self.returncode is None and select.select([self._line], [], [], timeout)[0]:
                    self.returncode = int(self._line.recv(64))
                    self._line.close()
            finally:
                self._hearing.release()


def _order(args: Any) -> dict[str, Any] | None:
    """The module and arguments of a command that can be forked."""
    arguments = (
        [] if isinstance(args, str | bytes | os.PathLike) else [os.fspath(one) for one in args]
    )
    if not arguments or arguments.pop(0) != sys.executable:
        return None
    while arguments and arguments[0] in _OPTIONS:
        del arguments[0]
    if (
        len(arguments) < 2
        or arguments[0] != "-m"
        or arguments[1].partition(".")[0] not in IMPORTED
    ):
        return None
    return {"module": arguments[1], "arguments": arguments[2:]}


_ADDRESSES: Final[dict[str, str]] = {}
"""Where a process that has imported everything listens, by package."""
_starting: Final = threading.Lock()


def begin() -> None:
    """Start them now, for all processes that this one forks later as well."""
    for package in IMPORTED:
        _address(package)


def _address(package: str) -> str:
    with _starting:
        if package not in _ADDRESSES:
            _ADDRESSES[package] = _begin(package)
    return _ADDRESSES[package]


def _begin(package: str) -> str:
    """Start one; it ends with this process. A request before it is ready waits."""
    folder = tempfile.TemporaryDirectory(prefix="warm")
    address = f"{folder.name}/socket"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
        door.bind(address)
        door.listen()
        server = subprocess.Popen(
            [sys.executable, "-m", __name__, package, address, str(door.fileno())],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            pass_fds=[door.fileno()],
        )
    atexit.register(folder.cleanup)
    atexit.register(server.communicate)
    return address


def _serve(package: str, address: str, listening: str) -> None:
    """Fork a program per request until the last client is gone; runs in its own process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for module in IMPORTED[package]:
        importlib.import_module(module)
    # A collector of garbage that looks through what is shared would have it copied.
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, _reap)
    _ADDRESSES[package] = address
    with socket.socket(fileno=int(listening)) as door:
        while door in select.select([door, sys.stdin], [], [])[0]:
            line, _ = door.accept()
            if os.fork() == 0:
                door.close()
                _follow(line)
                return
            line.close()


def _reap(_number: int, _frame: object) -> None:
    """Wait for them, so that their CPU time counts for the test run."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass


def _follow(line: socket.socket) -> None:
    """Start one and send its exit status; the started process runs inside this function."""
    payload, streams, _, _ = socket.recv_fds(line, _MAX_BYTES, 3)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid:
        for stream in (0, 1, *streams):
            os.close(stream)
        line.send(str(pid).encode())
        _, status = os.waitpid(pid, 0)
        with contextlib.suppress(ConnectionError):
            line.send(str(os.waitstatus_to_exitcode(status)).encode())
        os._exit(0)
    line.close()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for stream, wanted in zip(streams, (0, 1, 2), strict=True):
        os.dup2(stream, wanted)
        os.close(stream)
    # Made again: the old ones know what kind of file they had before.
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    unbuffered = os.fdopen(2, "wb", buffering=0, closefd=False)
    sys.stderr = io.TextIOWrapper(unbuffered, errors="backslashreplace", line_buffering=True)
    order = json.loads(payload)
    if order["session"]:
        os.setsid()
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    vars(subprocess)["Popen"] = WarmProcess
    sys.argv[:] = [order["module"], *order["arguments"]]
    sys.modules.pop(order["module"], None)
    try:
        runpy.run_module(order["module"], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if isinstance(end.code, int):
            _end(end.code)
        raise


def _end(status: int) -> NoReturn:
    """End as an interpreter does, without taking all modules apart that nobody else will see."""
    vars(threading)["_shutdown"]()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
