"""Xid 13 and 31: a program's fault, until the same GPU repeats it for different programs.

Called by ``judge_kernel`` for these two numbers. A crash-looping pod is not bad hardware, so
bursts are counted per workload; a process whose workload is unknown counts as the same one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from rules.judge_state import MAX_BURSTS, Burst, NodeState
from rules.observation import KernelLineSeen
from rules.reason import BY_HUMAN, SILENCE_3M, Action, Level, Reason, Severity
from rules.thresholds import Rules

REPEATING_XIDS: Final = frozenset({13, 31})
_PLACED_XID: Final = 13
"""Only its line names the place (GPC and TPC), so only there the place can repeat."""

_MAX_PLACES: Final = 16


def repeated_row(
    state: NodeState, seen: KernelLineSeen, gpu: str, row: Reason, rules: Rules
) -> tuple[NodeState, Reason]:
    """Count the line, and raise ``row`` to Degraded, Report where the pattern says hardware."""
    xid = seen.line.xid
    if xid not in REPEATING_XIDS or not gpu:
        return state, row
    state = replace(state, bursts=_counted(state.bursts, seen, xid, gpu, rules))
    if not _says_hardware(state.bursts, xid, gpu, rules):
        return state, row
    return state, replace(
        row,
        severity=Severity.DEGRADED,
        level=Level.REPORT,
        action=Action.RUN_DIAGNOSTICS,
        closes_on=BY_HUMAN,
    )


def _counted(
    bursts: tuple[Burst, ...], seen: KernelLineSeen, xid: int, gpu: str, rules: Rules
) -> tuple[Burst, ...]:
    """Add the line to its burst; three minutes of silence begin a new one."""
    oldest = seen.at - rules["RepeatWindow"].value
    kept = [burst for burst in bursts if burst.last_at >= oldest]
    line = seen.line
    place = () if line.gpc is None or line.tpc is None else ((line.gpc, line.tpc),)
    for position, burst in enumerate(kept):
        if (burst.xid, burst.gpu, burst.workload) == (xid, gpu, seen.workload) and abs(
            seen.at - burst.last_at
        ) < SILENCE_3M.silence_s:
            places = tuple(dict.fromkeys((*burst.places, *place)))[:_MAX_PLACES]
            last_at = max(burst.last_at, seen.at)
            kept[position] = replace(burst, places=places, last_at=last_at)
            return tuple(kept)
    kept.append(
        Burst(
            xid=xid,
            gpu=gpu,
            workload=seen.workload,
            places=place,
            first_at=seen.at,
            last_at=seen.at,
        )
    )
    return tuple(kept[-MAX_BURSTS:])


def _says_hardware(bursts: tuple[Burst, ...], xid: int, gpu: str, rules: Rules) -> bool:
    """Enough bursts, of enough workloads, of which no other GPU shows it; 13 at one place."""
    here = [burst for burst in bursts if burst.xid == xid and burst.gpu == gpu]
    if xid == _PLACED_XID:
        here = _at_one_place(here)
    workloads = {burst.workload for burst in here}
    if len(here) < rules["RepeatBursts"].value or len(workloads) < rules["RepeatWorkloads"].value:
        return False
    return not any(
        burst.xid == xid and burst.gpu != gpu and burst.workload in workloads for burst in bursts
    )


def _at_one_place(bursts: list[Burst]) -> list[Burst]:
    """The bursts that share the place most of them share."""
    places = [place for burst in bursts for place in burst.places]
    if not places:
        return []
    most = max(sorted(set(places)), key=places.count)
    return [burst for burst in bursts if most in burst.places]
