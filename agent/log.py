"""The agent's own log: one sentence per event with named values, JSON in a cluster.

Configured once by `agent.run`. Never give it a secret, a token or a whole object.
"""

import contextlib
import sys
from typing import Any, TextIO, cast

_NO_RICH = "rich" not in sys.modules
if _NO_RICH:
    # structlog loads rich for its tracebacks wherever it is installed: 8 MiB that a daemon on
    # every GPU node has no use for. None in sys.modules makes that one import fail.
    sys.modules["rich"] = None  # type: ignore[assignment]  # the documented way to forbid an import
import structlog  # noqa: E402 - after the lines above, which exist for it

if _NO_RICH:
    del sys.modules["rich"]


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
