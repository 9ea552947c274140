"""`kubectl gpuward`: parse, connect, run a command once or for each node, print.

Exit status: 0 success, 1 failure, 64 usage error, 130 interrupted.
"""

import argparse
import os
import sys
from typing import Any, Final

from remediator.kubectl import output, parser
from remediator.kubectl.command import Answer, Command, CommandError, Run, Terminal
from rules.text.printable import count, is_pasteable, printable

INTERRUPTED: Final = 130
TRACEBACK: Final = "GPUWARD_TRACEBACK"
COMPLETED_WITHIN_S: Final = 2.0
"""How long a Tab waits for a cluster that does not answer."""
DRY: Final = "dry run, checked by the API server: nothing was changed; the command would print:"


def main(arguments: list[str] | None = None) -> int:
    """Run one command."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # A terminal that cannot show a character gets its escape, not a crash.
            stream.reconfigure(errors="backslashreplace")
    top = parser.make_parser()
    if "_ARGCOMPLETE" in os.environ:  # a shell asks what may come next (docs/cli.md)
        _complete(top)
    # Bytes that the locale cannot read become text: nothing that is sent may hold surrogates.
    given = sys.argv[1:] if arguments is None else arguments
    options = top.parse_args([os.fsencode(one).decode(errors="replace") for one in given])
    try:
        if not hasattr(options, "command"):
            (parser.global_options() if hasattr(options, "show_options") else top).print_help()
            return 0
        if options.typed == options.command.formerly:
            new = f"{parser.PROGRAM} {options.command.name}"
            sys.stderr.write(f"{options.parser.prog} is deprecated; use {new}\n")
        _check(options)
        import asyncio

        asyncio.run(_run(options))
    except CommandError as error:
        if error.report:
            _print(error.report, options)
        print(f"{parser.PROGRAM}: {printable(str(error))}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print(f"{parser.PROGRAM}: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader (head, less) has seen enough; the interpreter must not write again at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except ModuleNotFoundError as error:
        from remediator.kube.access import lacking_client

        print(f"{parser.PROGRAM}: {lacking_client(error)}", file=sys.stderr)
        return 1
    except Exception as error:  # an operator gets a sentence, never a traceback
        if os.environ.get(TRACEBACK):
            raise
        what = printable(f"{type(error).__name__}: {error}")[:300]
        remedy = f"this is a fault of gpuward, please report it with the output of {TRACEBACK}=1"
        print(f"{parser.PROGRAM}: unexpected {what}; {remedy}", file=sys.stderr)
        return 1
    return 0


def _complete(top: argparse.ArgumentParser) -> None:
    """Offer a shell what may come next, with the names of GPU nodes and of NVLink domains; ends
    the program.
    """
    import asyncio

    from argcomplete.completers import BaseCompleter
    from argcomplete.finders import CompletionFinder
    from argcomplete.io import warn

    from remediator.kubectl.cluster import connect
    from rules.api.names import LABEL_GPUS, LABEL_NVLINK_DOMAIN

    async def listed(options: argparse.Namespace, *, domains: bool) -> list[str]:
        async with connect(options, warn) as cluster:
            found = await cluster.nodes(LABEL_NVLINK_DOMAIN if domains else LABEL_GPUS)
            named = {node.labels[LABEL_NVLINK_DOMAIN] if domains else node.name for node in found}
            return sorted(filter(is_pasteable, named))

    class Nodes(BaseCompleter):
        def __call__(
            self, *, action: argparse.Action, parsed_args: argparse.Namespace, **_: Any
        ) -> list[str]:
            if action.metavar == "FORMAT":
                return [*parsed_args.command.forms, *output.PATHS]
            if action.metavar not in {"NODE", "NODE|SESSION", "DOMAIN"}:
                return []
            try:
                asked = listed(parsed_args, domains=action.metavar == "DOMAIN")
                return asyncio.run(asyncio.wait_for(asked, COMPLETED_WITHIN_S))
            except (CommandError, TimeoutError, OSError) as error:
                warn(str(error))
                return []

    CompletionFinder()(top, default_completer=Nodes(), print_suppressed=True)


def _check(options: argparse.Namespace) -> None:
    """SystemExit 64 for options that do not go together."""
    nodes, selector = getattr(options, "nodes", ()), getattr(options, "selector", None)
    domain = getattr(options, "nvlink_domain", None)
    if nodes and selector:
        options.parser.error("name nodes or give --selector, not both")
    if domain and (nodes or selector):
        options.parser.error("give --nvlink-domain without nodes and --selector")
    if options.command.node and not nodes and not selector and not domain:
        options.parser.error("the following arguments are required: NODE")
    if options.acting_groups and not options.acting:
        options.parser.error("--as-group needs --as USER")


async def _run(options: argparse.Namespace) -> None:
    # Imported here: help and errors of the command line do not need it.
    from remediator.kube.answer import ApiError
    from remediator.kubectl.cluster import connect
    from remediator.kubectl.in_force import leadership, stop_unless_led

    command: Command = options.command
    dry_run = getattr(options, "dry_run", False)
    terminal = Terminal(agreed=getattr(options, "yes", False), dry_run=dry_run)
    try:
        async with connect(options, terminal.say) as cluster:
            if command.no_leader != "reported":
                ask = terminal.ask if command.no_leader == "asked" else None
                await stop_unless_led(cluster, options.namespace, ask=ask)
            failed: CommandError | None = None
            try:
                answer = await _answer(cluster, options, terminal)
            except CommandError as error:
                if not error.report:
                    raise
                answer, failed = error.report, error
                error.report = ""
            _print(_quoted(answer) if dry_run else answer, options)
            waits = (
                (await leadership(cluster, options.namespace)).message if command.leader else ""
            )
            if waits:
                terminal.say(waits)
            if failed is not None:
                raise failed
    except ApiError as error:
        raise CommandError(str(error)) from error


async def _answer(cluster: Any, options: argparse.Namespace, terminal: Terminal) -> Answer:
    """One answer, or those for each node; what fails on one node does not keep the others."""
    from asyncio import CancelledError

    command: Command = options.command
    carry_out: Run = command.load()
    if not command.node:
        return await carry_out(cluster, options, terminal)
    domain = getattr(options, "nvlink_domain", None)
    if domain:
        names = await command.load(command.domain)(cluster, options, terminal)
        if isinstance(names, str):
            return names
    else:
        names = list(dict.fromkeys(options.nodes)) or await _selected(cluster, options.selector)
    answers: list[Answer] = []
    failed = 0
    for name in names:
        options.node = name
        try:
            answers.append(await carry_out(cluster, options, terminal))
        except CommandError as error:
            if len(names) == 1 or error.exit_code != 1:
                raise
            terminal.say(f"{name}: {error}")
            failed += 1
        except (KeyboardInterrupt, CancelledError):
            # After an interrupt, print what was requested until then.
            for line in _text(_joined(answers), options).split("\n") if answers else ():
                terminal.say(line)
            raise
    if failed:
        again = "; run the command again for the rest of the domain" if domain else ""
        raise CommandError(
            f"{failed} of {count(len(names), 'node')} failed, the lines above say why{again}",
            report=_joined(answers),
        )
    if domain and command.writes:
        answers.append(
            f"NVLink domain {domain}: {command.name} requested for {count(len(names), 'node')}\n"
            f"to follow: {parser.PROGRAM} why --nvlink-domain {domain}"
        )
    return _joined(answers)


async def _selected(cluster: Any, selector: str) -> list[str]:
    names = sorted(node.name for node in await cluster.nodes(selector))
    if not names:
        raise CommandError(f"no node has the labels {selector}; kubectl get nodes --show-labels")
    return names


def _joined(answers: list[Answer]) -> Answer:
    if any(not isinstance(one, str) for one in answers):
        return [item for one in answers if not isinstance(one, str) for item in one]
    return "\n\n".join(one for one in answers if isinstance(one, str))


def _quoted(answer: Answer) -> Answer:
    """Return the answer of a dry run, indented below a line that nothing was changed."""
    if not isinstance(answer, str) or not answer:
        return answer
    return "\n".join([DRY, *(f"  {line}" if line else "" for line in answer.split("\n"))])


def _text(answer: Answer, options: argparse.Namespace) -> str:
    """An answer as it is printed: values as one Kubernetes List, lines escaped."""
    if not isinstance(answer, str):
        return output.rendered(answer, options.output)
    # The commands escape each hostile text where they place it; this catches a forgotten one.
    return "\n".join(printable(line) for line in answer.split("\n"))


def _print(answer: Answer, options: argparse.Namespace) -> None:
    print(_text(answer, options), flush=True)


if __name__ == "__main__":
    sys.exit(main())
