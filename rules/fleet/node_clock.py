"""How far a node's clock is from the API server's: `why`, `fleet` and the page ask here.

The agent and the kubelet date what they say by the node's clock, the API server notes by its own
when the kubelet's report came: two readings of one moment. Where that is not at hand (no leave to
read nodes, a kubelet of another name, the remediator's own copy of the nodes, which is without
their managers for their size) a time that is still to come shows a clock that is ahead, and
nothing shows one that is behind: what it says looks like something said a while ago. Pure.
"""

from __future__ import annotations

from typing import Final

from rules.api.nodes import HealthView, NodeView, TimedNode
from rules.api.timestamps import parse_time

CLOCKS_AGREE_S: Final = 120.0
"""Clocks that are kept agree far better, and a report does not travel this long."""
_KUBELET: Final = "kubelet"
"""What the API server calls the kubelet in `managedFields`. One that shares its process with
controllers (k3s) writes under their name, and the time there may be theirs.
"""


def apart_s(node: NodeView | None, health: HealthView | None, now: float) -> float:
    """By how much the node's clock is ahead of the API server's, negative where it is behind; 0.0
    where they agree as far as anything says.
    """
    by_report = _by_report(node)
    if by_report is not None:
        return by_report if abs(by_report) > CLOCKS_AGREE_S else 0.0
    still_to_come = _latest(health) - now
    return still_to_come if still_to_come > CLOCKS_AGREE_S else 0.0


def _by_report(node: NodeView | None) -> float | None:
    """As the kubelet's last report says; None where none is at hand."""
    ready = node.condition("Ready") if isinstance(node, TimedNode) else None
    if not isinstance(node, TimedNode) or ready is None:
        return None
    reports = (
        parse_time(entry.time)
        for entry in node.metadata.managed_fields
        if entry.manager == _KUBELET and entry.subresource == "status"
    )
    noted = max((at for at in reports if at is not None), default=None)
    dated = parse_time(ready.last_heartbeat_time or "")
    return None if noted is None or dated is None else dated - noted


def _latest(health: HealthView | None) -> float:
    """The latest time in the verdict; 0.0 without any."""
    if health is None:
        return 0.0
    status = health.status
    told = (
        status.observed_at,
        status.publisher.heartbeat,
        *(incident.last_seen for incident in status.incidents),
    )
    return max((at for one in told if (at := parse_time(one or "")) is not None), default=0.0)
