"""What happens when a part of the process fails in a way that nobody foresaw: the others go on.

`run` keeps every background part with `keep`; a part that works on many objects guards each of
them with `guard`, so that one object costs only itself. Every such error is said with the name of
the object, counted in `gpuward_unexpected_errors_total` (alert GPUWardRemediatorUnhealthy) and
followed by another attempt with back-off. A refusal of the API server, a timeout and a broken
connection are expected: they are logged, counted in `gpuward_api_requests_total` alone, and
followed by another attempt, too.
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
    "look",
    "drain",
    "eviction",
    "owners",
    "fleet",
    "gangs",
    "housekeeping",
    "new_nodes",
    "maintenance",
    "election",
    "policy",
    "watch",
    "loop",
    "drains",
    "records",
    "metrics",
)
"""Every part that counts its surprises; counted from 0, so that the first one is an increase."""
_BACKOFF_S = (0.5, 60.0)
# A part that worked for so long begins again with the shortest wait.
_SOUND_S = 300.0
_SHOWN = 200
_FRAMES = 12


def expected(error: BaseException) -> bool:
    """Whether every client of an API server meets this: it refused (410, 429, 5xx and the like),
    was silent for too long, or broke the connection. This is the only place that decides it: who
    catches such an error elsewhere does so for what it means there.

    An answer that it gave and that cannot be read is not expected.
    """
    if isinstance(error, ApiError):
        return not error.answer.ok
    return isinstance(error, answer.NO_ANSWER_ERRORS)


class Isolation:
    """The surprises of one process."""

    def __init__(self, clock: Clock, count: Callable[[str], None] = lambda _: None) -> None:
        """`count` takes the part's name, one of `PARTS`."""
        self._clock = clock
        self._count = count

    def note(self, part: str, about: str, error: BaseException) -> str:
        """Say and count one; the error and where it was raised, for a sentence."""
        where = printable.place_of(error)
        if expected(error):
            _LOG.warning(
                "tried again later", part=part, about=about[:_SHOWN], why=str(error)[:300]
            )
            return where
        # Places only: the words of an exception may be those of an object.
        trace = [
            f"{Path(f.filename).name}:{f.lineno} {f.name}"
            for f in extract_tb(error.__traceback__)[-_FRAMES:]
        ]
        _LOG.error("unexpected error", part=part, about=about[:_SHOWN], error=where, trace=trace)
        self._count(part)
        return where

    @contextmanager
    def guard(self, part: str, about: str) -> Iterator[None]:
        """Any error raised inside is noted and ends only what is inside; a cancellation and the
        end of the process go on.
        """
        try:
            yield
        except Exception as error:  # noqa: BLE001 - this is where such errors end
            self.note(part, about, error)

    async def keep(self, part: str, run: Callable[[], Awaitable[None]]) -> None:
        """Run a part that never ends, again and again where it does, until cancelled."""
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
