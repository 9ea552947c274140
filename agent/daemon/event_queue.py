"""The one queue between the collectors' threads and the main loop.

Collectors put, the main loop gets. Slow collectors put without waiting; the kernel log, which can
produce faster than judgement reads, waits for room: meanwhile the kernel's own ring holds its
records, and what is overwritten there is counted as a gap instead of eating this process's memory.
"""

import queue
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from agent.nvml.messages import Note, NvmlStatus
from agent.publish.publish import Accepted, Known, Trouble
from rules.judge.observation import Observation

T = TypeVar("T")

DEFAULT_ROOM = 4096
"""Kernel facts under way at once: about 4 MiB at the longest line, half a second of judgement."""


class EventQueue(Generic[T]):
    """A FIFO of facts for one consumer, with bounded room for the one fast producer."""

    def __init__(self, room: int = DEFAULT_ROOM) -> None:
        self.queue: queue.SimpleQueue[T] = queue.SimpleQueue()
        self._room = threading.Semaphore(room)

    def put(self, item: T) -> None:
        """Hand over a fact of a slow collector."""
        self.queue.put(item)

    def put_when_room(self, item: T, *, give_up: Callable[[], bool]) -> bool:
        """Hand over a fact of the fast producer, waiting for room; False when told to give up."""
        while not self._room.acquire(timeout=0.5):
            if give_up():
                return False
        self.queue.put(item)
        return True

    def get(self, timeout_s: float) -> T | None:
        """The oldest fact, or None after `timeout_s` seconds without one."""
        try:
            return self.queue.get(timeout=max(0.0, timeout_s))
        except queue.Empty:
            return None

    def judged(self) -> None:
        """The consumer took a fact of the fast producer: there is room for another."""
        self._room.release()


class Stop(msgspec.Struct, frozen=True):
    """End the loop; `status` is the exit status, `sentence` the reason."""

    status: int
    sentence: str


class Log(msgspec.Struct, frozen=True):
    """A sentence of another thread for the log; `well` when a trouble is over."""

    sentence: str
    well: bool = False


Item = Observation | NvmlStatus | Note | Known | Accepted | Trouble | Log | Stop
