"""`kubectl gpuward`: parse, connect, run a command once or for each node, print.

Exit status: 0 done, 1 could not be done, 64 wrong use, 130 interrupted.
"""

import argparse
import os
import re
import sys
from typing import Any, Final, NoReturn

from remediator.kubectl.command import (
    COMMANDS,
    DEFAULT_NAMESPACE,
    Answer,
    Command,
    CommandError,
    Terminal,
    document,
)
from rules.text.printable import count, is_pasteable, printable
from rules.text.user_input import CommandParser

PROGRAM: Final = "kubectl gpuward"
INTERRUPTED: Final = 130
TRACEBACK: Final = "GPUWARD_TRACEBACK"
COMPLETED_WITHIN_S: Final = 2.0
"""Whoever presses Tab waits no longer for a cluster that is away."""
DRY: Final = (
    "dry run, checked by the API server: nothing was changed; without it this would be said:"
)
_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
_EXITS: Final = "Exit status: 0 done, 1 could not be done, 64 wrong use, 130 interrupted."
_START: Final = f"""\
Start here:
  {PROGRAM} fleet        how many GPU nodes are well, and which are not
  {PROGRAM} why NODE     what happened to one node, what is next
  {PROGRAM} COMMAND -h   what a command does, with examples

{_EXITS}"""


def object_name(text: str) -> str:
    """A name that an API object can have: nothing else may become part of an address."""
    if _NAME.fullmatch(text):
        return text
    several = "; several are set apart by blanks" if "," in text else ""
    raise argparse.ArgumentTypeError(
        f"{text!r:.80} cannot be a name in Kubernetes (letters, digits, - and . only){several}"
    )


def node_name(text: str) -> str:
    """A node as kubectl names one: NAME, node/NAME or nodes/NAME."""
    kind, slash, name = text.partition("/")
    return object_name(name if slash and kind in {"node", "nodes", "no"} else text)


def node_or_pod(text: str) -> str:
    """As `node_name`, or a pod as NAMESPACE/NAME."""
    kind, slash, name = text.partition("/")
    if not slash or kind in {"node", "nodes", "no"}:
        return node_name(text)
    return f"{object_name(kind)}/{object_name(name)}"


