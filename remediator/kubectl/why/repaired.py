"""A person said that it is repaired, and the agent may see otherwise: with what. Pure."""

from __future__ import annotations

from typing import Final

from remediator.kubectl.node_look import NodeLook
from remediator.view.text import age
from rules.api.health import IncidentStatus
from rules.api.names import ANNOTATION_REPAIRED
from rules.api.timestamps import parse_time
from rules.catalog.plain_words import closes
from rules.catalog.reason import Severity

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


def _named(found: tuple[IncidentStatus, ...]) -> str:
    shown = ", ".join(f"{one.reason} ({one.severity})" for one in found[:_NAMED])
    return shown + (f" and {len(found) - _NAMED} more" if len(found) > _NAMED else "")
