"""Isolate unexpected errors: one failing part or object does not stop the others.

`run` starts every background part with `keep`. A part that handles many objects wraps each of them
in `guard`. An unexpected error is logged with the name of the object, counted in
`gpuward_unexpected_errors_total` (alert GPUWardRemediatorUnhealthy) and retried with back-off.
Refusals of the API server, timeouts and broken connections are expected: they are logged, counted
only in `gpuward_api_requests_total`, and retried.
"""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import extract_tb
from typing import Final

import structlog

from remediator.kube import answer
from remediator.kube.answer import ApiError
from remediator.kube.clock import Clock
from rules.api import timestamps
from rules.text import printable

_LOG = structlog.get_logger()

PARTS: Final = (
    "node_check",
    "drain",
    "eviction",
    "notices",
    "owners",
    "fleet",
    "gangs",
    "housekeeping",
    "new_nodes",
    "maintenance",
    "lifecycle",
    "election",
    "policy",
    "watch",
    "loop",
    "drains",
    "records",
    "metrics",
)
"""Parts with a counter of unexpected errors, which starts at 0 so that the first one is an
increase."""
_BACKOFF_S = (0.5, 60.0)
# A part that ran for this long starts again with the shortest wait.
_SOUND_S = 300.0
_SHOWN = 200
_FRAMES = 12


def expected(error: BaseException) -> bool:
    """Whether every client of an API server meets this error: a refusal (410, 429, 5xx and the
    like), a timeout or a broken connection. An unreadable answer is not expected.

    This is the only place that decides it.
    """
    if isinstance(error, ApiError):
        return not error.answer.ok
    return isinstance(error, answer.NO_ANSWER_ERRORS)


class Isolation:
    """Handles the unexpected errors of one process."""

    def __init__(self, clock: Clock, count: Callable[[str], None] = lambda _: None) -> None:
        """`count` is called with the name of a part, one of `PARTS`."""
        self._clock = clock
        self._count = count

    def note(self, part: str, about: str, error: BaseException) -> str:
        """Log and count an error; return it with the place where it was raised."""
        where = printable.place_of(error)
        if expected(error):
            _LOG.warning(
                "tried again later", part=part, about=about[:_SHOWN], why=str(error)[:300]
            )
            return where
        # Places only: the text of an exception may contain data of an object.
        trace = [
            f"{Path(f.filename).name}:{f.lineno} {f.name}"
            for f in extract_tb(error.__traceback__)[-_FRAMES:]
        ]
        _LOG.error("unexpected error", part=part, about=about[:_SHOWN], error=where, trace=trace)
        self._count(part)
        return where

    @contextmanager
    def guard(self, part: str, about: str) -> Iterator[None]:
        """Log and suppress any error raised inside, except for a cancellation and the end of the
        process.
        """
        try:
            yield
        except Exception as error:  # noqa: BLE001 - this is where such errors end
            self.note(part, about, error)

    async def keep(self, part: str, run: Callable[[], Awaitable[None]]) -> None:
        """Run a part until cancelled; start it again with back-off when it fails or ends."""
        failures = 0
        while True:
            began = self._clock.elapsed()
            error: Exception = RuntimeError("a part that never ends has ended")
            try:
                await run()
            except Exception as raised:  # noqa: BLE001 - the other parts go on
                error = raised
            self.note(part, "the entire part", error)
            failures = timestamps.failed_again(failures, self._clock.elapsed() - began, _SOUND_S)
            await self._clock.sleep(timestamps.backoff_s(failures, *_BACKOFF_S))
