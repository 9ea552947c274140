"""Pauses that were: `history` of the fleet tells of them, and `pause` forgets what is too old.

Their objects are people's: the remediator never writes or deletes one. What is kept is bounded
where it grows, by the next `pause`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final

from remediator.kubectl.cluster import GROUP_PATH, Cluster
from remediator.kubectl.command import CommandError
from remediator.view.people import pause_scope
from remediator.view.text import NONE, table
from rules.api.nodes import NodeView, PauseView
from rules.api.object_name import segment
from rules.api.requests import Request
from rules.api.timestamps import parse_time, utc_of
from rules.session.history import KEEP_S
from rules.session.observation import pause_means, pause_over

KEPT: Final = 50
"""How many that are over are kept at most: every rule about a node passes over them."""
_AT_ONCE: Final = 20
"""How many one command deletes at most."""
_OURS: Final = re.compile(r"pause-[0-9a-f]{8}")
"""What `pause` calls them; those of other names are for whoever made them to delete."""


def over_at(pause: PauseView) -> float:
    """When a pause that is over ended."""
    return parse_time(pause.spec.until) or 0.0


def paused_lately(
    pauses: Iterable[PauseView], nodes: Sequence[NodeView] | None, since_s: float, now: float
) -> list[PauseView]:
    """Those in force at any time in the last `since_s`, or ever where it is 0, the newest first;
    of `nodes`, where there are some, only those that cover one.
    """
    found = [
        pause
        for pause in pauses
        if (not since_s or not pause_over(pause, now) or over_at(pause) >= now - since_s)
        and (nodes is None or any(pause_means(pause, node) for node in nodes))
    ]
    return sorted(
        found, key=lambda one: (one.metadata.created_at, one.metadata.name), reverse=True
    )


def pauses_table(pauses: Iterable[PauseView], now: float, *, wide: bool) -> str:
    """Who paused what, why and until when, and who ended it."""
    header = ["PAUSE", "FROM", "UNTIL", "BY", "ENDED BY", "NODES", "REASON"]
    rows = [
        [
            pause.metadata.name,
            utc_of(pause.metadata.creation_timestamp) or NONE,
            utc_of(pause.spec.until) or "-",
            pause.spec.by or "a person",
            ended_by(pause, now),
            pause_scope(pause),
            pause.spec.reason,
        ]
        for pause in pauses
    ]
    return table(header, rows, spare=("NODES", "UNTIL"), wide=wide)


def ended_by(pause: PauseView, now: float) -> str:
    """Who ended it; `-` while it is in force, whatever its record says."""
    if not pause_over(pause, now):
        return "-"
    ended = pause.spec.ended
    return (ended.by or "a person") if ended is not None else "its time"


def outlived(pauses: Iterable[PauseView], now: float) -> tuple[PauseView, ...]:
    """Those of ours that are over and that history no longer keeps: too old, or too many."""
    over = [p for p in pauses if pause_over(p, now) and _OURS.fullmatch(p.metadata.name)]
    over.sort(key=lambda one: (over_at(one), one.metadata.name), reverse=True)
    gone = [p for place, p in enumerate(over) if place >= KEPT or now - over_at(p) > KEEP_S]
    return tuple(gone[-_AT_ONCE:])


async def forget_outlived(cluster: Cluster) -> None:
    """Delete them as they were seen: one that somebody took up again stays. Whoever may not is
    stopped by nothing.
    """
    with suppress(CommandError):
        for pause in outlived(await cluster.pauses(), cluster.now()):
            seen = {"uid": pause.metadata.uid, "resourceVersion": pause.metadata.resource_version}
            path = f"{GROUP_PATH}/gpuwardpauses/{segment(pause.metadata.name)}"
            body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": seen}
            await cluster.send(Request(method="DELETE", path=path, body=body))
