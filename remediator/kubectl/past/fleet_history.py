"""`history` without a node: what was done to the fleet of late, one line for each session."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Final

from remediator.kubectl.cluster import Cluster
from remediator.kubectl.command import CommandError
from remediator.kubectl.fleet_look import gpu_nodes
from remediator.kubectl.look import wire_list
from remediator.kubectl.past.pauses import paused_lately, pauses_table
from remediator.view.session_words import askers, leading_reason, opened_words, phase_words
from remediator.view.text import NONE, document, span, table
from rules.api.nodes import NodeView, QuarantineView
from rules.api.quarantine import Mode, Phase
from rules.api.timestamps import parse_time
from rules.policy.durations import format_duration
from rules.session.history import ended_at
from rules.session.observation import is_open
from rules.session.reuse import wanted_at
from rules.session.status import BY_GPUWARD, BY_PERSON, LET_GO
from rules.text.counted import count

SINCE_S: Final = 7 * 86_400.0
"""How far it looks back where nobody says otherwise: what was done this week."""


async def fleet_history(cluster: Cluster, options: argparse.Namespace) -> str:
    """Sessions that were open at any time since then, the newest first, from themselves alone."""
    since_s: float = SINCE_S if options.since is None else options.since
    sessions = await cluster.sessions()
    now = cluster.now()  # the API server's, once it has answered
    found = lately(sessions, since_s, now)
    meant: frozenset[str] | None = None
    nodes: Sequence[NodeView] | None = None
    if options.selector:
        nodes = await gpu_nodes(cluster, options.selector) or ()
        meant = frozenset(node.name for node in nodes)
        found = [session for session in found if session.spec.node_name in meant]
    if options.output in {"json", "yaml"}:
        return document(wire_list(found), options.output)
    when = f"in the last {format_duration(since_s)}" if since_s else "as far as they are kept"
    if not found and options.selector and not meant:
        return f"no GPU node has the labels {options.selector}"
    wide = options.output == "wide"
    paused = await _paused(cluster, nodes, since_s, when, wide=wide)
    if not found:
        of = f" of a node with the labels {options.selector}" if options.selector else ""
        return f"no session{of} was open {when}{paused}"
    header = ["NODE", "OPENED", "PHASE", "OUT", "REASON", "EVICTED", "BY"]
    header += ["SESSION", "MESSAGE"] if wide else []
    rows = [_row(session, now, wide=wide) for session in found]
    told = table(header, rows, spare=("BY", "EVICTED", "OUT"), wide=wide)
    return f"{_totals(found)} {when}\n\n{told}{paused}"


async def _paused(
    cluster: Cluster,
    nodes: Sequence[NodeView] | None,
    since_s: float,
    when: str,
    *,
    wide: bool,
) -> str:
    """The pauses of that time, below the sessions; "" where there were none."""
    try:
        known = await cluster.pauses()
    except CommandError as error:
        if not error.forbidden:
            raise
        return "\n\nunseen: gpuwardpauses (list): who paused what"
    now = cluster.now()
    pauses = paused_lately(known, nodes, since_s, now)
    if not pauses:
        return ""
    return f"\n\n{count(len(pauses), 'pause')} {when}\n\n{pauses_table(pauses, now, wide=wide)}"


def lately(sessions: Iterable[QuarantineView], since_s: float, now: float) -> list[QuarantineView]:
    """Those that were open at any time in the last `since_s`, or ever where it is 0; the newest
    first.
    """
    found = [
        one for one in sessions if is_open(one) or not since_s or ended_at(one) >= now - since_s
    ]
    return sorted(found, key=lambda one: (wanted_at(one), one.name), reverse=True)


def _totals(sessions: Sequence[QuarantineView]) -> str:
    nodes = len({session.spec.node_name for session in sessions})
    still = sum(map(is_open, sessions))
    pods = sum(map(_evicted, sessions))
    return (
        f"{count(len(sessions), 'session')} of {count(nodes, 'node')}, {still} still open, "
        f"{count(pods, 'pod')} evicted,"
    )


def _row(session: QuarantineView, now: float, *, wide: bool) -> list[str]:
    return [
        session.spec.node_name,
        opened_words(session) or NONE,
        phase_words(session),
        _out(session, now),
        leading_reason(session),
        str(_evicted(session)),
        _who(session),
        *((session.name, session.status.message) if wide else ()),
    ]


def _out(session: QuarantineView, now: float) -> str:
    """How long its mark kept work away; `-` where none was ever set."""
    timeline = session.status.timeline
    marked = next((parse_time(one.at) for one in timeline if one.step == Phase.MARKED), None)
    if marked is None or session.status.mode == Mode.SHADOW:
        return "-"
    return span((now if is_open(session) else ended_at(session)) - marked)


def _evicted(session: QuarantineView) -> int:
    return session.status.drain.evicted if session.status.drain else 0


def _who(session: QuarantineView) -> str:
    """Who asked for it, let its repair go, and ended it."""
    phase, asked = session.status.phase, askers(session)
    let_go = dict.fromkeys(one.by for one in session.status.timeline if one.step == LET_GO)
    asked += f", repair let go by {', '.join(let_go)}" if let_go else ""
    by = next((one.by for one in reversed(session.status.timeline) if one.step == phase), "")
    if is_open(session) or by in {"", BY_GPUWARD}:
        return asked
    return f"{asked}, ended by {'a person' if by == BY_PERSON else by}"
