"""Break and mend a simulated fleet in fifteen acts and watch what happens.

Without --once it stays up after the last act, so that you can look around with
kubectl; Ctrl-C ends it. With --once it ends by itself: 0 when every expected
outcome came true, 1 when not.
"""

import argparse
import asyncio
import signal
import sys
import time
from pathlib import Path
from typing import NoReturn

from rich.console import Console

from hack.sim.demo.acts import ACTS, NEEDS
from hack.sim.demo.outcome import Act, Outcome
from hack.sim.demo.screen import Changes, summary
from hack.sim.demo.stage import MINIMUM_NODES, MOST_NODES, POLICY_FILE, Stage, sweep
from rules.text.user_input import CommandParser

NODES = 24
USAGE_ERROR = 64
INTERRUPTED = 130
TERMINATED = 143


def main(arguments: list[str] | None = None) -> int:
    """Parse, play, tell."""
    options = _parser().parse_args(arguments)
    if why := _why_not(options.nodes):
        print(f"hack/demo: --nodes {options.nodes}: {why}", file=sys.stderr)
        return USAGE_ERROR
    sweep()
    console = Console()
    acts = [act for act in ACTS if _plays(act.name, options.scenario)]
    try:
        return asyncio.run(_run(console, acts, nodes=options.nodes, once=options.once))
    except KeyboardInterrupt:
        console.print("stopped")
        return INTERRUPTED
    except asyncio.CancelledError:
        return TERMINATED
    except (RuntimeError, OSError) as error:
        console.print(f"the demo could not run: {error}", style="red", markup=False)
        return 1


LEFT_OUT = (
    "installed as in daemonset/base, but agents and remediator are processes here, not pods, and "
    "the simulated API server keeps the admission policies without evaluating them"
)


def _plays(name: str, scenario: str | None) -> bool:
    return scenario is None or name == scenario or name in NEEDS.get(scenario, ())


def _unplayed(acts: list[Act]) -> list[str]:
    """The acts that mend what these have broken and that are not among them."""
    played = {act.name for act in acts}
    return [
        name for name, needs in NEEDS.items() if name not in played and played.issuperset(needs)
    ]


class _Parser(CommandParser):
    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        print(f"{self.prog}: {message}; see --help", file=sys.stderr)
        raise SystemExit(USAGE_ERROR)


def _count(text: str) -> int:
    if text.lstrip("-").isdecimal():
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r:.40} is no whole number")


def _why_not(nodes: int) -> str:
    """Why a fleet of that size is not simulated, and what to give; "" where it is."""
    if nodes < MINIMUM_NODES:
        return f"the acts need {MINIMUM_NODES} nodes; give {MINIMUM_NODES} to {MOST_NODES}"
    if nodes > MOST_NODES:
        return (
            f"one process simulates the entire cluster, up to {MOST_NODES} nodes; 1,000 "
            "and more are measured by python -m hack.bench.fleet"
        )
    return ""


def _parser() -> argparse.ArgumentParser:
    listed = "\n".join(f"  {act.name:10} {act.title}\n{'':13}{act.expected}" for act in ACTS)
    parser = _Parser(
        prog="hack/demo",
        description=__doc__,
        epilog=f"scenarios:\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--scenario",
        choices=[act.name for act in ACTS],
        metavar="NAME",
        help="play one act (default: all)",
    )
    parser.add_argument(
        "--nodes",
        type=_count,
        default=NODES,
        metavar="N",
        help=f"size of the fleet, {MINIMUM_NODES} to {MOST_NODES} (default: %(default)s)",
    )
    parser.add_argument("--once", action="store_true", help="end by itself, with a summary")
    return parser


async def _run(console: Console, acts: list[Act], *, nodes: int, once: bool) -> int:
    loop, me = asyncio.get_running_loop(), asyncio.current_task()
    if me is not None:
        for ends in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(ends, me.cancel)
    policy = f"hack/sim/demo/{POLICY_FILE.name}, read again within a minute when you change it"
    unwrapped = not console.is_terminal  # lines are wrapped on a terminal only
    console.print(f"policy of this demo ({policy}):", style="bold", soft_wrap=unwrapped)
    console.print(POLICY_FILE.read_text().strip(), markup=False, highlight=False, soft_wrap=True)
    console.print(LEFT_OUT, soft_wrap=unwrapped)
    console.print(f"starting {nodes} simulated nodes, agents where faults come, a remediator ...")
    async with Stage(nodes=nodes) as stage:
        # Never folded: they are there to be copied.
        look = f"kubectl --kubeconfig {stage.kubeconfig} get nodes,gq,gnh"
        console.print(look, style="bold", soft_wrap=True)
        console.print(f"review page: {stage.page_url}/", style="bold", soft_wrap=True)
        _print_plugin(console, stage)
        done: dict[str, Outcome] = {}
        changes = Changes(console, stage, time.monotonic())
        await _play(stage, acts, done, changes, console)
        came_true = all(act.name in done and done[act.name].true for act in acts)
        if not came_true:
            _print_logs(console, stage)
        summary(console, acts, done)
        if once:
            return 0 if came_true else 1
        console.print("the fleet stays up; look around with kubectl, end with Ctrl-C")
        for later in _unplayed(acts):
            console.print(
                f"nobody mends what was broken here, so its repair runs out of steps: "
                f"hack/demo --scenario {later} plays that, too",
                soft_wrap=unwrapped,
            )
        _print_plugin(console, stage)
        await _stay(stage, changes)
        _print_logs(console, stage)
        raise RuntimeError("a program of the demo ended by itself; see its log")


def _print_plugin(console: Console, stage: Stage) -> None:
    """Print how another terminal uses the cluster. Before its installation the plugin is only in
    the folder of this interpreter.
    """
    console.print(
        f"export KUBECONFIG={stage.kubeconfig} PATH={Path(sys.executable).parent}:$PATH; "
        "kubectl gpuward fleet",
        style="bold",
        highlight=False,
        soft_wrap=True,
    )


async def _play(
    stage: Stage, acts: list[Act], done: dict[str, Outcome], changes: Changes, console: Console
) -> None:
    first = min(act.at_s for act in acts)

    async def one(act: Act) -> None:
        await asyncio.sleep(act.at_s - first)
        console.print(f"act: {act.title}", style="bold")
        done[act.name] = await act.play(stage)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(act)) for act in acts]
        while not all(task.done() for task in tasks):
            changes.print_new()
            await asyncio.sleep(0.25)


async def _stay(stage: Stage, changes: Changes) -> None:
    """Until a program ends: people go on with kubectl and see here what comes of it."""
    programs = [stage.remediator, *(agent.program for agent in stage.agents.values())]
    # Poll once a second for processes that ended.
    while all(program.ended is None for program in programs):
        changes.print_new()
        await asyncio.sleep(1.0)


def _print_logs(console: Console, stage: Stage) -> None:
    console.print("the last lines of the programs' logs:", style="bold")
    programs = [stage.remediator, *(agent.program for agent in stage.agents.values())]
    for program in programs:
        console.print(program.tail(), markup=False, highlight=False)


if __name__ == "__main__":
    sys.exit(main())
