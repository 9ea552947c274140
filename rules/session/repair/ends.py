"""A session that ends takes its repair with it: the entry is closed, the request comes off."""

from __future__ import annotations

import msgspec

from rules.api.quarantine import Phase, QuarantineStatus, RepairState
from rules.api.timestamps import format_time
from rules.api.writes import SetRepairCondition
from rules.repair.ladder import Step
from rules.session.case import Case, touched
from rules.session.repair.requests import taking_back
from rules.session.repair.wants import under_way


def closed_repair(case: Case, status: QuarantineStatus, phase: Phase) -> QuarantineStatus:
    """`status` whose step under way is over with the session, proven where the node went with it."""
    attempt = under_way(status)
    if attempt is None:
        return status
    replaced = phase is Phase.NODE_GONE and attempt.step == Step.REPLACE_NODE
    ended = msgspec.structs.replace(
        attempt,
        ended_at=format_time(case.now),
        state=RepairState.PROVEN if replaced else RepairState.WITHDRAWN,
        proof="the Node is gone or another one" if replaced else "the session ended first",
    )
    repair = tuple(ended if a.object == attempt.object else a for a in status.repair)
    return touched(status, repair=repair)


def last_requests(case: Case, phase: Phase) -> tuple[SetRepairCondition, ...]:
    """What is to come off the node before the session's end is written."""
    return () if phase is Phase.NODE_GONE or case.shadow else taking_back(case, ends=True)
