"""One process for each GPU, asked together and waited for with a deadline.

Used by `course`. A process that does not answer in time has hung; one whose pipe closes has died.
Neither is asked again, and neither is killed before the end: a process inside the driver may be
all that keeps a GPU from getting worse.
"""

from __future__ import annotations

import os
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from agent.validate.messages import Answer, Order, line
from agent.validate.processes import DIE_WITHIN_S, module_command, module_environment

MAX_LINE: Final = 1 << 20
END_WITHIN_S: Final = 5.0
"""For a process that was told to end; the driver takes its memory back meanwhile."""


class Hung(msgspec.Struct, frozen=True):
    """No answer within so many seconds."""

    seconds: float


class Died(msgspec.Struct, frozen=True):
    """The process ended without an answer; a negative status is a signal."""

    status: int


Heard = Answer | Hung | Died
_Process = subprocess.Popen[bytes]


class Crew:
    """The processes, by the UUID of their GPU."""

    def __init__(self, mode: str, gpus: Sequence[str]) -> None:
        self._mode = mode
        self._heard: queue.Queue[tuple[_Process, bytes]] = queue.Queue()
        self._all: list[tuple[str, _Process]] = []
        self._at_work = {gpu: self._begin(gpu) for gpu in gpus}

    def ask(
        self,
        orders: Mapping[str, Order],
        deadline_s: float,
        meanwhile: Callable[[], None] | None = None,
    ) -> dict[str, Heard]:
        """Send everybody's order and wait for all the answers, so long at the most.

        `meanwhile` runs in between and takes from the same time. A GPU whose process is no longer
        at work is left out.
        """
        asked = {self._at_work[gpu]: gpu for gpu in orders if gpu in self._at_work}
        heard: dict[str, Heard] = {}
        ends_at = time.monotonic() + deadline_s
        for process, gpu in asked.items():
            assert process.stdin is not None
            # A process that is gone is heard of as a closed pipe.
            with suppress(OSError):
                os.write(process.stdin.fileno(), line(orders[gpu]))
        if meanwhile is not None:
            meanwhile()
        while len(heard) < len(asked):
            try:
                process, said = self._heard.get(timeout=max(0.0, ends_at - time.monotonic()))
            except queue.Empty:
                break
            if process in asked:
                heard[asked[process]] = _understood(process, said)
        heard |= {gpu: Hung(deadline_s) for gpu in asked.values() if gpu not in heard}
        for gpu, answer in heard.items():
            if isinstance(answer, Hung | Died):
                del self._at_work[gpu]
        return heard

    def renew(self, gpu: str) -> None:
        """Another process for this GPU: an error may have spoilt what the old one holds."""
        old = self._at_work.get(gpu)
        if old is not None and old.stdin is not None:
            with suppress(OSError):
                old.stdin.close()
        self._at_work[gpu] = self._begin(gpu)

    def close(self) -> list[str]:
        """End every process. The GPUs whose process even a kill did not end."""
        for _, process in self._all:
            if process.stdin is not None:
                with suppress(OSError):
                    process.stdin.close()
        at_work = set(self._at_work.values())
        ends_at = time.monotonic() + END_WITHIN_S
        for _, process in self._all:
            within_s = max(0.0, ends_at - time.monotonic()) if process in at_work else 0.0
            if not _ended(process, within_s):
                process.kill()
        return [gpu for gpu, process in self._all if not _ended(process, DIE_WITHIN_S)]

    def _begin(self, gpu: str) -> _Process:
        process = _start(self._mode)
        self._all.append((gpu, process))
        threading.Thread(target=self._listen, args=(process,), daemon=True).start()
        return process

    def _listen(self, process: _Process) -> None:
        """Hand on each line; an empty one is the end. Its own thread, ended by the pipe."""
        assert process.stdout is not None
        with process.stdout as pipe:
            while said := pipe.readline(MAX_LINE):
                self._heard.put((process, said))
        self._heard.put((process, b""))


def _start(mode: str) -> subprocess.Popen[bytes]:
    """A process of its own group, so that a Ctrl-C is the parent's to answer."""
    return subprocess.Popen(  # noqa: S603 - our own module
        module_command("agent.validate.worker", mode),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        env=module_environment(),
    )


def _understood(process: _Process, said: bytes) -> Heard:
    try:
        return msgspec.json.decode(said, type=Answer)  # type: ignore[no-any-return]
    except msgspec.DecodeError:
        _ended(process, DIE_WITHIN_S)
        return Died(process.returncode or 0)


def _ended(process: subprocess.Popen[bytes], within_s: float) -> bool:
    try:
        process.wait(within_s)
    except subprocess.TimeoutExpired:
        return False
    return True
