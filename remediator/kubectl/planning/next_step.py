"""What comes next for one node, in words: of what `rules.fleet.forecast` foresees. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rules.api.quarantine import Phase
from rules.api.repair.writes import CreateTestJob, SetRepairCondition, WriteRepairObject
from rules.api.writes import Evicting
from rules.fleet.forecast import Foreseen
from rules.session.causes import drains_now
from rules.session.observation import is_open
from rules.session.snapshot import FleetSnapshot

_MARKS: Final = {"CordonAndTaint": "cordon and taint", "Taint": "taint", "Cordon": "cordon"}
_UNDRAINED: Final = "level Cordon leaves its pods alone until the causes close"


@dataclass(frozen=True, slots=True, kw_only=True)
class NextStep:
    """What is done, what after a wait, and why not more."""

    would: str
    then: str = ""
    because: str = ""
    blocked_by: str = ""
    """The reason of `rules.catalog.why_not`; "" where nothing is in the way."""
    drains: bool = False
    """Its pods are evicted, now or after the wait."""


def next_step(found: Foreseen, snapshot: FleetSnapshot) -> NextStep:
    """Of one node; `snapshot` is the fleet as it is foreseen."""
    session, decision = found.after, found.decision
    mark = _MARKS[snapshot.policy.mark]
    why, code = decision.because, decision.blocked_by or ""
    match found.asks:
        case SetRepairCondition() | WriteRepairObject() as asks:
            return NextStep(would=f"ask for {asks.step}", because=decision.message)
        case CreateTestJob():
            return NextStep(would="test under load", because=decision.message)
    if session is None:
        would = "take the mark off" if found.unmarked else "nothing"
        return NextStep(would=would, because=why, blocked_by=code)
    phase = session.status.phase or Phase.PENDING
    if phase == Phase.RELEASED:
        return NextStep(would="release", because=why)
    if not is_open(session):
        return NextStep(would=f"end, {phase}", because=why)
    if phase == Phase.PENDING:
        return NextStep(would="wait", because=why, blocked_by=code)
    node = snapshot.nodes.get(found.node)
    drains = node is not None and drains_now(session, node, snapshot)
    if phase in {Phase.MARKED, Phase.DRAINING} and drains:
        if decision.evicting is Evicting.GO:
            return NextStep(would="drain", drains=True)
        would = f"{mark}, wait" if found.marked else "wait"
        return NextStep(would=would, then="drain", because=why, blocked_by=code, drains=True)
    if found.marked:
        # What is foreseen of a session that is marked only then says that it is marked already.
        because = _UNDRAINED if phase == Phase.MARKED else decision.message
        return NextStep(would=mark, because=because)
    before = found.before.status.phase if found.before is not None else ""
    would = f"stay {phase}" if phase == before else f"go on to {phase}"
    return NextStep(would=would, because=decision.message, blocked_by=code)
