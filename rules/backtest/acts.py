"""What people did, and what came from outside the fault itself: asked for a node, let a repair go,
held a node, released it, deleted it; and idle tests that failed. Read from session objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec

from rules.api.nodes import QuarantineView
from rules.api.quarantine import Phase, QuarantineSpec, RepairRequest
from rules.api.timestamps import parse_time
from rules.session.causes import ended_by_person, has_human
from rules.session.observation import is_open
from rules.session.validation import verdicts


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonAct:
    """What a person, or a test of an idle node, did at a time."""

    at: float
    node: str
    asks: QuarantineSpec | None = None
    """The session that was asked for, by `name`."""
    name: str = ""
    idle: bool = False
    """An idle test asked: under a policy that tests no idle node, nobody does."""
    lets_go: RepairRequest | None = None
    """One repair step that was let go."""
    holds: bool = False
    ends: str = ""
    """`Released` or `Cancelled`."""
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeWent:
    """A Node object was deleted, or replaced by another of its name."""

    at: float
    node: str
    node_uid: str
    """Of the one that went."""


def acts_of(sessions: Iterable[QuarantineView], *, ask: bool) -> tuple[PersonAct, ...]:
    """Oldest first; `ask`: each repair step needed a person's word (`repair.mode: Ask`)."""
    found = [act for session in sessions for act in _of(session, ask=ask)]
    return tuple(sorted(found, key=lambda act: (act.at, act.node)))


def nodes_that_went(sessions: Iterable[QuarantineView]) -> tuple[NodeWent, ...]:
    """Oldest first, each Node once."""
    found: dict[tuple[str, str], NodeWent] = {}
    for session in sessions:
        at = parse_time(session.status.phase_since)
        if session.status.phase != Phase.NODE_GONE or at is None:
            continue
        spec = session.spec
        went = NodeWent(at=at, node=spec.node_name, node_uid=spec.node_uid)
        known = found.get((spec.node_name, spec.node_uid))
        if known is None or at < known.at:
            found[spec.node_name, spec.node_uid] = went
    return tuple(sorted(found.values(), key=lambda went: (went.at, went.node)))


def _of(session: QuarantineView, *, ask: bool) -> Iterator[PersonAct]:
    node, opened = session.spec.node_name, session.metadata.created_at
    own = {test.object for test in session.status.validation}
    idle = any(c.source == verdicts.SOURCE and c.incident not in own for c in session.spec.causes)
    if has_human(session) or idle:
        asked = tuple(
            c
            for c in session.spec.causes
            if c.source == "Human" or (c.source == verdicts.SOURCE and c.incident not in own)
        )
        spec = msgspec.structs.replace(
            session.spec,
            causes=asked,
            release=None,
            node_uid="",
            boot_id="",
            repair=None,
            hold=False,
        )
        only_idle = idle and not has_human(session)
        yield PersonAct(at=opened, node=node, asks=spec, name=session.name, idle=only_idle)
    if ask:
        for attempt in session.status.repair:
            at = parse_time(attempt.started_at)
            if at is not None:
                yield PersonAct(at=at, node=node, lets_go=RepairRequest(step=attempt.step))
    if session.spec.hold:
        # When is not on record: nothing was held up before the last thing that was done.
        done = [parse_time(each.ended_at) for each in session.status.repair]
        done += [parse_time(each.ended_at) for each in session.status.validation]
        at = max([opened, *(each for each in done if each is not None)])
        yield PersonAct(at=at, node=node, holds=True)
    if is_open(session) or not ended_by_person(session):
        return
    at = parse_time(session.status.phase_since)
    request = session.spec.release
    if at is not None:
        by = request.by if request is not None else ""
        yield PersonAct(at=at, node=node, ends=str(session.status.phase), by=by)
