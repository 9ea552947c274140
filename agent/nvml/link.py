"""The parent's side of the NVML child: start it, read its messages, enforce timeouts, release it.

The agent owns one `NvmlLink`. Its thread executes the decisions of `supervisor` and passes
messages on. It never waits for a hung child, never starts a second child before the first is
reaped, and never kills a child before its timeout.
"""

import contextlib
import os
import queue
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import msgspec

from agent.nvml import supervisor
from agent.nvml.messages import POLL_S, Calling, Framer, FromChild, Message, Note, ToChild, frame
from agent.nvml.supervisor import Emit, Kill, Output, Send, Spawn, State, Step, StopOrder

READ_BYTES = 1 << 16
NOTE_BYTES = 2048
NOT_STARTED = 1
"""The status of a child that could not be started (no process, descriptors or memory)."""
REAP_POLL_S = 0.1
"""How often a child that closed its pipe is polled until it is reaped."""

Input = Callable[[State, float], Step]
"""An event: the supervisor's function that handles it."""

_decode = msgspec.msgpack.Decoder(FromChild).decode


def interpreter(paths: Iterable[object] = sys.path) -> tuple[list[str], dict[str, str]]:
    """Return command and environment of a Python interpreter with this one's import path.

    It skips start-up files of site packages (-S), which load what the child does not use, and
    ignores the current directory (-P), as the agent's command does.
    """
    root = str(Path(__file__).resolve().parents[2])
    # Imports ignore entries that are not strings.
    path = os.pathsep.join(one for one in (root, *paths) if one and isinstance(one, str))
    return [sys.executable, "-S", "-P"], {**os.environ, "PYTHONPATH": path}


START = State()