def label_selector(text: str) -> str:
    """Labels as kubectl takes them: the API server's own grammar."""
    from rules.api.selectors import parse_selector

    try:
        parse_selector(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if not text.strip():
        raise argparse.ArgumentTypeError("is empty; name labels such as rack=a17")
    return text


def user_name(text: str) -> str:
    """Whom to act as: an empty one, such as a variable that is not set, must not mean oneself."""
    if text.strip():
        return text
    raise argparse.ArgumentTypeError("is empty; name a user, or leave it out to act as yourself")


def sentence(text: str) -> str:
    """A reason, on one line and not empty."""
    if text.strip():
        return " ".join(text.split())
    raise argparse.ArgumentTypeError("is empty; say in one sentence why, it is kept as the record")


_TYPES: Final = {"object": object_name, "node": node_name}
"""Types that `commands.json` names."""


class Parser(CommandParser):
    """Says what is wrong in one line, with the nearest right word, and ends with 64."""

    def error(self, message: str) -> NoReturn:
        """One line, and where the help is."""
        _, message = self.complaint(message)
        sys.stderr.write(f"{self.prog}: {message}; see {self.prog} --help\n")
        raise SystemExit(64)


class _Version(argparse.Action):
    """Print the version: read from the installation only when somebody asks."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from remediator.version import release_version

        sys.stdout.write(f"gpuward {release_version()}\n")
        parser.exit()


def parser() -> argparse.ArgumentParser:
    """Every command with its options, examples and help."""
    top = Parser(
        prog=PROGRAM,
        description="Which GPU nodes are out of service, why, and what you can do about it.",
        epilog=_START,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    _shared(top, suppress=False)
    added = top.add_subparsers(metavar="COMMAND", parser_class=Parser)
    for command in COMMANDS:
        examples = "\n".join(
            f"  {PROGRAM} {given}\n      {text}" for given, text in command.examples
        )
        one = added.add_parser(
            command.name,
            prog=f"{PROGRAM} {command.name}",
            help=command.brief,
            description="\n".join(command.about),
            epilog=f"examples:\n{examples}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        _own(one, command)
        _shared(one, suppress=True)
        one.set_defaults(command=command, parser=one)
    return top


def _own(one: argparse.ArgumentParser, command: Command) -> None:
    """What one command takes beside what all of them take."""
    if command.node:
        pods = "; a pod as NAMESPACE/NAME" if command.node == "pod" else ""
        kind = node_or_pod if command.node == "pod" else node_name
        about = f"names of nodes, node/NAME too (or --selector){pods}"
        one.add_argument("nodes", metavar="NODE", nargs="*", type=kind, help=about)
    if command.node or command.selects:
        about = "the nodes with these labels, as kubectl takes them: rack=a17,pool!=spare"
        one.add_argument("-l", "--selector", type=label_selector, metavar="LABELS", help=about)
    if command.reason:
        required = command.reason == "required"
        about = "one sentence, kept as the record"
        one.add_argument("--reason", required=required, type=sentence, help=about)
    if command.writes:
        one.add_argument("-y", "--yes", action="store_true", help="do not ask")
        about = "let the API server check it and change nothing"
        one.add_argument("--dry-run", action="store_true", help=about)
    for option in command.options:
        given: dict[str, Any] = {key: value for key, value in option.items() if key != "flags"}
        if "type" in given:
            given["type"] = _TYPES[given["type"]]
        one.add_argument(*option["flags"], **given)
    if command.forms:
        about = f"another form of the answer: {', '.join(command.forms)}"
        one.add_argument("-o", "--output", choices=command.forms, default="", help=about)


def _shared(one: argparse.ArgumentParser, *, suppress: bool) -> None:
    """Taken before the command and after it; what is not given after does not undo the former."""

    def add(*flags: str, default: Any = None, **options: Any) -> None:
        group.add_argument(*flags, default=argparse.SUPPRESS if suppress else default, **options)

    group = one.add_argument_group("options of every command")
    about = "kubeconfig (default: $KUBECONFIG, then ~/.kube/config)"
    add("--kubeconfig", metavar="FILE", help=about)
    add("--context", help="context of the kubeconfig (default: current)")
    about = "act as this user, as kubectl does (default: what the kubeconfig says)"
    add("--as", dest="acting", metavar="USER", type=user_name, help=about)
    about = "and in this group; may be given several times"
    add("--as-group", dest="acting_groups", metavar="GROUP", action="append", help=about)
    about = f"where gpuward is installed (default: {DEFAULT_NAMESPACE})"
    add("-n", "--namespace", type=object_name, default=DEFAULT_NAMESPACE, help=about)
    group.add_argument("--version", action=_Version, nargs=0, help="print the version")


def main(arguments: list[str] | None = None) -> int:
    """Run one command."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # A terminal that cannot show a character gets its escape, not a crash.
            stream.reconfigure(errors="backslashreplace")
    top = parser()
    if "_ARGCOMPLETE" in os.environ:  # a shell asks what may come next (docs/cli.md)
        _complete(top)
    # Bytes that the locale cannot read become text: nothing that is sent may hold surrogates.
    words = sys.argv[1:] if arguments is None else arguments
    options = top.parse_args([os.fsencode(word).decode(errors="replace") for word in words])
    try:
        if not hasattr(options, "command"):
            top.print_help()
            return 0
        _check(options)
        import asyncio

        asyncio.run(_run(options))
    except CommandError as error:
        if error.report:
            _print(error.report, options)
        print(f"{PROGRAM}: {printable(str(error))}", file=sys.stderr)
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
    except Exception as error:  # an operator gets a sentence, never a traceback
        if os.environ.get(TRACEBACK):
            raise
        what = printable(f"{type(error).__name__}: {error}")[:300]
        remedy = f"this is a fault of gpuward, please report it with the output of {TRACEBACK}=1"
        print(f"{PROGRAM}: unexpected {what}; {remedy}", file=sys.stderr)
        return 1
    return 0


def _complete(top: argparse.ArgumentParser) -> None:
    """Offer a shell what may come next, and GPU nodes where a node's name may stand; ends the
    program.
    """
    import asyncio

    from argcomplete.completers import BaseCompleter
    from argcomplete.finders import CompletionFinder
    from argcomplete.io import warn

    from remediator.kubectl.cluster import connect
    from rules.api.names import LABEL_GPUS

    async def listed(options: argparse.Namespace) -> list[str]:
        async with connect(options, warn) as cluster:
            found = await cluster.nodes(LABEL_GPUS)
            return [node.name for node in found if is_pasteable(node.name)]

    class Nodes(BaseCompleter):
        def __call__(
            self, *, action: argparse.Action, parsed_args: argparse.Namespace, **_: Any
        ) -> list[str]:
            if action.metavar not in {"NODE", "NODE|SESSION"}:
                return []
            try:
                return asyncio.run(asyncio.wait_for(listed(parsed_args), COMPLETED_WITHIN_S))
            except (CommandError, TimeoutError, OSError) as error:
                warn(str(error))
                return []

    CompletionFinder()(top, default_completer=Nodes())


def _check(options: argparse.Namespace) -> None:
    """SystemExit 64 for options that do not go together."""
    nodes, selector = getattr(options, "nodes", ()), getattr(options, "selector", None)
    if nodes and selector:
        options.parser.error("name nodes or give --selector, not both")
    if options.command.node and not nodes and not selector:
        options.parser.error("the following arguments are required: NODE")
    if options.acting_groups and not options.acting:
        options.parser.error("--as-group needs --as USER beside it")


async def _run(options: argparse.Namespace) -> None:
    # Imported here: help and a mistyped word need none of it.
    from remediator.kube.answer import ApiError
    from remediator.kubectl.cluster import connect
    from remediator.kubectl.in_force import leadership, stop_unless_led

    command: Command = options.command
    dry_run = getattr(options, "dry_run", False)
    terminal = Terminal(agreed=getattr(options, "yes", False), dry_run=dry_run)
    try:
        async with connect(options, terminal.say) as cluster:
            if command.no_leader != "said":
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
            waits = (await leadership(cluster, options.namespace)).said if command.leader else ""
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
    carry_out = command.load()
    if not command.node:
        return await carry_out(cluster, options, terminal)
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
            # Whoever stops in the middle has to know what was asked for until then.
            for line in _text(_joined(answers), options).split("\n") if answers else ():
                terminal.say(line)
            raise
    if failed:
        raise CommandError(
            f"{failed} of {count(len(names), 'node')} failed, the lines above say why",
            report=_joined(answers),
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
    """An answer names what was done and what to type next: of a dry run neither is true, so it is
    quoted as what would be said.
    """
    if not isinstance(answer, str) or not answer:
        return answer
    return "\n".join([DRY, *(f"  {line}" if line else "" for line in answer.split("\n"))])


def _text(answer: Answer, options: argparse.Namespace) -> str:
    """An answer as it is printed: values as one Kubernetes List, lines escaped."""
    if not isinstance(answer, str):
        whole = {"apiVersion": "v1", "kind": "List", "items": answer}
        return document(whole, options.output)
    # The commands escape each hostile text where they place it; this catches a forgotten one.
    return "\n".join(printable(line) for line in answer.split("\n"))


def _print(answer: Answer, options: argparse.Namespace) -> None:
    print(_text(answer, options), flush=True)


if __name__ == "__main__":
    sys.exit(main())
