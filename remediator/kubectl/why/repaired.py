"""What keeps a fault open after a repair: what the agent still sees, or misses. Pure."""

from __future__ import annotations

from typing import Final

from remediator.kubectl.node_look import NodeLook
from remediator.view.times import age
from rules.api.health import HealthStatus, IncidentStatus
from rules.api.names import ANNOTATION_EXPECTED_GPUS, ANNOTATION_REPAIRED
from rules.api.timestamps import parse_time
from rules.catalog.explanations import closes
from rules.catalog.reason import Severity
from rules.catalog.signals import SourceState
from rules.text.counted import count
from rules.text.pci_address import plain_address

HEARD_WITHIN_S: Final = 60.0
"""A living agent has judged a new annotation long before: it watches its node, and judges at every
poll (`agent/daemon`), 15 s apart.
"""
_NAMED: Final = 6


def faults(look: NodeLook) -> tuple[IncidentStatus, ...]:
    """What is wrong still, as the agent last said: a record of Info is no fault."""
    incidents = look.health.status.incidents if look.health is not None else ()
    return tuple(one for one in incidents if one.active and one.severity != Severity.INFO)


def objections(look: NodeLook) -> list[str]:
    """What speaks against a repair now, a line each; empty where nothing does."""
    if look.health is None:
        return ["nobody can agree: there is no verdict for this node"]
    found = faults(look)
    if not found:
        return []
    if look.stale:
        return [f"nobody can agree now: {look.stale}, and its last word was {_named(found)}"]
    lines = [
        f"{one.reason} ({one.severity}), last seen {age(one.last_seen, look.now)} ago: "
        f"{closes(one.closes_on)}"
        + (f"; {gone}" if (gone := not_here(one, look.health.status, look.name)) else "")
        for one in found[:_NAMED]
    ]
    return [*lines, *([f"and {len(found) - _NAMED} more"] if len(found) > _NAMED else [])]


def disagreement(look: NodeLook) -> list[str]:
    """Lines for `why`: a repair was claimed, there was time to see it, and the fault is there."""
    said = look.node.annotations.get(ANNOTATION_REPAIRED, "") if look.node is not None else ""
    said_at = parse_time(said.partition(" ")[0])
    if said_at is None or look.now - said_at < HEARD_WITHIN_S or look.health is None:
        return []
    # What began after the repair is another fault.
    before = [one for one in faults(look) if (parse_time(one.first_seen) or 0.0) < said_at]
    if not before or look.stale:
        return []
    return [f"the agent disagrees with the repair: it still sees {_named(tuple(before))}"]


_GPU_SOURCES: Final = frozenset({"nvml", "dcgm-exporter"})
"""The data sources that list the node's GPUs."""

_COUNTED_BY: Final = {
    "Annotation": f"by the annotation {ANNOTATION_EXPECTED_GPUS}",
    "Config": "by the agent's --expected-gpus",
}


def not_here(incident: IncidentStatus, status: HealthStatus, node: str) -> str:
    """What is missing where the agent sees the node's GPUs and not the one of a fault; "" else."""
    if not any(one.name in _GPU_SOURCES and one.state == SourceState.UP for one in status.sources):
        return ""
    here = [gpu for gpu in status.gpus if gpu.index >= 0]
    uuids, addresses = {gpu.uuid for gpu in here}, {plain_address(gpu.pci) for gpu in here}
    there = (
        uuids.issuperset(incident.gpus)
        if incident.gpus
        else addresses.issuperset(map(plain_address, incident.pci))
    )
    if there or incident.scope != "GPU" or incident.severity == Severity.INFO:
        return ""
    expected = status.expected_gpus
    if len(here) >= expected.count:
        return (
            "its GPU is not here and no GPU is missing: closes with the next reboot, or once you "
            f"run kubectl gpuward repaired {node}"
        )
    by = _COUNTED_BY.get(expected.source, "as the most ever seen here")
    lower = (
        "lower that"
        if expected.source == "Config"
        else f"kubectl annotate node {node} {ANNOTATION_EXPECTED_GPUS}={len(here)} --overwrite"
    )
    return (
        f"its GPU is not here, {len(here)} of {count(expected.count, 'GPU')} are (expected {by}): "
        f"put it back or, if it was removed for good, {lower}"
    )


def _named(found: tuple[IncidentStatus, ...]) -> str:
    shown = ", ".join(f"{one.reason} ({one.severity})" for one in found[:_NAMED])
    return shown + (f" and {len(found) - _NAMED} more" if len(found) > _NAMED else "")
