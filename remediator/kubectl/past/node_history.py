"""`history NODE`: the sessions of a node, then all that happened to it in one list."""

from __future__ import annotations

import argparse
from typing import Final, NoReturn

from remediator.kubectl.cluster import Cluster
from remediator.kubectl.command import CommandError
from remediator.kubectl.look import nearest, wire_list
from remediator.kubectl.node_look import RECORDS, NodeLook, look_at, readable_records
from remediator.kubectl.past.fleet_history import fleet_history
from remediator.kubectl.terminal import Terminal
from remediator.view.session_view import gpu_ids
from remediator.view.session_words import askers, leading_reason, opened_words, phase_words
from remediator.view.shapes import TimelineItem
from remediator.view.text import NONE, document, span, table
from remediator.view.timeline import SHOWN_ITEMS, Lane, lasted, node_timeline
from rules.api.health import HealthStatus
from rules.api.nodes import QuarantineView
from rules.api.timestamps import parse_time, utc_of
from rules.fleet.happenings import records_by_now
from rules.ledger.record import RecordView, record_names
from rules.session.observation import is_open
from rules.session.reuse import wanted_at
from rules.text.counted import count

_MOST_GPUS: Final = 16
_SAID: Final = 100
"""Characters of what a person wrote, in a line; with -o wide all of them."""
_SHOWN: Final = 40
"""Lines of the timeline; with -o wide all that the page draws."""


async def history(cluster: Cluster, options: argparse.Namespace, _: Terminal) -> str:
    """All sessions of one node, oldest first, and its timeline; without a node what was done to
    the fleet of late.
    """
    if not options.node:
        return await fleet_history(cluster, options)
    if options.since is not None:
        raise CommandError(
            "--since goes without NODE: of one node all that is kept is shown", exit_code=64
        )
    if options.output in {"json", "yaml"}:
        found = await cluster.sessions(options.node)
        if not found and await cluster.node(options.node) is None:
            await _unknown(cluster, options.node)
        return document(wire_list(found), options.output)
    look = await look_at(cluster, options.node, namespace=options.namespace)
    sessions = list(look.sessions)
    timeline = node_timeline(
        look.name,
        sessions,
        look.health.status if look.health is not None else None,
        await _records(cluster, look),
        look.now,
        (*look.pauses_over, *(look.pauses if look.node is not None else ())),
    )
    if not sessions and not timeline:
        if look.node is None and not look.node_hidden:
            await _unknown(cluster, options.node)
        return f"{look.name} has no session on record"
    wide = options.output == "wide"
    parts = [_sessions(sessions, look.now, wide=wide)] if sessions else []
    parts += [_timeline(timeline, wide=wide)] if timeline else []
    if look.stale and any(item.lane == Lane.FAULT and not item.until for item in timeline):
        parts.append(f"whether the faults go on is not known: {look.stale}")
    if RECORDS in look.unseen:
        parts.append(f"unseen: {RECORDS}")
    return "\n\n".join(parts)


async def _unknown(cluster: Cluster, name: str) -> NoReturn:
    near = await nearest(cluster, name)
    raise CommandError(f"there is no node {name}, and no session of one{near}")


async def _records(cluster: Cluster, look: NodeLook) -> tuple[RecordView, ...]:
    """What is on record of the node and of the GPUs that failed there, with what is known by now;
    nothing of the first without permission.
    """
    status = look.health.status if look.health is not None else HealthStatus()
    named = [uuid for session in look.sessions for uuid in gpu_ids(session)]
    named += [uuid for one in status.incidents for uuid in one.gpus]
    named += [gpu.uuid for gpu in status.gpus]
    names = record_names(look.name, list(dict.fromkeys(named))[:_MOST_GPUS])
    try:
        known = await readable_records(cluster, names)
    except CommandError:
        known = ()
    return records_by_now(look.name, look.node, look.health, look.sessions, known, look.now)


def _sessions(sessions: list[QuarantineView], now: float, *, wide: bool) -> str:
    rows = [
        [
            opened_words(s, seconds=True) or NONE,
            phase_words(s),
            _lasted(s, now),
            leading_reason(s),
            str(s.status.drain.evicted if s.status.drain else 0),
            s.name,
            *((askers(s), s.status.message) if wide else ()),
        ]
        for s in sessions
    ]
    header = ["OPENED", "PHASE", "LASTED", "REASON", "EVICTED", "SESSION"]
    header += ["BY", "MESSAGE"] if wide else []
    return table(header, rows, spare=("SESSION", "EVICTED", "LASTED"), wide=wide)


def _lasted(session: QuarantineView, now: float) -> str:
    end = now if is_open(session) else parse_time(session.status.phase_since)
    began = wanted_at(session)
    return span(end - began) if end is not None and began else NONE


def _timeline(timeline: list[TimelineItem], *, wide: bool) -> str:
    """One line for each thing that happened, oldest first."""
    shown = timeline[-SHOWN_ITEMS if wide else -_SHOWN :]
    left_out = len(timeline) - len(shown)
    header = ["AT", "KIND", "FOR", "WHAT", *(["SAID"] if wide else [])]
    told = table(header, [_line(item, wide=wide) for item in shown], wide=wide)
    more = "" if wide else "; -o wide shows more"
    return f"{told}\n{count(left_out, 'older line')} left out{more}" if left_out else told


def _line(item: TimelineItem, *, wide: bool) -> list[str]:
    state = item.state if item.state not in item.what else ""
    by = f"by {item.by}" if item.by else ""
    what = " ".join(filter(None, (item.what, state, by)))
    if item.lane == Lane.PERSON and item.said and not wide:
        what = f"{what}: {item.said[:_SAID]}"
    at = utc_of(item.at, seconds=True)
    return [at, item.lane, lasted(item) or "-", what, *([item.said] if wide else ())]
