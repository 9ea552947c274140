"""What every command of `kubectl gpuward` rests on: how it fails, and which role allows it.

Imports nothing: help, completion and a mistyped word are answered before anything heavy is read.
"""

from __future__ import annotations

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
        report: str = "",
    ) -> None:
        super().__init__(sentence)
        self.exit_code = exit_code
        self.forbidden = forbidden
        """RBAC refused it: what else may be read is still worth telling."""
        self.unusable = unusable
        """The policy of the cluster is wrong: what does not rest on it may go on."""
        self.report = report
        """What was found all the same, for standard output."""
