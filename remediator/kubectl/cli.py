"""`kubectl gpuward`: parse, connect, print. Exit 0, 1 (could not be done), 64 (wrong use)."""

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import NoReturn

from remediator.answer import ApiError
from remediator.kubectl import act, look, plan, preflight, uninstall
from remediator.kubectl.cluster import Cluster, CommandError, connect

USAGE_ERROR = 64
INTERRUPTED = 130
Command = Callable[[Cluster, argparse.Namespace], Awaitable[str]]


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line and ends with 64."""

    def error(self, message: str) -> NoReturn:
        """One line, and where the help is."""
        print(f"{self.prog}: {message}; see {self.prog} --help", file=sys.stderr)
        raise SystemExit(USAGE_ERROR)


def main(arguments: list[str] | None = None) -> int:
    """Run one command."""
    options = parser().parse_args(arguments)
    if getattr(options, "takes_capacity", False) and not _agreed(options):
        print("nothing was done", file=sys.stderr)
        return 1
    try:
        print(asyncio.run(_run(options)))
    except (CommandError, ApiError) as error:
        print(f"kubectl gpuward: {error}", file=sys.stderr)
        return error.exit_code if isinstance(error, CommandError) else 1
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()
        return 1
    return 0


async def _run(options: argparse.Namespace) -> str:
    async with connect(options.kubeconfig, options.context) as cluster:
        command: Command = options.command
        return await command(cluster, options)


def _agreed(options: argparse.Namespace) -> bool:
    if options.yes:
        return True
    if not sys.stdin.isatty():
        print(f"{options.question} Say so with --yes.", file=sys.stderr)
        return False
    return input(f"{options.question} [y/N] ").strip().lower() in {"y", "yes"}


def parser() -> argparse.ArgumentParser:
    """Every command with its help."""
    shared = Parser(add_help=False)
    shared.add_argument("--kubeconfig", help="kubeconfig (default: $KUBECONFIG, ~/.kube/config)")
    shared.add_argument(
        "-n", "--namespace", default="gpuward", help="where gpuward is installed (%(default)s)"
    )
    shared.add_argument("--context", help="context of the kubeconfig (default: its current one)")
    shared.add_argument(
        "-o", "--output", choices=("json", "yaml", "wide"), default="", help="another form"
    )
    top = Parser(
        prog="kubectl gpuward",
        description="Which GPU nodes are out of service, why, and what you can do about it.",
        epilog="Start with `kubectl gpuward fleet`, then `kubectl gpuward why NODE`.",
    )
    commands = top.add_subparsers(metavar="COMMAND", required=True, parser_class=Parser)

    def add(name: str, text: str, command: Command, *, node: bool = False, reason: bool = False
            ) -> argparse.ArgumentParser:  # fmt: skip
        one = commands.add_parser(name, help=text, description=text, parents=[shared])
        if node:
            one.add_argument("node", metavar="NODE")
        if reason:
            one.add_argument("--reason", required=True, help="one sentence, kept as the record")
        one.set_defaults(command=command)
        return one

    _looks(add)
    _acts(add)
    return top


def _looks(add: Callable[..., argparse.ArgumentParser]) -> None:
    one = add(
        "list",
        "Open sessions.",
        lambda c, o: look.list_sessions(c, form=o.output, all_sessions=o.all),
    )
    one.add_argument("--all", action="store_true", help="ended sessions as well")
    add("fleet", "Totals, and every node that is not healthy.",
        lambda c, o: look.fleet(c, form=o.output))  # fmt: skip
    add("why", "Why a node is as it is: cause, evidence, what is next, what blocks it.",
        lambda c, o: look.why_node(c, o.node, form=o.output), node=True)  # fmt: skip
    one = add("show", "One session whole.", lambda c, o: look.show(c, o.session, form=o.output))
    one.add_argument("session", metavar="SESSION")
    one = add("plan", "What would happen now, node by node, if the policy enforced.", _plan)
    one.add_argument("node", metavar="NODE", nargs="?", default="", help="only this one")
    add("preflight", "Is this cluster ready, and what would get in the way?", _preflight)
    add("history", "All sessions of one node.",
        lambda c, o: look.history(c, o.node, form=o.output), node=True)  # fmt: skip


async def _plan(cluster: Cluster, options: argparse.Namespace) -> str:
    policy = await cluster.policy(options.namespace)
    return await plan.plan(cluster, policy, node=options.node, form=options.output)


async def _preflight(cluster: Cluster, options: argparse.Namespace) -> str:
    policy = await cluster.policy(options.namespace)
    report, passed = await preflight.preflight(cluster, policy, namespace=options.namespace)
    if not passed:
        raise CommandError(f"not ready yet\n{report}")
    return report


async def _uninstall(cluster: Cluster, options: argparse.Namespace) -> str:
    return await uninstall.uninstall(
        cluster,
        namespace=options.namespace,
        say=lambda line: print(line, file=sys.stderr),
    )


def _acts(add: Callable[..., argparse.ArgumentParser]) -> None:
    one = add(
        "quarantine",
        "Take a node out of service: cordon, and drain within PodDisruptionBudgets.",
        lambda c, o: act.quarantine(c, o.node, o.reason, level=o.level),
        node=True,
        reason=True,
    )
    one.add_argument("--level", choices=("Cordon", "Drain"), default="Drain",
                     help="Cordon only stops new work (default: %(default)s)")  # fmt: skip
    one.add_argument("--yes", action="store_true", help="do not ask")
    one.set_defaults(takes_capacity=True, question="This takes a node out of service.")
    add("release", "Give a node back now, whatever the verdict says.",
        lambda c, o: act.release(c, o.node, o.reason), node=True, reason=True)  # fmt: skip
    add("repaired", "Say that a part was replaced: closes what only a person can close.",
        lambda c, o: act.repaired(c, o.node, o.reason), node=True, reason=True)  # fmt: skip
    add("hold", "Do not release this node; a drain goes on.",
        lambda c, o: act.hold(c, o.node, o.reason), node=True, reason=True)  # fmt: skip
    add("unhold", "Take a hold back.", lambda c, o: act.unhold(c, o.node), node=True)
    one = add("pause", "No new harm, within a second; marks stay.",
              lambda c, o: act.pause(c, o.reason, nodes=o.nodes, until=o.until),
              reason=True)  # fmt: skip
    one.add_argument("nodes", metavar="NODE", nargs="*", help="only these (default: all)")
    one.add_argument("--until", default="", help="RFC 3339 time at which it ends by itself")
    one = add(
        "uninstall", "Stop gpuward and take every mark and label off every node.", _uninstall
    )
    one.add_argument("--yes", action="store_true", help="do not ask")
    one.set_defaults(takes_capacity=True, question="This ends all protection by gpuward.")
    one = add("resume", "End pauses.", lambda c, o: act.resume(c, o.pauses))
    one.add_argument("pauses", metavar="PAUSE", nargs="*", help="only these (default: all)")


if __name__ == "__main__":
    sys.exit(main())
