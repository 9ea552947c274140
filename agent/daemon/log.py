"""The agent's own log: one sentence per event with named values, JSON in a cluster.

Made once by `agent.daemon.run`. Never give it a secret, a token or an entire object.
"""

import contextlib
import json
import sys
from datetime import UTC, datetime
from typing import Any


class Logger:
    """Writes to standard error: one JSON object a line, or a line for people on a terminal.

    Standard error may be full or gone: then a line is lost, not the agent.
    """

    def __init__(self, *, for_people: bool = False) -> None:
        self._for_people = for_people

    def info(self, sentence: str, **values: Any) -> None:
        """What happened."""
        self._say("info", sentence, values)

    def warning(self, sentence: str, **values: Any) -> None:
        """What an operator should look at."""
        self._say("warning", sentence, values)

    def error(self, sentence: str, **values: Any) -> None:
        """What went wrong here."""
        self._say("error", sentence, values)

    def _say(self, level: str, sentence: str, values: dict[str, Any]) -> None:
        now = datetime.now(UTC)
        if self._for_people:
            said = "".join(f" {name}={value}" for name, value in values.items())
            line = f"{now:%H:%M:%S} UTC [{level:<7}] {sentence}{said}"
        else:
            at = now.isoformat(timespec="microseconds").replace("+00:00", "Z")
            fields = {**values, "level": level, "timestamp": at, "message": sentence}
            line = json.dumps(fields, default=repr)
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()


def logger(style: str) -> Logger:
    """A logger of this style: `json`, `console`, or `auto`: console on a terminal, else JSON."""
    if style == "auto":
        style = "console" if sys.stderr.isatty() else "json"
    return Logger(for_people=style == "console")
