"""The person at the terminal: what they are asked, and told while something takes long."""

from __future__ import annotations

import signal
import sys

from remediator.kubectl.command import CommandError
from remediator.view.text import fitted
from rules.text.printable import printable


class Terminal:
    """Standard input and standard error; standard output is for the answer alone."""

    def __init__(self, *, agreed: bool, dry_run: bool = False) -> None:
        self._agreed = agreed
        self._dry_run = dry_run

    def say(self, line: str) -> None:
        """Progress, one line."""
        sys.stderr.write(f"{fitted(printable(line), sys.stderr)}\n")
        sys.stderr.flush()

    def ask(self, question: str) -> None:
        """Go on only after a yes; CommandError when the answer is no or nobody can answer."""
        if self._agreed:
            return
        if self._dry_run:
            # Nothing comes of it, so there is nothing to agree to: only to be known.
            self.say(question)
            return
        if not sys.stdin.isatty():
            raise CommandError(f"{printable(question)} Nothing was done; agree with --yes")
        sys.stderr.write(f"{fitted(f'{printable(question)} [y/N]', sys.stderr)} ")
        sys.stderr.flush()
        if self._answer() not in {"y", "yes"}:
            raise CommandError("nothing was done")

    def _answer(self) -> str:
        # The event loop would swallow the first Ctrl-C while this thread waits for a line.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            return sys.stdin.readline().strip().lower()
        finally:
            signal.signal(signal.SIGINT, before)
