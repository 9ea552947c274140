"""What every command of `kubectl gpuward` rests on: how it fails, how it speaks with the
API server, and which role allows it.

Imports nothing of ours: help, completion and a mistyped word are answered before anything heavy is
read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

VIEWER: Final = "gpuward-viewer"
OPERATOR: Final = "gpuward-operator"
PLANNER: Final = "gpuward-planner"


class CommandError(Exception):
    """A command cannot do what was asked; the text says what and what to do about it."""

    def __init__(
        self,
        sentence: str,
        exit_code: int = 1,
        *,
        forbidden: bool = False,
        unusable: bool = False,
        outrun: bool = False,
        report: str = "",
    ) -> None:
        super().__init__(sentence)
        self.exit_code = exit_code
        self.forbidden = forbidden
        """RBAC refused it: what else may be read is still worth telling."""
        self.unusable = unusable
        """The policy of the cluster is wrong: what does not rest on it may go on."""
        self.outrun = outrun
        """Somebody else wrote the object in between: to be read and asked once more."""
        self.report = report
        """What was found all the same, for standard output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How a command speaks with the API server."""

    role: str = OPERATOR
    """The ClusterRole that a refusal names where a viewer's is not enough."""
    least: str = VIEWER
    """The one that it names where a viewer's would do: nobody wants to ask twice."""
    dry_run: bool = False
    timeout_s: float | None = None
    """For one request; None for the usual, 0 for no limit."""
    attended: bool = False
    """A person looks on: says so where an answer takes long."""
    say: Callable[[str], None] = lambda _: None
    """Takes what a person should know beside the answer."""
