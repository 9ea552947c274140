"""The agent's log: one sentence per event with named values, as JSON in a cluster.

Created by `agent.daemon.run`. Never log a secret, a token or an entire object.
"""

import contextlib
import json
import sys
from datetime import UTC, datetime
from typing import Any


class Logger:
    """Writes to standard error: one JSON object a line, or plain text on a terminal.

    A line that cannot be written is dropped.
    """

    def __init__(self, *, console: bool = False) -> None:
        self._console = console

    def info(self, sentence: str, **values: Any) -> None:
        """Log an event."""
        self._write("info", sentence, values)

    def warning(self, sentence: str, **values: Any) -> None:
        """Log a problem that may need an operator."""
        self._write("warning", sentence, values)

    def error(self, sentence: str, **values: Any) -> None:
        """Log a failure of the agent."""
        self._write("error", sentence, values)

    def _write(self, level: str, sentence: str, values: dict[str, Any]) -> None:
        now = datetime.now(UTC)
        if self._console:
            fields = "".join(f" {name}={value}" for name, value in values.items())
            line = f"{now:%H:%M:%S} UTC [{level:<7}] {sentence}{fields}"
        else:
            at = now.isoformat(timespec="microseconds").replace("+00:00", "Z")
            record = {**values, "level": level, "timestamp": at, "message": sentence}
            line = json.dumps(record, default=repr)
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()


def logger(style: str) -> Logger:
    """Return a logger of style `json`, `console`, or `auto` (console on a terminal, else JSON)."""
    if style == "auto":
        style = "console" if sys.stderr.isatty() else "json"
    return Logger(console=style == "console")
