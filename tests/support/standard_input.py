"""Give a command standard input, as `contextlib.redirect_stdout` gives it standard output."""

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager


class Terminal(io.StringIO):
    """A terminal at which a user types."""

    def isatty(self) -> bool:
        return True


@contextmanager
def standard_input(text: str | bytes) -> Iterator[None]:
    """Read a terminal with this text, or a pipe with these bytes."""
    before = sys.stdin
    sys.stdin = Terminal(text) if isinstance(text, str) else io.TextIOWrapper(io.BytesIO(text))
    try:
        yield
    finally:
        sys.stdin = before
