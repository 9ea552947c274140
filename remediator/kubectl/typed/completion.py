"""What may come next on the command line: commands, options, nodes, sessions, pauses.

`kubectl gpuward completion SHELL` prints what a shell loads; that asks `kubectl-gpuward __complete
WORD...` at every Tab. It never fails: where nothing is known it offers nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from remediator.kubectl.options import Command, build
from rules.text.pasted import is_pasteable

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from remediator.kubectl.cluster import Cluster
    from remediator.kubectl.terminal import Terminal

ASK: Final = "__complete"
SHELLS: Final = ("bash", "zsh", "fish", "kubectl")
WITHIN_S: Final = 2.0
"""Whoever presses Tab waits no longer for a cluster that is away."""

_WANTED: Final = {
    "show": "sessions",
    "resume": "pauses",
    "pause": "nodes",
    "plan": "nodes",
    "history": "nodes",
    "evidence": "evidence",
}
"""What commands name that take no nodes as the others do."""

_SCRIPTS: Final = {
    "bash": """# source <(kubectl gpuward completion bash)
_kubectl_gpuward() {
  COMPREPLY=($(kubectl-gpuward __complete "${COMP_WORDS[@]:1}" 2>/dev/null))
}
complete -F _kubectl_gpuward kubectl-gpuward""",
    "zsh": """# source <(kubectl gpuward completion zsh)
_kubectl_gpuward() {
  compadd -- ${(f)"$(kubectl-gpuward __complete ${words[2,$CURRENT]} 2>/dev/null)"}
}
compdef _kubectl_gpuward kubectl-gpuward""",
    "fish": """# kubectl gpuward completion fish | source
complete -f -c kubectl-gpuward -a \
  "(kubectl-gpuward __complete (commandline -opc)[2..] (commandline -ct) 2>/dev/null)\"""",
    "kubectl": """#!/bin/sh
# Save as kubectl_complete-gpuward on the PATH and make it executable: kubectl asks it \
at every Tab.
kubectl-gpuward __complete "$@" 2>/dev/null
echo :4""",
}


def accepted_steps(
    options: argparse.Namespace, nodes: list[str], known: tuple[str, ...]
) -> list[str]:
    """The repair steps that `repair` would take: the policy has an adapter for them, and of one
    node what its session has not tried. All that are `known` where that cannot be read in time.
    """
    try:
        return asyncio.run(asyncio.wait_for(_accepted(options, nodes, known), WITHIN_S))
    except Exception:  # noqa: BLE001  # whoever presses Tab is told of no trouble
        return list(known)


async def _accepted(
    options: argparse.Namespace, nodes: list[str], known: tuple[str, ...]
) -> list[str]:
    # Imported here, as below.
    from remediator.kubectl.node_look import open_session
    from rules.api.quarantine import Mode
    from rules.session.repair.wants import unfit

    async with connected(options) as cluster:
        policy = await cluster.policy(options.namespace)
        if policy is None:
            return list(known)
        repair = policy.repair
        steps = [step for step in known if repair.mode != "Off" and step in repair.steps]
        if len(nodes) != 1:
            return steps
        node = nodes[0].rpartition("/")[2]
        session = open_session(await cluster.sessions(node))
        if session is None or session.status.mode == Mode.SHADOW or session.spec.release:
            return []
        tried = {attempt.step for attempt in session.status.repair if attempt.counts}
        refused = {*tried, *unfit(session, await cluster.health(node), policy)}
        return [step for step in steps if step not in refused]


async def completion(_: Cluster | None, options: argparse.Namespace, __: Terminal) -> str:
    """The script of one shell."""
    return _SCRIPTS[options.shell]


