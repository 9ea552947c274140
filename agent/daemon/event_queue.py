"""The queue from the collectors' threads to the main loop.

Slow collectors put facts without waiting. The kernel log reader can be faster than the main loop,
so it waits for room, which bounds the agent's memory. Meanwhile the kernel's ring buffer holds the
records; overwritten ones are counted as a gap.
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
"""Kernel facts in the queue at most: about 4 MiB with the longest lines, half a second of work."""


class EventQueue(Generic[T]):
    """A FIFO of facts for one consumer, with bounded room for one fast producer."""

    def __init__(self, room: int = DEFAULT_ROOM) -> None:
        self.queue: queue.SimpleQueue[T] = queue.SimpleQueue()
        self._room = threading.Semaphore(room)

    def put(self, item: T) -> None:
        """Add a fact of a slow collector."""
        self.queue.put(item)

    def put_when_room(self, item: T, *, give_up: Callable[[], bool]) -> bool:
        """Wait for room and add a fact of the fast producer; return False if `give_up()`."""
        while not self._room.acquire(timeout=0.5):
            if give_up():
                return False
        self.queue.put(item)
        return True

    def get(self, timeout_s: float) -> T | None:
        """Return the oldest fact, or None after `timeout_s` without one."""
        try:
            return self.queue.get(timeout=max(0.0, timeout_s))
        except queue.Empty:
            return None

    def judged(self) -> None:
        """Make room for another fact of the fast producer."""
        self._room.release()


class Stop(msgspec.Struct, frozen=True):
    """Stop the loop; `status` is the exit status, `sentence` the reason."""

    status: int
    sentence: str


class Log(msgspec.Struct, frozen=True):
    """A message of another thread for the log; `well` if it is not a problem."""

    sentence: str
    well: bool = False


Item = Observation | NvmlStatus | Note | Known | Accepted | Trouble | Log | Stop
