"""NVLink errors that come again on one link, and the return of the links that a common cause took.

Called by `judge.facts.kernel` for each line about a link, and by `judge.facts.readings` for each
poll that read the links. One error of a link is a hint; a second within a day on the same link,
or one on each of three links, means that a new job there would hang, so the node takes none.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Final

from msgspec.structs import replace

from rules.catalog.reason import ClosesKind, Level, Reason, Severity
from rules.catalog.signals import Signal
from rules.judge import ledger
from rules.judge.incident import Incident, Named
from rules.judge.judging import Judging, close_for
from rules.judge.present import all_links_up
from rules.judge.state import GpuView, find_gpu
from rules.kernel_log.record import KernelLine

LINK_XID: Final = 74
LINK_XIDS: Final = frozenset({LINK_XID, *range(144, 151)})
"""Errors of NVLinks, before and from NVLink 5."""

_ON_LINK: Final = f"Xid {LINK_XID} on link "

_MANY_LINKS: Final = 3
"""Links of one GPU that had an error within the day, each at another time: then it is the GPU's.
Source: gpuward, as many as bursts of 13 at one place."""

_RETURNED_LOOKS: Final = 3
"""Looks that find all links up after the last error. Source: gpuward, as for NVLinkDown."""


def count_link_fault(
    on: Judging, line: KernelLine, row: Reason, who: Named, at: float
) -> tuple[Judging, Reason]:
    """Note an error of a link; its row is heavier when the same link, or two other links of the
    same GPU, had one within the day.

    What the registers call harmless, or the consequence of another error, does not count.
    """
    if line.xid in LINK_XIDS and (view := find_gpu(on.state, *who)) is not None:
        on = on.with_gpu(replace(view, links_up=0))
    if line.xid != LINK_XID or line.link is None or row.severity is Severity.INFO:
        return on, row
    window_s = on.thresholds["RepeatWindow"].value
    apart_s = on.thresholds["IncidentGrouping"].value
    what = f"{_ON_LINK}{line.link}"
    erred_at = _erred_at(on, who, at - window_s)
    noted = ledger.noted(on.state.ledger, ledger.whose(*who), what, at, window_s, family=_ON_LINK)
    on = on.then(replace(on.state, ledger=noted))
    again = at - erred_at.get(what, at) > apart_s
    if not again and _bursts((*erred_at.values(), at), apart_s) < _MANY_LINKS:
        return on, row
    heavier = replace(
        row,
        severity=max(row.severity, Severity.DEGRADED),
        level=max(row.level, Level.CORDON),
    )
    return on, heavier


def _erred_at(on: Judging, who: Named, since: float) -> dict[str, float]:
    """When each link of a GPU last had an error after `since`, under either of its names."""
    found: dict[str, float] = {}
    for (owner, what), entry in on.state.ledger.items():
        if owner in who and what.startswith(_ON_LINK) and entry.last_at >= since:
            found[what] = max(entry.last_at, found.get(what, since))
    return found


def _bursts(times: Iterable[float], apart_s: float) -> int:
    """How many of these times are more than `apart_s` after the one before, the first included."""
    ordered = sorted(times)
    return 1 + sum(later - earlier > apart_s for earlier, later in pairwise(ordered))


def links_returned(on: Judging, view: GpuView) -> Judging:
    """Take one look at a GPU's links: what waits for their return ends when it lasts."""
    looks = view.links_up + 1 if all_links_up(on.state, view) else 0
    on = on.with_gpu(replace(view, links_up=min(looks, _RETURNED_LOOKS)))
    if looks < _RETURNED_LOOKS:
        return on
    return close_for(on, view.who, _waits_for_links, ClosesKind.STATE)


def _waits_for_links(incident: Incident) -> bool:
    waits = incident.row.closes_on.signal == Signal.NVLINK_STATES
    return waits and not LINK_XIDS.isdisjoint(incident.xids)
