"""Whom a session moved, and which repair of several is the one to do. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rules.api.health import IncidentStatus
from rules.api.nodes import QuarantineView
from rules.api.quarantine import pods_of
from rules.api.sentences import some, these
from rules.catalog.reason import Action
from rules.drain.fate import LeftBy
from rules.session.causes import EVIDENCE_GANGS

_REACH: Final = (Action.RESTART_NODE, Action.POWER_CYCLE, Action.REPLACE_NODE)
"""Repairs of the whole node, each of which does what a reset and the ones before it would."""


def evicted_lines(session: QuarantineView | None) -> Iterator[str]:
    """The pods that were moved off the node, and their gangs: whose work it was; and those that
    the policy leaves on it. Daemons are counted in the session's sentence and no news.
    """
    drain = session.status.drain if session is not None else None
    if session is None or drain is None:
        return
    if left := [note for note in drain.left_by_policy.named if note.why != LeftBy.NATURE_DAEMON]:
        yield f"left on it by policy: {these(pods_of(left))}"
    if not drain.evicted:
        return
    more = ", the last" if drain.evicted > len(drain.recent) else ""
    if drain.recent:
        yield f"evicted{more}: {some(drain.recent)}"
    gangs = session.status.evidence.get(EVIDENCE_GANGS)
    if isinstance(gangs, list) and gangs:
        yield f"gang: {some([str(gang) for gang in gangs])}"


def goes_further(incident: IncidentStatus, active: Sequence[IncidentStatus]) -> str:
    """The reason of an active incident whose repair makes this one's superfluous; "" of none.

    Nobody who is to replace a node should be told to reset one of its GPUs first.
    """
    mine = _reach(incident.recommended_action)
    if mine is None:
        return ""
    others = [(_reach(one.recommended_action) or 0, one.reason) for one in active]
    furthest, reason = max(others, default=(0, ""))
    return reason if furthest > mine else ""


def _reach(action: str) -> int | None:
    """How far a repair goes; None of what no other repair does."""
    if action in {Action.RESET_GPU, Action.DRAIN_P2P}:
        return 0
    return next((n for n, known in enumerate(_REACH, start=1) if known == action), None)
