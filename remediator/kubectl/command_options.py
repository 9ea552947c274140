"""What the commands of `kubectl gpuward` take beside what all of them take, a function for each.

What the options of one command need is imported when they are added: help is there at once.
"""

from __future__ import annotations

import argparse

from remediator.kubectl.options import length, node_name, object_name

_FORMS = frozenset({"json", "yaml", "wide", "name"})


def _path(text: str) -> str:
    """Where to write; one of kubectl's forms of output is hardly meant as a name."""
    if text in _FORMS:
        raise argparse.ArgumentTypeError(
            f"{text} is no form that this command has, it writes files; for one of that name "
            f"say ./{text}"
        )
    return text


def _written_to(parser: argparse.ArgumentParser, metavar: str, about: str, *older: str) -> None:
    """Where a command writes, the same for all that do; `older` names go on working unsaid."""
    parser.add_argument(
        "-o", "--output", dest="written_to", metavar=metavar, default="", type=_path, help=about
    )
    if older:
        parser.add_argument(
            *older, dest="written_to", metavar=metavar, default=argparse.SUPPRESS, type=_path,
            help=argparse.SUPPRESS,
        )  # fmt: skip


def list_more(parser: argparse.ArgumentParser) -> None:
    """What `list` takes."""
    parser.add_argument("--all", action="store_true", help="ended sessions as well")


def history_more(parser: argparse.ArgumentParser) -> None:
    """What `history` takes."""
    parser.add_argument(
        "node", metavar="NODE", nargs="?", type=node_name,
        help="name of the node (default: all nodes)",
    )  # fmt: skip
    parser.add_argument(
        "--since", type=length, metavar="TIME",
        help="of all nodes, how far back: 24h (default: 7d; 0 for all that is kept)",
    )  # fmt: skip


def show_more(parser: argparse.ArgumentParser) -> None:
    """What `show` takes."""
    words = "as list names it, or a node"
    parser.add_argument("session", metavar="SESSION", type=object_name, help=words)


def quarantine_more(parser: argparse.ArgumentParser) -> None:
    """What `quarantine` takes."""
    parser.add_argument(
        "--level", choices=("Cordon", "Drain"), default="Drain",
        help="Cordon only stops new work (default: %(default)s)",
    )  # fmt: skip


def repair_more(parser: argparse.ArgumentParser) -> None:
    """What `repair` takes."""
    from rules.repair.ladder import LADDER

    parser.add_argument(
        "--step", choices=tuple(map(str, LADDER)), metavar="STEP",
        help="this step instead of the one proposed: " + ", ".join(map(str, LADDER)),
    )  # fmt: skip


def evidence_more(parser: argparse.ArgumentParser) -> None:
    """What `evidence` takes."""
    parser.add_argument(
        "name_of", metavar="NODE|SESSION", type=object_name,
        help="a session, or a node: then its newest evidence",
    )  # fmt: skip
    about = "the folder to write, new or empty (default: gpuward-evidence-SESSION)"
    _written_to(parser, "DIR", about)


def pause_more(parser: argparse.ArgumentParser) -> None:
    """What `pause` takes."""
    from remediator.kubectl.typed.pause_words import end

    parser.add_argument(
        "nodes", metavar="NODE", nargs="*", type=node_name, help="only these (default: all)"
    )
    parser.add_argument(
        "--until", type=end, metavar="TIME",
        help="ends by itself then: 2h, or 2026-01-31T12:00:00Z (default: until resume)",
    )  # fmt: skip


def resume_more(parser: argparse.ArgumentParser) -> None:
    """What `resume` takes."""
    parser.add_argument(
        "pauses",
        metavar="PAUSE",
        nargs="*",
        type=node_name,
        help="only these (default: all of them, and it asks)",
    )


def plan_more(parser: argparse.ArgumentParser) -> None:
    """What `plan` takes."""
    parser.add_argument(
        "nodes", metavar="NODE", nargs="*", type=node_name, help="only these (default: all)"
    )
    policy_option(parser)


def completion_more(parser: argparse.ArgumentParser) -> None:
    """What `completion` takes."""
    parser.add_argument("shell", choices=("bash", "zsh", "fish", "kubectl"), help="which")


def policy_option(parser: argparse.ArgumentParser) -> None:
    """The policy file, of commands that read one."""
    parser.add_argument(
        "--policy", metavar="FILE", default="",
        help="judge by this policy file (default: the ConfigMap gpuward-policy)",
    )  # fmt: skip
