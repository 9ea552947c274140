"""Shell completion by argcomplete: commands, options, and names of GPU nodes.

A shell that was told so by `register-python-argcomplete kubectl-gpuward` runs the program with
`_ARGCOMPLETE` set at every Tab (docs/cli.md).
"""

from __future__ import annotations

import argparse
import asyncio
from typing import Any, Final

from argcomplete.completers import BaseCompleter
from argcomplete.finders import CompletionFinder
from argcomplete.io import warn

from remediator.kubectl.command import CommandError
from rules.text.printable import is_pasteable

WITHIN_S: Final = 2.0
"""Whoever presses Tab waits no longer for a cluster that is away."""


def complete(top: argparse.ArgumentParser) -> None:
    """Offer what may come next and end the program."""
    CompletionFinder()(top, default_completer=_Nodes())


class _Nodes(BaseCompleter):
    """GPU nodes, where a node's name may stand; nothing where they cannot be listed in time."""

    def __call__(
        self, *, action: argparse.Action, parsed_args: argparse.Namespace, **_: Any
    ) -> list[str]:
        if action.metavar not in {"NODE", "NODE|SESSION"}:
            return []
        try:
            return asyncio.run(asyncio.wait_for(_listed(parsed_args), WITHIN_S))
        except (CommandError, TimeoutError, OSError) as error:
            warn(str(error))
            return []


async def _listed(options: argparse.Namespace) -> list[str]:
    from remediator.kubectl.cluster import connect
    from rules.api.names import LABEL_GPUS

    async with connect(options, warn) as cluster:
        return [node.name for node in await cluster.nodes(LABEL_GPUS) if is_pasteable(node.name)]
