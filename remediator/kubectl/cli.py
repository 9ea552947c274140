"""`kubectl gpuward`: parse, connect, print. Exit 0, 1 (could not be done), 64 (wrong use), 130."""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial

from remediator.kubectl.command import CommandError, Manner
from remediator.kubectl.commands import COMMANDS
from remediator.kubectl.options import PROGRAM, Command, Parser, build, parsed
from remediator.kubectl.typed.habits import plain_words
from remediator.view.text import coloured, fitted, wants_colour
from rules.text.printable import printable
from rules.text.typed import as_parsed, known_options

INTERRUPTED = 130
TRACEBACK = "GPUWARD_TRACEBACK"


def parser() -> Parser:
    """Every command with its help."""
    return build(COMMANDS)


def main(arguments: list[str] | None = None) -> int:
    """Run one command."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # A terminal that cannot show a character gets its escape, not a crash.
            stream.reconfigure(errors="backslashreplace")
    if (sys.argv[1:] if arguments is None else arguments)[:1] == ["__complete"]:
        return _complete((sys.argv[1:] if arguments is None else arguments)[1:])
    try:
        words = plain_words(sys.argv[1:] if arguments is None else arguments)
        top = build(COMMANDS, spoken_of=frozenset(words))
        given = as_parsed(words, known_options(top))
        options = parsed(top, given)
        if options is None:
            top.print_help()
            return 0
        import asyncio

        asyncio.run(_run(options))
    except CommandError as error:
        if error.report:
            _print(error.report, None)
        print(fitted(f"{PROGRAM}: {printable(str(error))}", sys.stderr), file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print(f"{PROGRAM}: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader (head, less) has seen enough; the interpreter must not write again at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except ModuleNotFoundError as error:
        from remediator.kube.access import lacking_client

        print(f"{PROGRAM}: {lacking_client(error)}", file=sys.stderr)
        return 1
    except Exception as error:  # a person gets a sentence, never a traceback
        if os.environ.get(TRACEBACK):
            raise
        what = printable(f"{type(error).__name__}: {error}")[:300]
        remedy = f"this is a fault of ours, please report it with the output of {TRACEBACK}=1"
        print(f"{PROGRAM}: unexpected {what}; {remedy}", file=sys.stderr)
        return 1
    return 0


def _complete(words: list[str]) -> int:
    """At every Tab: never an error, never a trace."""
    from remediator.kubectl.typed.completion import complete

    try:
        print("\n".join(printable(word) for word in complete(COMMANDS, words)))
    except (Exception, SystemExit, KeyboardInterrupt):  # noqa: BLE001 - offers nothing then
        return 0
    return 0


async def _run(options: argparse.Namespace) -> None:
    # Imported here: help and a mistyped word need none of it.
    from remediator.kube.answer import ApiError
    from remediator.kube.kubeconfig import Acting
    from remediator.kubectl.leading import stop_unless_led, without_leader
    from remediator.kubectl.terminal import Terminal
    from remediator.kubectl.typed.connection import connect
    from remediator.kubectl.typed.running import run, watch

    dry_run = getattr(options, "dry_run", False)
    terminal = Terminal(agreed=getattr(options, "yes", False), dry_run=dry_run)
    command: Command = options.command
    acting = None
    if options.acting:
        acting = Acting(user=options.acting, groups=tuple(options.acting_groups or ()))
    if not command.connects:
        _print(await command.load()(None, options, terminal), options)  # type: ignore[arg-type]
        return
    manner = Manner(
        role=command.role,
        least=command.least,
        dry_run=dry_run,
        timeout_s=options.request_timeout,
        attended=sys.stderr.isatty(),
        say=terminal.say,
    )
    try:
        async with connect(options.kubeconfig, options.context, manner, acting) as cluster:

            async def beside() -> str:
                if not command.leader:
                    return ""
                ever = command.leader == "ever"
                return await without_leader(cluster, options.namespace, ever=ever)

            if command.unled != "said":
                ask = terminal.ask if command.unled == "asked" else None
                await stop_unless_led(cluster, options.namespace, ask=ask)

            if getattr(options, "watch", False):
                again = partial(_again, options=options)
                attended = sys.stdout.isatty()
                await watch(cluster, options, terminal, again, beside, in_place=attended)
            try:
                _print(await run(cluster, options, terminal), options)
            except CommandError as error:
                if error.report and (nobody := await beside()):
                    terminal.say(nobody)
                raise
            if nobody := await beside():
                terminal.say(nobody)
    except ApiError as error:
        raise CommandError(str(error)) from error


def _again(text: str, options: argparse.Namespace) -> None:
    """What is new while watching: on a terminal in the place of what was there."""
    if sys.stdout.isatty():
        sys.stdout.write("\x1b[H\x1b[2J")
    _print(text if sys.stdout.isatty() else f"{text}\n", options)


def _print(text: str, options: argparse.Namespace | None) -> None:
    if not text:
        # What there is to say is on standard output already (an archive).
        return
    if options is None or getattr(options, "output", "") not in {"json", "yaml"}:
        # The commands escape each hostile text where they place it; this catches a forgotten one.
        text = fitted("\n".join(printable(line) for line in text.split("\n")), sys.stdout)
        if wants_colour(sys.stdout, os.environ):
            text = coloured(text)
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
