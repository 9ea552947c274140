"""`kubectl gpuward`: parse, connect, print. Exit 0, 1 (could not be done), 64 (wrong use), 130."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys

from remediator.kube.answer import ApiError
from remediator.kubectl.command import CommandError
from remediator.kubectl.commands import COMMANDS
from remediator.kubectl.options import PROGRAM, Command, Parser, build, parsed
from remediator.view.text import coloured, wants_colour
from rules.text.printable import printable

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
    top = parser()
    try:
        options = parsed(top, arguments)
        if options is None:
            top.print_help()
            return 0
        _print(asyncio.run(_run(options)), options)
    except CommandError as error:
        if error.report:
            _print(error.report, None)
        print(f"{PROGRAM}: {printable(str(error))}", file=sys.stderr)
        return error.exit_code
    except ApiError as error:
        print(f"{PROGRAM}: {printable(str(error))}", file=sys.stderr)
        return 1
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


async def _run(options: argparse.Namespace) -> str:
    # Imported here: help and a mistyped word need none of it.
    from remediator.kube.kubeconfig import Acting
    from remediator.kubectl.cluster import connect
    from remediator.kubectl.terminal import Terminal

    terminal = Terminal(agreed=getattr(options, "yes", False))
    command: Command = options.command
    acting = None
    if options.acting:
        acting = Acting(user=options.acting, groups=tuple(options.acting_groups or ()))
    connected = connect(
        options.kubeconfig, options.context, role=command.role, acting=acting, say=terminal.say
    )
    async with connected as cluster:
        return await command.load()(cluster, options, terminal)


def _print(text: str, options: argparse.Namespace | None) -> None:
    if options is None or getattr(options, "output", "") not in {"json", "yaml"}:
        # The commands escape each hostile text where they place it; this catches a forgotten one.
        text = "\n".join(printable(line) for line in text.split("\n"))
        if wants_colour(sys.stdout, os.environ):
            text = coloured(text)
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
