"""The command line of `kubectl gpuward`: every command, its options, its help with examples.

Options that all commands share are accepted before and after the command. Wrong use ends with one
line that names the remedy, and 64.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn

from remediator.kubectl.command import OPERATOR, VIEWER
from remediator.kubectl.typed.habits import kubectls_form, no_node, other_word
from rules.text.typed import CommandParser, known_options, misplaced

if TYPE_CHECKING:
    from remediator.kubectl.cluster import Cluster
    from remediator.kubectl.terminal import Terminal

USAGE_ERROR: Final = 64
PROGRAM: Final = "kubectl gpuward"
LOOKS: Final = ("json", "yaml", "wide")
DEFAULT_NAMESPACE: Final = "gpuward"
"""Where gpuward is installed, unless `-n` says otherwise."""
_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
_EXITS: Final = "Exit status: 0 done, 1 could not be done, 64 wrong use, 130 interrupted."

Run = Callable[["Cluster", argparse.Namespace, "Terminal"], Awaitable[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command as people see it."""

    name: str
    brief: str
    about: str
    run: str
    """`module.function` in this package: read when the command runs, so that help is there at
    once.
    """
    examples: tuple[tuple[str, str], ...]
    """(arguments, what it does)."""
    forms: tuple[str, ...] = ()
    """What `-o` may say; none where the answer is one sentence."""
    node: bool = False
    several: bool = True
    """Of `node`: whether it takes more than one."""
    pods: bool = False
    """Of `node`: whether a pod may stand in its place, as pod/NAME or NAMESPACE/NAME."""
    reason: Literal["", "required", "optional"] = ""
    unreasoned: str = ""
    """Of what writes and takes no `--reason`: why not, in a sentence."""
    writes: bool = False
    """Changes the cluster, so `--dry-run` and `--yes` are taken."""
    selects: bool = False
    """Takes `--selector` although it takes no nodes."""
    unselected: str = ""
    """Of what writes and takes no `--selector`: why not, in a sentence."""
    watches: bool = False
    connects: bool = True
    """Whether it asks the cluster anything."""
    leader: Literal["", "ever", "now"] = ""
    """Whether its answer is worth little while no remediator leads, or only where none ever did,
    which is a mistyped or forgotten `-n` more often than not; that is said then.
    """
    unled: Literal["said", "asked", "refused"] = "said"
    """What becomes of it where none ever led: it asks first, or does nothing at all."""
    role: str = OPERATOR
    """The ClusterRole that allows what a viewer may not; "": only administrators have it."""
    more: Callable[[argparse.ArgumentParser], None] | None = None

    @property
    def least(self) -> str:
        """The ClusterRole without which the command is of no use."""
        return self.role if self.writes or self.role != OPERATOR else VIEWER

    def load(self) -> Run:
        """The function that carries the command out."""
        module, _, function = self.run.rpartition(".")
        found: Run = getattr(import_module(f"{__package__}.{module}"), function)
        return found


