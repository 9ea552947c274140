"""Which of several faults is the gravest: of equal severity the one that asks for more.

The one rule for whoever has room for one reason: the agent's verdict, and of a session the lists,
the page and the metrics that alerts name.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from rules.catalog.reason import Action, Reason
from rules.catalog.reasons import REASONS, RECOVERY_REASONS
from rules.catalog.xid import catalog

ACTIONS: Final = (
    Action.NONE,
    Action.RESTART_APP,
    Action.INVESTIGATE,
    Action.RUN_DIAGNOSTICS,
    Action.CHECK_MECHANICALS,
    Action.UPDATE_FIRMWARE,
    Action.RESTART_FABRIC_MANAGER,
    Action.RECOVER_IMEX_DOMAIN,
    Action.DRAIN_P2P,
    Action.RESET_GPU,
    Action.RESTART_NODE,
    Action.POWER_CYCLE,
    Action.REPLACE_NODE,
)
"""From the mildest repair to the heaviest."""


def strength(row: Reason) -> tuple[int, int, int]:
    """Order of rows: severity, then level, then how heavy the repair is."""
    return row.severity.rank, row.level.rank, ACTIONS.index(row.action)


def asks_for(reason: str) -> tuple[int, int]:
    """How much a fault asks for of which only the reason is known: level and repair of its row;
    nothing where no row has the name, as of what others say on a node.
    """
    row = REASONS.get(reason) or RECOVERY_REASONS.get(reason) or _xids().get(reason)
    return strength(row)[1:] if row is not None else (0, 0)


@cache
def _xids() -> dict[str, Reason]:
    rows = (row.reason() for row in catalog().values())
    return {row.reason: row for row in rows}
