"""When people said something: their words carry a time, and only some of what is written by hand.

Pure. The times are hostile as everything that others write: what is no time counts as none, and
what cannot be is bounded by what it was said about.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import structs

from rules.api.nodes import QuarantineView
from rules.api.quarantine import Cause, RepairRequest
from rules.api.timestamps import format_time, parse_time
from rules.session.observation import is_open
from rules.session.reuse import taken_up_at


def said_at(at: str, session: QuarantineView, now: float) -> float | None:
    """When it was said about the session: not before there was one, and not after `now` or the end
    of the session; None where nobody noted it.
    """
    said = parse_time(at)
    if said is None:
        return None
    over = None if is_open(session) else parse_time(session.status.phase_since)
    latest = now if over is None else min(now, over)
    return max(min(said, latest), session.metadata.created_at)


def dated(causes: Iterable[Cause], now: float) -> list[Cause]:
    """Causes that join an open session now; one that says a time itself keeps it."""
    at = format_time(now)
    return [cause if cause.at else structs.replace(cause, at=at) for cause in causes]


def word_in_force(session: QuarantineView, causes: Iterable[Cause]) -> RepairRequest | None:
    """The word of the person who let a repair step go; None where nobody did, or where none of the
    faults that it was said for holds any more. `causes` are those that hold.

    A session that people alone asked for has no faults: there the word holds as long as it does.
    """
    asked = session.spec.repair
    if asked is None or all(cause.source == "Human" for cause in session.spec.causes):
        return asked
    faults = [cause for cause in causes if cause.source != "Human"]
    return asked if any(_said_for(asked, cause, session) for cause in faults) else None


def _said_for(asked: RepairRequest, cause: Cause, session: QuarantineView) -> bool:
    """Whether the fault was there when the word was said; of what has no time nobody knows, and
    the word holds.
    """
    said = parse_time(asked.at)
    if said is None:
        return True
    since = [parse_time(cause.at), taken_up_at(session)]
    return all(at is None or at <= said for at in since)
