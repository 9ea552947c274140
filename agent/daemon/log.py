"""The agent's own log: one sentence per event with named values, JSON in a cluster.

Configured once by `agent.daemon.run`. Never give it a secret, a token or a whole object.
"""

from __future__ import annotations

import contextlib
import sys
import types
from typing import Any, TextIO, cast

_UNUSED = {
    # structlog loads rich for its tracebacks wherever it is installed: 8 MiB that a daemon on
    # every GPU node has no use for. None in sys.modules makes that one import fail.
    "rich": None,
    # Its asynchronous loggers, which nobody here calls, bring 2 MiB: an empty module will do.
    "asyncio": types.ModuleType("asyncio"),
}
_KEPT_OUT = [name for name in _UNUSED if name not in sys.modules]
for _name in _KEPT_OUT:
    vars(sys)["modules"][_name] = _UNUSED[_name]
import structlog  # noqa: E402 - after the lines above, which exist for it

for _name in _KEPT_OUT:
    del sys.modules[_name]


class _StandardError:
    """Standard error that may be full or gone: then a log line is lost, not the agent."""

    def write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()


def configure(style: str) -> None:
    """`json`, `console`, or `auto`: console on a terminal, else JSON. Writes to standard error."""
    if style == "auto":
        style = "console" if sys.stderr.isatty() else "json"
    renderer: Any = structlog.processors.JSONRenderer()
    if style == "console":
        renderer = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.EventRenamer("message"),
            renderer,
        ]
        if style == "json"
        else [
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False),
            renderer,
        ],
        logger_factory=structlog.WriteLoggerFactory(file=cast("TextIO", _StandardError())),
        cache_logger_on_first_use=True,
    )


def get() -> Any:
    """The logger; its methods take a sentence and named values."""
    return structlog.get_logger()
