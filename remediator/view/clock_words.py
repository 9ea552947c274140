"""That a node's clock is wrong, in words: how far, and what is not believed meanwhile. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from remediator.view.text import span
from rules.api.nodes import HealthView, NodeView
from rules.api.sentences import some
from rules.fleet.node_clock import apart_s
from rules.session.observation import HEARTBEAT_FRESH_S
from rules.text.counted import count


def clock_said(node: NodeView | None, health: HealthView | None, now: float) -> str:
    """Which way, how far, and what that means; "" of a clock that is right as far as is known."""
    apart = apart_s(node, health, now)
    if not apart:
        return ""
    way = "ahead of" if apart > 0 else "behind"
    return (
        f"the node's clock is {span(abs(apart))} {way} the API server's: the times of its faults "
        f"are, too, while deadlines and healthy time go by the API server's; "
        f"{_meanwhile(health, apart)}see to its NTP"
    )


def _meanwhile(health: HealthView | None, apart: float) -> str:
    """What is believed less: an agent outside a pod is known to live by its dates alone."""
    beats = health is not None and not health.status.publisher.pod_uid
    if apart > 0:
        return "that its agent stops is noticed that much later; " if beats else ""
    silent = beats and -apart > HEARTBEAT_FRESH_S
    return (
        "a reset or boot that it dates before the request proves no repair; "
        f"{'its agent counts as silent, since its heartbeats look old; ' if silent else ''}"
    )


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
