"""Who is waited for, where an answer takes long: a person shall not guess."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from remediator.kubectl.command import Manner

SLOW_S = 5.0
"""After so long without an answer a person is told who is waited for."""
NO_LIMIT_S = 86_400.0


class Patience:
    """Says it once for a command, and only where a person looks on."""

    def __init__(self, manner: Manner, host: str) -> None:
        self._manner = manner
        self._host = host
        self._told = not manner.attended

    @contextmanager
    def waiting(self, timeout_s: float) -> Iterator[None]:
        """While one request is under way, which may take `timeout_s` seconds."""
        timer = asyncio.get_running_loop().call_later(SLOW_S, self._tell, timeout_s)
        try:
            yield
        finally:
            timer.cancel()

    def _tell(self, timeout_s: float) -> None:
        if self._told:
            return
        self._told = True
        limit = "without a limit" if timeout_s >= NO_LIMIT_S else f"up to {timeout_s:g} s"
        self._manner.say(
            f"still waiting for {self._host}, {limit} for each request (--request-timeout); "
            "Ctrl-C ends it"
        )