class _Version(argparse.Action):
    """Prints the version: read from the installation only when somebody asks."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from remediator.version import release_version

        sys.stdout.write(f"gpuward {release_version()}\n")
        parser.exit()


class _NotTaken(argparse.Action):
    """An option that its neighbours take and this command cannot: says why."""

    def __init__(self, *arguments: Any, why: str, **options: Any) -> None:
        # Whoever gives no value is told so, too, and not to give one.
        super().__init__(*arguments, **{**options, "nargs": "?"})
        self._why = why

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        parser.error(f"takes no {'/'.join(self.option_strings)}: {self._why}")


class Parser(CommandParser):
    """Says what is wrong in one line, with the nearest right word, and ends with 64."""

    command: Command | None = None
    """The one whose parser this is; None of that of all commands."""

    def not_understood(self, unknown: Sequence[str]) -> str:
        """With what is meant by a node, or by a flag of kubectl."""
        command = self.command
        if command is not None and not any(word.startswith("-") for word in unknown):
            if command.unselected:
                return f"takes no NODE: {command.unselected}"
            if not self.words():
                return no_node(unknown[0])
        return kubectls_form(unknown) or super().not_understood(unknown)

    def error(self, message: str) -> NoReturn:
        """One line, and where the help is."""
        word, message = self.complaint(message)
        if elsewhere := other_word(word, PROGRAM):
            message = f"there is no command {word!r:.60}{elsewhere}"
        sys.stderr.write(f"{self.prog}: {message}; see {self.prog} --help\n")
        raise SystemExit(USAGE_ERROR)


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
    """As `node_name`, or a pod: `pod/NAME` as kubectl spells it, or `NAMESPACE/NAME`."""
    kind, slash, name = text.partition("/")
    if not slash or kind in {"node", "nodes", "no"}:
        return node_name(text)
    place = "pod" if kind in {"pod", "pods", "po"} else object_name(kind)
    return f"{place}/{object_name(name)}"


def label_selector(text: str) -> str:
    """Labels as kubectl takes them; the API server's own grammar."""
    from rules.api.selectors import parse_selector

    try:
        parse_selector(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if not text.strip():
        raise argparse.ArgumentTypeError("is empty; name labels such as rack=a17")
    return text


def duration(text: str) -> float:
    """Seconds of 5, 5s or 1m; 0 for no limit, as kubectl has it."""
    return length(f"{text}s" if text.isdigit() and text != "0" else text)


def length(text: str) -> float:
    """Seconds of 90m, 24h or 7d; 0 for no limit. A number alone could be hours or days."""
    from rules.policy.durations import parse_duration

    if text == "0":
        return 0.0
    try:
        return parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def user_name(text: str) -> str:
    """Whom to act as: an empty one, such as a variable that is not set, must not mean oneself."""
    if text.strip():
        return text
    raise argparse.ArgumentTypeError("is empty; name a user, or leave it out to act as yourself")


def sentence(text: str) -> str:
    """A reason: something must be said."""
    if text.strip():
        return " ".join(text.split())
    raise argparse.ArgumentTypeError("is empty; say in one sentence why, it is kept as the record")


def build(commands: tuple[Command, ...], spoken_of: frozenset[str] | None = None) -> Parser:
    """The parser of all commands; with their options only those in `spoken_of`, if that is given:
    what is not on the command line needs none.
    """
    top = Parser(
        prog=PROGRAM,
        description="Which GPU nodes are out of service, why, and what you can do about it.",
        epilog=(
            "Start here:\n"
            f"  {PROGRAM} fleet        how many GPU nodes are well, and which are not\n"
            f"  {PROGRAM} why NODE     what happened to one node, what is next\n"
            f"  {PROGRAM} COMMAND -h   what a command does, with examples\n\n{_EXITS}"
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    _shared(top, LOOKS, suppress=False)
    added = top.add_subparsers(metavar="COMMAND", dest="name", parser_class=Parser)
    for command in commands:
        _add(added, command, whole=spoken_of is None or command.name in spoken_of)
    return top


def _add(added: argparse._SubParsersAction[Parser], command: Command, *, whole: bool) -> None:
    if not whole:
        added.add_parser(command.name, help=command.brief)
        return
    examples = "\n".join(
        f"  {PROGRAM} {arguments}\n      {text}" for arguments, text in command.examples
    )
    one = added.add_parser(
        command.name,
        prog=f"{PROGRAM} {command.name}",
        help=command.brief,
        description=command.about,
        epilog=f"examples:\n{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    one.command = command
    if command.node and not command.several:
        one.add_argument("node", metavar="NODE", type=node_name, help="name of the node")
    elif command.node:
        pods = "; a pod as pod/NAME or NAMESPACE/NAME" if command.pods else ""
        one.add_argument(
            "nodes", metavar="NODE", nargs="*", type=node_or_pod if command.pods else node_name,
            help=f"names of nodes, node/NAME too (or --selector){pods}",
        )  # fmt: skip
    if (command.node and command.several) or command.selects:
        one.add_argument(
            "-l", "--selector", type=label_selector, default=None, metavar="LABELS",
            help="the nodes with these labels, as kubectl takes them: rack=a17,pool!=spare",
        )  # fmt: skip
    if command.unselected:
        one.add_argument(
            "-l", "--selector", action=_NotTaken, why=command.unselected, help=argparse.SUPPRESS
        )
    if command.reason:
        required = command.reason == "required"
        one.add_argument(
            "--reason", required=required, type=sentence, help="one sentence, kept as the record"
        )
    if command.unreasoned:
        one.add_argument(
            "--reason", action=_NotTaken, why=command.unreasoned, help=argparse.SUPPRESS
        )
    if command.writes:
        one.add_argument("-y", "--yes", action="store_true", help="do not ask")
        one.add_argument(
            "--dry-run", action="store_true",
            help="let the API server check it and change nothing",
        )  # fmt: skip
    if command.watches:
        one.add_argument(
            "-w", "--watch", action="store_true",
            help="look again every 2 s and print what changed, until Ctrl-C",
        )  # fmt: skip
    if command.more is not None:
        command.more(one)
    _shared(one, command.forms, suppress=True)
    one.set_defaults(command=command, parser=one)


def _shared(parser: Parser, forms: tuple[str, ...], *, suppress: bool) -> None:
    """Said before the command or after it; what is not said after does not undo the former."""

    def default(value: str | None) -> str | None:
        return argparse.SUPPRESS if suppress else value

    group = parser.add_argument_group("options of every command")
    group.add_argument(
        "--kubeconfig", metavar="FILE", default=default(None),
        help="kubeconfig (default: $KUBECONFIG, then ~/.kube/config)",
    )  # fmt: skip
    group.add_argument(
        "--context", default=default(None), help="context of the kubeconfig (default: current)"
    )
    group.add_argument(
        "--as", dest="acting", metavar="USER", type=user_name, default=default(None),
        help="act as this user, as kubectl does (default: what the kubeconfig says)",
    )  # fmt: skip
    group.add_argument(
        "--as-group", dest="acting_groups", metavar="GROUP", action="append",
        default=default(None), help="and in this group; may be given several times",
    )  # fmt: skip
    group.add_argument(
        "-n", "--namespace", type=object_name, default=default(DEFAULT_NAMESPACE),
        help=f"where gpuward is installed (default: {DEFAULT_NAMESPACE})",
    )  # fmt: skip
    group.add_argument(
        "--request-timeout", metavar="TIME", type=duration,
        default=argparse.SUPPRESS if suppress else None,
        help="how long one request may take: 5s (default: 30s; 0 for no limit)",
    )  # fmt: skip
    group.add_argument("--version", action=_Version, nargs=0, help="print the version")
    if forms:
        group.add_argument(
            "-o", "--output", choices=forms, default=default(""),
            help="another form of the answer: " + ", ".join(forms),
        )  # fmt: skip


def parsed(top: Parser, arguments: list[str]) -> argparse.Namespace | None:
    """The options; None where only help was wanted; SystemExit 64 for wrong use."""
    if wrong := misplaced(arguments, known_options(top)):
        top.error(wrong)
    options = top.parse_args(arguments)
    command: Command | None = getattr(options, "command", None)
    if command is None:
        return None
    if command.node and command.several and bool(options.nodes) == bool(options.selector):
        parser: Parser = options.parser
        parser.error(
            "name nodes or give --selector, not both"
            if options.nodes
            else "the following arguments are required: NODE"
        )
    named = getattr(options, "nodes", None) or getattr(options, "node", None)
    if command.selects and named and options.selector:
        options.parser.error("name nodes or give --selector, not both")
    if options.acting_groups and not options.acting:
        top.error("--as-group needs --as USER beside it")
    if options.output and options.output not in command.forms:
        known = f"one of {', '.join(command.forms)}" if command.forms else "for commands that look"
        top.error(f"-o {options.output} does not go with {command.name}; -o is {known}")
    return options
