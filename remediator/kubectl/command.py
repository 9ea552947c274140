"""Commands of `kubectl gpuward`: their rows of `remediator/data/commands.json`, its errors,
the operator at the terminal, and how its answer is printed: aligned columns as kubectl does,
with control characters escaped.

Evidence and messages come from kernel lines and annotations; control characters in them could
rewrite a terminal, so everything printed passes `printable`.

Imports nothing heavy: help and completion are answered before a command is loaded.
"""

from __future__ import annotations

import json
import shutil
import signal
import sys
import textwrap
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal

from rules.api import timestamps
from rules.catalog.data_file import data_file
from rules.text.printable import padded, printable, width_of

if TYPE_CHECKING:
    import argparse

    from remediator.kubectl.cluster import Cluster

OPERATOR: Final = "gpuward-operator"
PLANNER: Final = "gpuward-planner"
DEFAULT_NAMESPACE: Final = "gpuward"
"""The default of `-n`."""

GUTTER: Final = 9
NARROWEST: Final = 40
WIDTH: Final = 100
QUOTE: Final = "> "
_BETWEEN: Final = "   "
"""Three spaces between two columns; no sentence has three."""

Items = list[dict[str, Any]]
"""What `-o json` and `-o yaml` print as one Kubernetes List: API objects, or values like them."""
Answer = str | Items
Run = Callable[["Cluster", "argparse.Namespace", "Terminal"], Awaitable[Answer]]


class CommandError(Exception):
    """A command failed; the text has the reason and the remedy."""

    def __init__(
        self,
        sentence: str,
        exit_code: int = 1,
        *,
        forbidden: bool = False,
        unusable: bool = False,
        outrun: bool = False,
        report: Answer = "",
    ) -> None:
        super().__init__(sentence)
        self.exit_code = exit_code
        self.forbidden = forbidden
        """RBAC refused it: other results are still printed."""
        self.unusable = unusable
        """The policy of the cluster is invalid: what does not depend on it continues."""
        self.outrun = outrun
        """Another client changed the object: read it again and retry."""
        self.report = report
        """The results until the failure, for standard output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command: its help, its arguments, and the function that runs it."""

    name: str
    brief: str
    about: Sequence[str]
    run: str
    """`module.function` in this package, imported when the command runs."""
    examples: Sequence[tuple[str, str]]
    """(arguments, what it does)."""
    formerly: str = ""
    """Its name in the last release, which still works and prints the new one."""
    forms: Sequence[str] = ()
    """Formats of `-o`, in addition to jsonpath and custom-columns; none if it has no `-o`."""
    node: Literal["", "many", "pod"] = ""
    """Takes nodes or `--selector`, and runs once for each; `pod`: a pod as well."""
    domain: str = ""
    """Takes `--nvlink-domain`: the `module.function` that returns the nodes, or the answer."""
    selects: bool = False
    """Takes `--selector` although it does not run once for each node."""
    reason: Literal["", "required", "optional"] = ""
    writes: bool = False
    """Changes the cluster, so `--dry-run` and `--yes` are taken."""
    leader: bool = False
    """Print a line if gpuward-remediator has no leader in the namespace, which is often a wrong or
    missing `-n`.
    """
    no_leader: Literal["reported", "asked", "refused"] = "reported"
    """If no remediator was ever leader: report it, ask for confirmation, or refuse."""
    role: str = OPERATOR
    """The ClusterRole that allows it; "": only administrators have it."""
    options: Sequence[dict[str, Any]] = field(default_factory=tuple)
    """Its own options, as `argparse.add_argument` takes them, with their names as `flags`."""

    def load(self, run: str = "") -> Any:
        """The function that carries the command out, or the one named."""
        module, _, function = (run or self.run).rpartition(".")
        return getattr(import_module(f"{__package__}.{module}"), function)


COMMANDS: Final = tuple(
    Command(**row) for row in json.loads(data_file("commands.json", "remediator"))
)
"""In the order of the help: to look, to steer, to operate."""


class Terminal:
    """Standard input and standard error; standard output is for the answer alone."""

    def __init__(self, *, agreed: bool, dry_run: bool = False) -> None:
        self._agreed = agreed
        self._dry_run = dry_run

    def say(self, line: str) -> None:
        """Print a line of progress."""
        sys.stderr.write(f"{printable(line)}\n")
        sys.stderr.flush()

    def ask(self, question: str) -> None:
        """Continue only after a yes; CommandError after a no, or without a terminal."""
        if self._agreed:
            return
        if self._dry_run:
            self.say(question)
            return
        if not sys.stdin.isatty():
            raise CommandError(f"{printable(question)} Nothing was changed; confirm with --yes")
        sys.stderr.write(f"{printable(question)} [y/N] ")
        sys.stderr.flush()
        if self._answer() not in {"y", "yes"}:
            raise CommandError("nothing was changed")

    def _answer(self) -> str:
        # The event loop would swallow the first Ctrl-C while this thread waits for a line.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            return sys.stdin.readline().strip().lower()
        finally:
            signal.signal(signal.SIGINT, before)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Rows under upper-case headers, three spaces apart, the last column ragged."""
    lines = [
        tuple(header),
        *(tuple(printable(cell) or timestamps.NONE for cell in row) for row in rows),
    ]
    return "\n".join(_aligned(lines))


def _aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(width_of(line[i]) for line in lines) for i in range(len(lines[0]) - 1)]
    return [_BETWEEN.join([*map(padded, line[:-1], widths), line[-1]]) for line in lines]


def labelled(label: str, lines: Iterable[str]) -> list[str]:
    """Lines under a label in the left gutter: `cause    Xid79 ...`, long sentences folded to the
    terminal. Evidence and commands are not folded, so that they can be copied.
    """
    terminal = shutil.get_terminal_size((WIDTH, 24)).columns if sys.stdout.isatty() else WIDTH
    width = max(NARROWEST, min(WIDTH, terminal)) - GUTTER
    found: list[str] = []
    for line in map(printable, lines):
        start = " " * (len(line) - len(line.lstrip()) + 2)
        unbroken = "kubectl " in line or line.lstrip().startswith(QUOTE)
        found += [line] if unbroken else textwrap.wrap(
            line, width, subsequent_indent=start, break_long_words=False, break_on_hyphens=False
        )  # fmt: skip
    return [(" " * GUTTER if i else label.ljust(GUTTER)) + line for i, line in enumerate(found)]


def quoted(text: str) -> str:
    """Return evidence as a quotation."""
    return f"{QUOTE}{text}"
