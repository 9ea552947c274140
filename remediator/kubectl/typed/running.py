"""One command as it was typed: on one node or several, once or again until somebody stops it."""

from __future__ import annotations

import argparse
import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from remediator.kubectl.cluster import Cluster
from remediator.kubectl.command import CommandError
from remediator.kubectl.options import Command
from remediator.kubectl.terminal import Terminal
from rules.text.counted import count

LOOKS_EVERY_S: Final = 2.0
_BETWEEN: Final = {"json": "\n", "yaml": "\n---\n"}
"""How several documents follow each other; lines for people get an empty one between."""
_AGES: Final = re.compile(r"\b\d+(?:\.\d+)?(?: ?min| ?[smhd])\b")
"""As `remediator.view.text` writes lengths of time."""
DRY: Final = (
    "dry run, checked by the API server: nothing was changed; without it this would be said:"
)


async def run(cluster: Cluster, options: argparse.Namespace, terminal: Terminal) -> str:
    """The answer of one look or one act."""
    cluster.look_again()
    command: Command = options.command
    carry_out = command.load()
    if not (command.node and command.several):
        return _told(options, [await carry_out(cluster, options, terminal)])
    return await _each(cluster, options, terminal)


def _quoted(answer: str) -> str:
    """An answer is in the words of what was done, and names what to type next: of a dry run
    neither is true, so it is told as what would be said.
    """
    return "\n".join([DRY, *(f"  {line}" if line else "" for line in answer.split("\n"))])


async def _each(cluster: Cluster, options: argparse.Namespace, terminal: Terminal) -> str:
    """Node by node; what fails on one is said and does not keep the others."""
    command: Command = options.command
    carry_out = command.load()
    names = list(dict.fromkeys(options.nodes)) or await _selected(cluster, options.selector)
    if len(names) == 1:
        options.node = names[0]
        return _told(options, [await carry_out(cluster, options, terminal)])
    answers: list[str] = []
    failed: list[str] = []
    options.said = {}
    for name in names:
        options.node = name
        try:
            answers.append(await carry_out(cluster, options, terminal))
        except CommandError as error:
            if error.exit_code != 1:
                raise
            terminal.say(f"{name}: {error}")
            failed.append(name)
        except (KeyboardInterrupt, asyncio.CancelledError):
            # Whoever stops in the middle has to know what was asked for until then.
            for line in _told(options, answers).split("\n") if answers else ():
                terminal.say(line)
            raise
    text = _told(options, answers)
    if failed:
        raise CommandError(
            f"{len(failed)} of {count(len(names), 'node')} failed, the lines above say why",
            report=text,
        )
    return text


def _told(options: argparse.Namespace, answers: Sequence[str]) -> str:
    text = _BETWEEN.get(getattr(options, "output", ""), "\n\n").join(answers)
    return _quoted(text) if answers and getattr(options, "dry_run", False) else text


async def _selected(cluster: Cluster, selector: str) -> list[str]:
    names = sorted(node.name for node in await cluster.nodes(selector))
    if not names:
        raise CommandError(f"no node has the labels {selector}; kubectl get nodes --show-labels")
    return names


async def watch(
    cluster: Cluster,
    options: argparse.Namespace,
    terminal: Terminal,
    show: Callable[[str], None],
    beside: Callable[[], Awaitable[str]],
    *,
    in_place: bool,
) -> None:
    """Look every two seconds and show what is different, and under it what is said `beside` it; an
    API server that is away is said once. `in_place`: what is shown takes the place of what was, so
    that an age that grew may be shown by itself.
    """
    shown = said = noted = ""
    while True:
        try:
            text, note = await run(cluster, options, terminal), await beside()
        except CommandError as error:
            if not shown or error.exit_code != 1:
                raise
            if str(error) != said:
                terminal.say(str(error))
            said = str(error)
        else:
            said = ""
            # How long nobody has led grows at each look: that alone is no news.
            same = text == shown if in_place else _ageless(text) == _ageless(shown)
            if not same or bool(note) != bool(noted):
                show(text)
                if note:
                    terminal.say(note)
            shown, noted = text, note
        await asyncio.sleep(LOOKS_EVERY_S)


def _ageless(text: str) -> str:
    """The text without how long ago, and without the room and the lines that it takes for that."""
    return " ".join(_AGES.sub("0s", text).split())
