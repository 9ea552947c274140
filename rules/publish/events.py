"""The Kubernetes Events that a person watching the node should see.

Called by the agent's edge with the changes of one observation. Records of Info make none: a
crash-looping program must not flood the API server.
"""

from __future__ import annotations

import msgspec

from rules.catalog.reason import Severity
from rules.judge.change import Change, ChangeKind
from rules.judge.facts.common import COMMON
from rules.judge.state import NodeState
from rules.publish.sentences import incident_sentence, subject

WARNING = "Warning"
NORMAL = "Normal"


class NodeEvent(msgspec.Struct, frozen=True):
    """One Event about the node."""

    type: str
    reason: str
    message: str


def events_for(state: NodeState, changes: tuple[Change, ...]) -> tuple[NodeEvent, ...]:
    """The Events for what just changed; `state` is the new state."""
    events = (_event(state, change) for change in changes)
    return tuple(event for event in events if event is not None)


def _event(state: NodeState, change: Change) -> NodeEvent | None:
    incident = change.incident
    if incident is not None:
        if incident.row.severity is Severity.INFO:
            return None
        if change.kind is ChangeKind.CLOSED:
            about = subject(state, incident)
            sentence = f"{about}: {change.reason} is over ({incident.closed_by})."
            if incident.closed_by == COMMON:
                sentence = f"{about}: {change.reason} goes on as one fault of the whole node."
            return NodeEvent(NORMAL, change.reason, sentence)
        if not incident.active:
            return None
        return NodeEvent(WARNING, change.reason, incident_sentence(state, incident, 0))
    match change.kind:
        case ChangeKind.STAND_DOWN:
            return NodeEvent(
                NORMAL, change.reason, "The agent lets go of the GPUs on request; nothing new is "
                                       "judged lost until they are back."
            )  # fmt: skip
        case ChangeKind.STAND_DOWN_EXPIRED:
            return NodeEvent(
                WARNING, change.reason, "The GPUs were let go for over two hours; the agent takes "
                                        "them back, end the pause that was forgotten."
            )  # fmt: skip
        case _:
            return None
