"""That a node's clock is wrong, in words: how far, and what is not believed meanwhile. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from remediator.view.text import span
from rules.api.nodes import HealthView, NodeView
from rules.api.sentences import some
from rules.fleet.node_clock import apart_s
from rules.text.counted import count


def clock_said(node: NodeView | None, health: HealthView | None, now: float) -> str:
    """Which way, how far, and what that means; "" of a clock that is right as far as is known."""
    apart = apart_s(node, health, now)
    if not apart:
        return ""
    way = "ahead of" if apart > 0 else "behind"
    return (
        f"the node's clock is {span(abs(apart))} {way} the API server's: the times of its faults "
        f"are, too, while deadlines and healthy time go by the API server's; {_meanwhile(apart)}"
        "see to its NTP"
    )


def _meanwhile(apart: float) -> str:
    """What is believed less."""
    if apart > 0:
        return ""
    return "a reset or boot that it dates before the request proves no repair; "


def clocks_said(
    nodes: Mapping[str, NodeView], healths: Mapping[str, HealthView], now: float
) -> list[str]:
    """One line for a fleet; none where all clocks are right."""
    names = sorted({*nodes, *healths})
    apart = {name: apart_s(nodes.get(name), healths.get(name), now) for name in names}
    told = [f"{name} ({_short(by)})" for name, by in apart.items() if by]
    if not told:
        return []
    first = next(name for name, by in apart.items() if by)
    have = "has a clock" if len(told) == 1 else "have clocks"
    said = f"{count(len(told), 'node')} {have} that the API server's contradicts: {some(told)}"
    return [f"{said}; what that means: kubectl gpuward why {first}"]


def _short(apart: float) -> str:
    return f"{span(abs(apart))} {'ahead' if apart > 0 else 'behind'}"
