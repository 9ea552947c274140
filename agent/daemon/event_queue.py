"""The queue from the collectors' threads to the main loop.

The kernel log reader can be faster than the main loop, so it waits while the queue is full. This
limits the agent's memory. The other collectors never wait. Records that the kernel overwrites in
the meantime are counted as lost.
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
"""Maximum number of kernel facts: about 4 MiB with the longest lines, half a second of work."""


class EventQueue(Generic[T]):
    """A FIFO queue with one consumer. Its size limit applies to the kernel log reader only."""

    def __init__(self, room: int = DEFAULT_ROOM) -> None:
        self.queue: queue.SimpleQueue[T] = queue.SimpleQueue()
        self._room = threading.Semaphore(room)

    def put(self, item: T) -> None:
        """Add a fact without waiting."""
        self.queue.put(item)

    def put_when_room(self, item: T, *, give_up: Callable[[], bool]) -> bool:
        """Add a fact of the kernel log when the queue has room; return False if `give_up()`."""
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

    def task_done(self) -> None:
        """Let the kernel log reader add another fact."""
        self._room.release()


class Stop(msgspec.Struct, frozen=True):
    """Stop the main loop with the exit status `status`; `message` is the reason."""

    status: int
    message: str


class Log(msgspec.Struct, frozen=True):
    """A log message of another thread, at level info or warning."""

    message: str
    info: bool = False


Item = Observation | NvmlStatus | Note | Known | Accepted | Trouble | Log | Stop