class NvmlLink:
    """NVML as a source of messages.

    `mode` is `real`, `off` or `sim:FILE`. `on_message` gets every `Message` in order, from the
    link's thread, and must not block. `poll_s` is the period of the fastest polling tier. `goe` is
    `auto` or `off`. `start_process` starts the child.
    """

    def __init__(
        self,
        mode: str,
        on_message: Callable[[Message], None],
        poll_s: float = POLL_S,
        goe: str = "off",
        *,
        state: State = START,
        start_process: Callable[..., subprocess.Popen[bytes]] = subprocess.Popen,
    ) -> None:
        self._mode = mode
        self._goe = goe
        self._poll_s = poll_s
        self._on_message = on_message
        self._state = state
        self._start_process = start_process
        self._child: subprocess.Popen[bytes] | None = None
        self._framer = Framer()
        self._ended = False
        self._clean = True
        self._commands: queue.SimpleQueue[Input] = queue.SimpleQueue()
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._thread = threading.Thread(target=self._run, name="nvml-link", daemon=True)

    def start(self) -> None:
        """Start the thread and, unless the mode is `off`, the child."""
        if self._mode == "off":
            self._on_message(supervisor.OFF)
        else:
            self._thread.start()

    def release(self, reason: str) -> None:
        """Release NVML: the child ends and the source becomes Released. Idempotent."""
        self._command(partial(supervisor.release, reason=reason))

    def resume(self) -> None:
        """End a release: start a new child. Idempotent."""
        self._command(supervisor.resume)

    def request_refresh(self) -> None:
        """Enumerate again and read every tier now, such as after a reset."""
        self._command(supervisor.refresh)

    def reinitialise(self) -> None:
        """Start a new child, which initialises NVML again and finds newly bound GPUs.

        Do not use it to refresh readings: without persistence mode the driver unloads the GPUs
        when its last client ends.
        """
        self._command(supervisor.reinitialise)

    def gsp_timeout_seen(self) -> None:
        """Do not kill a hung child for 10 minutes, because of an Xid 119 or 120."""
        self._command(supervisor.gsp_timeout_seen)

    def close(self, timeout_s: float = 60.0) -> bool:
        """Ask the child to end and wait; return False if it hangs and was left running.

        A child that is left running ends after its current call, because its standard input is
        closed.
        """
        if self._thread.is_alive():
            self._command(partial(supervisor.close, timeout_s=timeout_s))
            self._thread.join()
        return self._clean

    def _command(self, command: Input) -> None:
        if self._thread.is_alive():
            self._commands.put(command)
            with contextlib.suppress(BlockingIOError):
                # A full pipe wakes the thread as well.
                os.write(self._wake_write, b"\0")

    def _run(self) -> None:
        self._feed(supervisor.tick)
        while not self._ended:
            self._wait()
            while not self._commands.empty():
                self._feed(self._commands.get())
            self._feed(supervisor.tick)
        os.close(self._wake_read)
        os.close(self._wake_write)

    def _wait(self) -> None:
        """Sleep until the child sends or ends, a command arrives, or a deadline is due."""
        poll = select.poll()
        poll.register(self._wake_read, select.POLLIN)
        child = self._child
        due = supervisor.next_deadline(self._state)
        timeout_s = None if due is None else max(0.0, due - time.monotonic())
        if child is not None and child.stdout is not None and child.stderr is not None:
            if child.stdout.closed:
                timeout_s = min(REAP_POLL_S, timeout_s or REAP_POLL_S)
            else:
                poll.register(child.stdout, select.POLLIN)
            if not child.stderr.closed:
                poll.register(child.stderr, select.POLLIN)
        # Rounded up: waking a millisecond early would spin until the deadline.
        ready = {
            fd for fd, _ in poll.poll(None if timeout_s is None else int(timeout_s * 1000) + 1)
        }
        if self._wake_read in ready:
            os.read(self._wake_read, READ_BYTES)
        if child is not None:
            self._listen(child, ready)

    def _listen(self, child: subprocess.Popen[bytes], ready: set[int]) -> None:
        if child.stderr is not None and not child.stderr.closed and child.stderr.fileno() in ready:
            self._read_notes(child.stderr.fileno(), child.stderr.close)
        if child.stdout is None:
            return
        if not child.stdout.closed and child.stdout.fileno() in ready:
            data = os.read(child.stdout.fileno(), READ_BYTES)
            if not data or not self._receive(data):
                child.stdout.close()
        if child.stdout.closed and child.poll() is not None:
            self._forget(child)
            self._feed(partial(supervisor.exited, status=child.returncode))

    def _receive(self, data: bytes) -> bool:
        """Pass the child's messages on; return False if the stream is corrupt."""
        try:
            messages = [_decode(body) for body in self._framer.feed(data)]
        except (ValueError, msgspec.DecodeError) as error:
            self._on_message(
                Note(f"The NVML child sent an invalid message ({error}). Restarting it.")
            )
            return False
        for message in messages:
            if not isinstance(message, Calling):
                # Before the supervisor's status: an inventory precedes "Up".
                self._on_message(message)
            self._feed(partial(supervisor.child_reported, message=message))
        return True

    def _read_notes(self, fd: int, close: Callable[[], None]) -> None:
        data = os.read(fd, NOTE_BYTES)
        if not data:
            close()
        for line in data.decode("utf-8", "backslashreplace").splitlines():
            if line.strip():
                self._on_message(Note(line))

    def _feed(self, event: Input) -> None:
        self._state, outputs = event(self._state, time.monotonic())
        for output in outputs:
            self._execute(output)

    def _execute(self, output: Output) -> None:
        match output:
            case Spawn():
                self._framer = Framer()
                try:
                    self._child = self._spawn()
                except OSError as error:
                    self._on_message(Note(f"The NVML child cannot be started: {error}."))
                    self._feed(partial(supervisor.exited, status=NOT_STARTED))
            case Kill():
                if self._child is not None:
                    self._child.kill()
            case Send(message):
                self._send(message)
            case Emit(status):
                self._on_message(status)
            case StopOrder(clean):
                self._ended, self._clean = True, clean
                if self._child is not None:
                    self._forget(self._child)

    def _send(self, message: ToChild) -> None:
        if self._child is None or self._child.stdin is None:
            return
        try:
            os.write(self._child.stdin.fileno(), frame(message))
        except (BrokenPipeError, BlockingIOError):
            # The child is ending, or hangs and does not read: the supervisor waits for its end.
            return

    def _forget(self, child: subprocess.Popen[bytes]) -> None:
        for pipe in (child.stdin, child.stdout, child.stderr):
            if pipe is not None and not pipe.closed:
                pipe.close()
        self._child = None

    def _spawn(self) -> subprocess.Popen[bytes]:
        command, environment = interpreter()
        child = self._start_process(
            [*command, "-m", "agent.nvml.child", self._mode, str(self._poll_s), self._goe],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            close_fds=True,
            env=environment,
        )
        if child.stdin is not None:
            os.set_blocking(child.stdin.fileno(), False)
        return child
