"""The command line of `kubectl gpuward`: commands, options, help, and the types of arguments."""

import argparse
import re
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, NoReturn

from remediator.kubectl import output
from remediator.kubectl.command import COMMANDS, DEFAULT_NAMESPACE, Command
from rules.text.user_input import CommandParser

PROGRAM: Final = "kubectl gpuward"
_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
_EXITS: Final = "Exit status: 0 success, 1 failure, 64 usage error, 130 interrupted."
_OPTIONS: Final = f'Use "{PROGRAM} options" for a list of global options (for all commands).'
_START: Final = f"""\
Start here:
  {PROGRAM} fleet        Show which GPU nodes need attention
  {PROGRAM} why NODE     Show what happened to a node and what is next
  {PROGRAM} COMMAND -h   Show examples and options of a command

{_OPTIONS}
{_EXITS}"""


def object_name(text: str) -> str:
    """The name of an API object; nothing else may become part of a URL."""
    if _NAME.fullmatch(text):
        return text
    several = "; separate names with spaces" if "," in text else ""
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


def label_value(text: str) -> str:
    """The value of a label; it becomes part of an object and of printed commands."""
    from rules.api.object_name import is_label_value

    if text and is_label_value(text):
        return text
    raise argparse.ArgumentTypeError(f"{text!r:.80} cannot be the value of a label")


def user_name(text: str) -> str:
    """The user to impersonate. An empty name, such as an unset variable, is an error."""
    if text.strip():
        return text
    raise argparse.ArgumentTypeError("is empty; name a user, or leave it out to act as yourself")


def sentence(text: str) -> str:
    """A reason, on one line and not empty."""
    if text.strip():
        return " ".join(text.split())
    raise argparse.ArgumentTypeError("is empty; give a reason in one sentence")


_TYPES: Final = {"object": object_name, "node": node_name}
"""Types that `commands.json` names."""


class Parser(CommandParser):
    """A parser that reports an error in one line, with the nearest name, and exits with 64."""

    def error(self, message: str) -> NoReturn:
        """One line, and where the help is."""
        _, message = self.complaint(message)
        sys.stderr.write(f"{self.prog}: {message}; see {self.prog} --help\n")
        raise SystemExit(64)


class _Version(argparse.Action):
    """Print the version: read from the installation only on request."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from remediator.version import release_version

        sys.stdout.write(f"gpuward {release_version()}\n")
        parser.exit()


def make_parser() -> Parser:
    """Every command with its options, examples and help."""
    top = Parser(
        prog=PROGRAM,
        description="Show which GPU nodes are out of service, and control their quarantine.",
        epilog=_START,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    _shared(top, hidden=True, default=True)
    added = top.add_subparsers(title="commands", metavar="COMMAND", parser_class=Parser)
    for command in COMMANDS:
        _add(added, command, command.name, help=command.brief)
        if command.formerly:  # without `help` it is in no list
            _add(added, command, command.formerly)
    about = "List the options that apply to all commands"
    options = added.add_parser("options", prog=f"{PROGRAM} options", help=about, description=about)
    options.set_defaults(show_options=True)
    return top


def global_options() -> Parser:
    """Return a parser of the options that apply to all commands; its help lists only them."""
    found = Parser(
        prog=PROGRAM,
        usage=argparse.SUPPRESS,
        description="The following options can be passed to any command:",
        add_help=False,
    )
    _shared(found, hidden=False, default=True)
    return found


def _add(added: Any, command: Command, name: str, **listed: str) -> None:
    """Add the command under a name. Its help has examples first, then options, then usage."""
    examples = "\n".join(f"  # {text}\n  {PROGRAM} {given}" for given, text in command.examples)
    one = added.add_parser(
        name,
        prog=f"{PROGRAM} {name}",
        description="\n".join([*command.about, "", "examples:", examples]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        **listed,
    )
    _own(one, command)
    _shared(one, hidden=True, default=False)
    one.epilog = f"{one.format_usage().rstrip()}\n\n{_OPTIONS}"
    one.usage = argparse.SUPPRESS
    one.set_defaults(command=command, parser=one, typed=name)


def _own(one: argparse.ArgumentParser, command: Command) -> None:
    """Add the arguments of one command."""
    if command.node:
        pods = "; a pod as NAMESPACE/NAME" if command.node == "pod" else ""
        kind = node_or_pod if command.node == "pod" else node_name
        about = f"node names, or use --selector{pods}"
        one.add_argument("nodes", metavar="NODE", nargs="*", type=kind, help=about)
    if command.node or command.selects:
        about = "label selector for nodes, such as rack=a17,pool!=spare"
        one.add_argument("-l", "--selector", type=label_selector, metavar="LABELS", help=about)
    if command.domain:
        about = "all nodes of an NVLink domain (label gpuward.io/nvlink-domain)"
        one.add_argument("--nvlink-domain", type=label_value, metavar="DOMAIN", help=about)
    if command.reason:
        required = command.reason == "required"
        about = "reason in one sentence, stored in the cluster"
        one.add_argument("--reason", required=required, type=sentence, help=about)
    if command.writes:
        one.add_argument("-y", "--yes", action="store_true", help="do not ask for confirmation")
        about = "send a server-side dry-run request, which changes nothing"
        one.add_argument("--dry-run", action="store_true", help=about)
    for option in command.options:
        given: dict[str, Any] = {key: value for key, value in option.items() if key != "flags"}
        if "type" in given:
            given["type"] = _TYPES[given["type"]]
        one.add_argument(*option["flags"], **given)
    if command.forms:
        about = f"output format: {', '.join([*command.forms, *output.PATHS])}"
        form = partial(_output_format, command.forms)
        one.add_argument("-o", "--output", type=form, metavar="FORMAT", help=about)


def _output_format(forms: Sequence[str], text: str) -> str:
    try:
        return output.checked(text, forms)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _shared(one: argparse.ArgumentParser, *, hidden: bool, default: bool) -> None:
    """Add the options that apply to all commands, before and after the command. Without `default`
    an option that is not given after the command keeps its value from before the command.
    """

    def add(*flags: str, about: str, value: Any = None, **options: Any) -> None:
        options["default"] = value if default else argparse.SUPPRESS
        one.add_argument(*flags, help=argparse.SUPPRESS if hidden else about, **options)

    about = "kubeconfig (default: $KUBECONFIG, then ~/.kube/config)"
    add("--kubeconfig", metavar="FILE", about=about)
    add("--context", about="context of the kubeconfig (default: current)")
    about = "user to impersonate (default: none)"
    add("--as", dest="acting", metavar="USER", type=user_name, about=about)
    about = "group to impersonate; can be repeated"
    add("--as-group", dest="acting_groups", metavar="GROUP", action="append", about=about)
    about = f"namespace of gpuward (default: {DEFAULT_NAMESPACE})"
    add("-n", "--namespace", type=object_name, value=DEFAULT_NAMESPACE, about=about)
    about = argparse.SUPPRESS if hidden else "print the version"
    one.add_argument("--version", action=_Version, nargs=0, help=about)
