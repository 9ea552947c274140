"""What the demo prints: a line for each change of a node, and at the end what came of each act."""

import time
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.text import Text

from hack.sim.demo.outcome import Act, Outcome
from hack.sim.demo.stage import Stage

COLOURS = {
    "Pending": "yellow",
    "Marked": "yellow",
    "Draining": "dark_orange",
    "Quarantined": "red",
    "Repairing": "yellow",
    "Validating": "cyan",
    "Released": "green",
    "Cancelled": "green",
    "healthy": "green",
    "degraded": "yellow",
    "unhealthy": "red",
    "unknown": "magenta",
}


class Changes:
    """Prints a node's health and the phase of its session whenever one of them changes."""

    def __init__(self, console: Console, stage: Stage, began: float) -> None:
        self._console = console
        self._ledger = stage.ledger
        self._began = began
        self._seen = {name: self._state(name) for name in self._ledger.nodes}

    def print_new(self) -> None:
        """Print what changed since the last call."""
        for name in sorted(self._ledger.nodes):
            state = self._state(name)
            if state != self._seen.get(name):
                self._seen[name] = state
                self._print(name, *state)

    def _state(self, name: str) -> tuple[str, str]:
        labels = self._ledger.nodes[name]["metadata"].get("labels") or {}
        phase = self._ledger.status(name).get("phase", "")
        return labels.get("gpuward.io/health", ""), phase

    def _print(self, name: str, health: str, phase: str) -> None:
        health_status = self._ledger.healths.get(name, {}).get("status", {})
        message = self._ledger.status(name).get("message") or health_status.get("message", "")
        line = Text(f"{time.monotonic() - self._began:4.0f} s  {name}  ")
        for shown in (health, phase):
            if shown:
                line.append(f"{shown}  ", style=COLOURS.get(shown, ""))
        self._console.print(line.append(message), soft_wrap=not self._console.is_terminal)


def summary(console: Console, acts: Sequence[Act], done: Mapping[str, Outcome]) -> None:
    """What was expected of each act and what came of it."""
    console.print("faults and what came of them", style="bold")
    for act in acts:
        outcome = done.get(act.name)
        if outcome is None:
            line_start, came = Text("-  "), "did not end"
        else:
            line_start = (
                Text("ok ", style="green") if outcome.true else Text("NO ", style="bold red")
            )
            how = f"via {outcome.path}" if outcome.latency is None else str(outcome.latency)
            came = f"{outcome.text} ({how})"
        console.print(line_start.append(act.title))
        for line in (f"      expected: {act.expected}", f"      outcome:  {came}"):
            console.print(line, markup=False, highlight=False, soft_wrap=True)
