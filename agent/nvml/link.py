"""The parent's end of the NVML child: starts it, listens, holds the deadlines, lets go on request.

The agent's main loop owns one `NvmlLink` and reads its queue. The link runs one thread, which
executes what the pure `supervisor` decides. It must never wait for a hung child in the caller's
thread, never start a second child before the first is reaped, and never kill one early.
"""

import queue
import time
from collections.abc import Callable

from agent.nvml.messages import Message

__all__ = ["NvmlLink"]


class NvmlLink:
    """NVML as a source of messages.

    `mode` is `real`, `off` or `sim:FILE`. Every `Message` goes into `inbox`, the main loop's
    queue; the first is a `SourceStatus`. `clock` is monotonic seconds.
    """

    def __init__(
        self,
        mode: str,
        inbox: "queue.SimpleQueue[Message]",
        clock: Callable[[], float] = time.monotonic,
    ) -> None: ...

    def start(self) -> None:
        """Start the thread and, unless the mode is `off`, the child."""

    def release(self, reason: str) -> None:
        """Let go of NVML: the child finishes; the source becomes Released. Idempotent."""

    def resume(self) -> None:
        """End a release: a new child starts. Idempotent."""

    def request_refresh(self) -> None:
        """Enumerate again and read every tier now (after a reset, a bind, a person's wish)."""

    def gsp_timeout_seen(self) -> None:
        """An Xid 119 or 120 was seen: a hung child is not killed for 10 minutes from now."""

    def close(self, timeout_s: float = 60.0) -> bool:
        """Ask the child to finish and wait; False when it hangs and was left to end by itself."""
        raise NotImplementedError
