"""The agent's own log: one sentence per event with named values, JSON in a cluster.

Configured once by `agent.daemon.run`. Never give it a secret, a token or a whole object.
"""

from __future__ import annotations

import contextlib
import json
import sys
from datetime import UTC, datetime
from typing import Any, Protocol


class Logger(Protocol):
    """Takes a sentence and named values."""

    def info(self, sentence: str, **values: Any) -> None:
        """What happened."""

    def warning(self, sentence: str, **values: Any) -> None:
        """What a person should look at."""

    def error(self, sentence: str, **values: Any) -> None:
        """What went wrong here."""


class _StandardError:
    """Standard error that may be full or gone: then a log line is lost, not the agent."""

    def write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()


class _JsonLogger:
    """One JSON object a line, as structlog writes it, without its four megabytes."""

    def __init__(self) -> None:
        self._to = _StandardError()

    def info(self, sentence: str, **values: Any) -> None:
        self._say("info", sentence, values)

    def warning(self, sentence: str, **values: Any) -> None:
        self._say("warning", sentence, values)

    def error(self, sentence: str, **values: Any) -> None:
        self._say("error", sentence, values)

    def _say(self, level: str, sentence: str, values: dict[str, Any]) -> None:
        at = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        said = {**values, "level": level, "timestamp": at, "message": sentence}
        self._to.write(json.dumps(said, default=repr) + "\n")
        self._to.flush()


_logger: Logger = _JsonLogger()


def configure(style: str) -> None:
    """`json`, `console`, or `auto`: console on a terminal, else JSON. Writes to standard error."""
    global _logger
    if style == "auto":
        style = "console" if sys.stderr.isatty() else "json"
    _logger = _JsonLogger() if style == "json" else _for_people()


def get() -> Logger:
    """The logger that was configured last."""
    return _logger


def _for_people() -> Logger:
    # Imported here: a daemon in a cluster never draws for a terminal.
    import structlog

    logger: Logger = structlog.wrap_logger(
        structlog.WriteLogger(_StandardError()),  # type: ignore[arg-type]  # writes and flushes
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%H:%M:%S UTC", utc=True),
            structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()),
        ],
    )
    return logger