def complete(commands: tuple[Command, ...], words: list[str]) -> list[str]:
    """What the last of `words`, which may be empty or a beginning, can become."""
    *before, begun = words or [""]
    parser = build(commands)
    names = {command.name: command for command in commands}
    command = next((names[word] for word in before if word in names), None)
    one: argparse.ArgumentParser = parser
    if command is not None:
        one = _of(parser)[command.name]
    option = _takes_value(one, before[-1]) if before else None
    if option is not None:
        offered: Iterable[str] = map(str, option.choices or ())
        if command is not None and command.name == "repair" and before[-1] == "--step":
            offered = accepted_steps(_options(parser, before), _nodes(one, before), tuple(offered))
    elif begun.startswith("-"):
        taken = [action for action in one._actions if action.help != argparse.SUPPRESS]  # noqa: SLF001
        offered = [word for action in taken for word in action.option_strings]
    elif command is None:
        offered = names
    else:
        offered = _things(parser, command, before) or _choices(one)
    return sorted({word for word in offered if word.startswith(begun)})


def _of(parser: argparse.ArgumentParser) -> dict[str, Any]:
    """The parsers of the commands, by name."""
    for action in parser._actions:  # noqa: SLF001
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            return dict(action.choices)
    return {}


def _takes_value(parser: argparse.ArgumentParser, word: str) -> argparse.Action | None:
    """The option that `word` is, where a value has to follow it."""
    for action in parser._actions:  # noqa: SLF001
        if word in action.option_strings and action.nargs is None:
            return action
    return None


def _choices(parser: argparse.ArgumentParser) -> list[str]:
    """The words of an argument without a dash that takes one of a few."""
    actions = parser._actions  # noqa: SLF001
    found = [one.choices for one in actions if not one.option_strings and one.choices]
    return [str(word) for choices in found for word in choices]


def _things(parser: argparse.ArgumentParser, command: Command, before: list[str]) -> list[str]:
    """Nodes, sessions or pauses of the cluster that the words so far name; none when it is
    away.
    """
    wanted = _WANTED.get(command.name, "nodes" if command.node else "")
    if not wanted:
        return []
    options = _options(parser, before)
    # The shell puts them on the command line as they are.
    return [word for word in asyncio.run(_named(options, wanted)) if is_pasteable(word)]


_CONNECTION: Final = ("--kubeconfig", "--context", "--as", "--as-group", "-n", "--namespace")


def _options(parser: argparse.ArgumentParser, before: list[str]) -> argparse.Namespace:
    """Which cluster is meant, as whom, and where in it."""
    return parser.parse_known_args([*_connection(before), "fleet"])[0]


def _nodes(command: argparse.ArgumentParser, before: list[str]) -> list[str]:
    """The words of a command's line that are neither options nor their values."""
    at = next(i for i, word in enumerate(before) if word == command.prog.split()[-1])
    return [
        word
        for led, word in itertools.pairwise(before[at:])
        if not word.startswith("-") and _takes_value(command, led) is None
    ]


def _connection(before: list[str]) -> list[str]:
    """The words that say which cluster, as whom."""
    found: list[str] = []
    for word, value in itertools.pairwise(before):
        if word in _CONNECTION:
            found += [word, value]
        elif word.startswith(tuple(f"{option}=" for option in _CONNECTION)):
            found.append(word)
    return found


def connected(options: argparse.Namespace) -> AbstractAsyncContextManager[Cluster]:
    """The cluster that is meant, which nobody waits long for."""
    # Imported here: commands and options are offered without it.
    from remediator.kube.kubeconfig import Acting
    from remediator.kubectl.command import Manner
    from remediator.kubectl.typed.connection import connect

    acting = None
    if options.acting:
        acting = Acting(user=options.acting, groups=tuple(options.acting_groups or ()))
    return connect(options.kubeconfig, options.context, Manner(timeout_s=WITHIN_S), acting)


async def _named(options: argparse.Namespace, wanted: str) -> list[str]:
    from rules.session.observation import is_open, pause_over

    async with connected(options) as cluster:
        if wanted == "sessions":
            found = await cluster.sessions()
            # Of years of history only what is open, unless nothing is.
            return [one.name for one in found if is_open(one)] or [one.name for one in found]
        if wanted == "evidence":
            return [one.metadata.name for one in await cluster.evidences()]
        if wanted == "pauses":
            pauses = await cluster.pauses()
            return [one.metadata.name for one in pauses if not pause_over(one, cluster.now())]
        return [node.name for node in await cluster.nodes("gpuward.io/gpus")]
