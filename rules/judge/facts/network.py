"""Ports of the InfiniBand and RoCE adapters: one that worked and stays down is a finding.

Called by `judge_sources.take_host`. A port that was never seen active is not in use, and a flap
is over before it counts.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from rules.catalog.reason import ClosesKind
from rules.catalog.reasons import REASONS
from rules.judge.incident import Finding, Scope
from rules.judge.judging import Judging, close_where
from rules.judge.observation import HostSeen, NetworkPort, SourceName
from rules.judge.recording import record
from rules.judge.state import NodeState, PortView

PORT_DOWN: Final = "NetworkPortDown"
_MAX_PORTS: Final = 64


def judge_ports(on: Judging, seen: HostSeen) -> Judging:
    """Take one look at the ports; a host without adapters has none to look at."""
    known = _named(on.state)
    ports = {
        port.name: _stepped(on.state.ports.get(port.name, PortView()), port, on.now, known=known)
        for port in seen.ports[:_MAX_PORTS]
    }
    on = on.then(replace(on.state, ports=ports))
    since = {name: view.down_since for name, view in ports.items() if view.down_since is not None}
    if ports and not since:
        return close_where(on, lambda i: i.row.reason == PORT_DOWN, ClosesKind.STATE)
    down = [
        name
        for name, at in since.items()
        if not ports[name].good_looks and on.now - at >= on.thresholds[PORT_DOWN].value
    ]
    if known or not down:
        return on
    finding = Finding(
        at=seen.at,
        row=REASONS[PORT_DOWN],
        source=SourceName.HOST,
        evidence=f"network ports that were active and are down: {', '.join(sorted(down))}",
        ports=tuple(sorted(down)),
        scope=Scope.NODE,
    )
    return record(on, finding)


def _named(state: NodeState) -> frozenset[str]:
    """The ports that an open finding names: an earlier agent on this node saw them active."""
    return frozenset(
        name
        for incident in state.incidents
        if incident.active and incident.row.reason == PORT_DOWN
        for name in incident.ports
    )


def _stepped(view: PortView, port: NetworkPort, now: float, *, known: frozenset[str]) -> PortView:
    """One port after a look."""
    if port.active:
        good = view.good_looks + 1
        if view.down_since is None or good >= REASONS[PORT_DOWN].closes_on.count:
            return PortView(was_active=True)
        return replace(view, was_active=True, good_looks=good)
    if not view.was_active and port.name not in known:
        return view
    since = now if view.down_since is None else min(view.down_since, now)
    return replace(view, down_since=since, good_looks=0)
