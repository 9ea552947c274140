"""``gpuward-agent``: the command line of the node agent.

Each command is a module with ``add_parser`` and a ``run`` that takes the parsed arguments and
returns the exit status. Wrong use ends with 64 and one sentence, never with 2, which would read
as an unhealthy node.
"""

from __future__ import annotations

import argparse
import sys
from typing import Final, NoReturn

from agent import decode, explain

EXIT_USAGE: Final = 64

_COMMANDS: Final = (decode, explain)


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one sentence and the exit status 64."""

    def error(self, message: str) -> NoReturn:
        """End the program because of wrong use."""
        self.exit(EXIT_USAGE, f"{self.prog}: {message}; see {self.prog} --help.\n")


def main(arguments: list[str] | None = None) -> int:
    """Run the command that ``arguments`` (default: of the process) name."""
    parser = _Parser(
        prog="gpuward-agent",
        description="Finds failing GPUs on this machine and says so in words Kubernetes understands.",
    )
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in _COMMANDS:
        command.add_parser(subparsers)
    parsed = parser.parse_args(arguments)
    status: int = parsed.run(parsed)
    return status


if __name__ == "__main__":
    sys.exit(main())
