"""Explain an open session: what it waits for, what ends that, and what comes next. Pure.

The page and `kubectl gpuward why` show the same explanation. It is made of conditions, drain and
phase; the session's own sentence is shown as it is stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from remediator.view.shapes import Blocker, Explanation
from rules.api.nodes import QuarantineView
from rules.api.quarantine import BlockedBy, Condition, Mode, Phase, RepairState
from rules.api.sentences import these
from rules.catalog.data_file import data_file
from rules.catalog.reason import Level
from rules.catalog.why_not import WhyNot
from rules.policy.policy import shadow_of
from rules.session.causes import CauseSight, level_in_effect, open_causes
from rules.session.observation import is_open
from rules.session.status import PROPOSED, blocked_by, is_true
from rules.session.validation.validating import not_ready


class Remedy(msgspec.Struct, frozen=True):
    """What ends a wait, and the command that does, with `{node}` for the node; either may be
    "".
    """

    words: str
    command: str = ""


REMEDIES: Final = msgspec.json.decode(
    data_file("remedies.json", "remediator"), type=dict[WhyNot, Remedy]
)
"""What ends each kind of waiting, by reason; the long form of each is the page of the same name
in `docs/runbooks/blocked/`.
"""
_IN_MESSAGE: Final = frozenset({"Blocked", "NeedsHuman", "Storm"})
"""Conditions whose message is a part of the session's own sentence."""
_NOT_OF_PODS: Final = frozenset({WhyNot.NODE_UNREADABLE, WhyNot.SESSION_UNREADABLE})
"""While these hold nothing is decided, and the drain's list is what it was before."""
_FIRST: Final = ("Blocked", "Paused", "Storm", "NodeUnreachable", "Replace", "NeedsHuman")
"""The order of conditions."""
_OUT_NEXT: Final = frozenset({"", Phase.PENDING, Phase.MARKED, Phase.DRAINING})
"""Phases whose next step waits for whatever blocks the session."""


def explain(session: QuarantineView, sight: CauseSight) -> Explanation:
    """What the session waits for and what comes next, by what `sight` shows of its node."""
    return Explanation(blockers=tuple(blockers(session)), next=next_step(session, sight))


def blockers(session: QuarantineView) -> Iterator[Blocker]:
    """What blocks the session, each once: budgets and pods, then its conditions by reason."""
    status, node = session.status, session.spec.node_name
    draining = status.phase == Phase.DRAINING
    of_drain = draining or status.mode == Mode.SHADOW
    blocks = status.drain.blocked if status.drain is not None and of_drain else ()
    for block in blocks:
        yield _of_block(block, blocked_by(status))
    seen: set[str] = set()
    for one in sorted((c for c in status.conditions if c.status == "True"), key=_order):
        by_pods = one.type in _IN_MESSAGE and one.reason not in _NOT_OF_PODS
        if (draining and blocks and by_pods) or one.reason in seen:
            continue
        if one.type == PROPOSED and WhyNot.APPROVAL in seen:
            continue
        yield _of_condition(one, node, also=one.type in seen)
        seen.add(one.reason)


def _of_block(block: BlockedBy, reason: str) -> Blocker:
    return Blocker(
        reason=reason,
        what=f"PDB {block.pdb}" if block.pdb else f"pod {these(block.pods)}",
        why=block.why,
        permanent=block.permanent,
        owner=block.owner,
        pods=block.pods,
        remedy=block.remedy,
    )


def _of_condition(one: Condition, node: str, *, also: bool) -> Blocker:
    """`also`: a blocker before it has the remedy of its type."""
    remedy = next((REMEDIES[why] for why in WhyNot if why == one.reason), None)
    if remedy is None and not also:
        remedy = next((REMEDIES[why] for why in WhyNot if why == one.type), None)
    return Blocker(
        reason=one.reason,
        why="" if one.type in _IN_MESSAGE else one.message,
        remedy=remedy.words if remedy is not None else "",
        command=remedy.command.format(node=node) if remedy is not None else "",
    )


def _order(condition: Condition) -> tuple[int, str]:
    known = condition.type in _FIRST
    return (_FIRST.index(condition.type) if known else len(_FIRST), condition.type)


def next_step(session: QuarantineView, sight: CauseSight) -> str:
    """What comes next, a clause; "" where the session's own sentence says it."""
    status = session.status
    if not is_open(session):
        return ""
    if (status.mode or sight.policy.mode) == Mode.SHADOW:
        words = shadow_of(sight.policy)
        nobody = f", {words.nobody}" if words is not None and words.nobody else ""
        ends = f"; {words.enforced} has the node judged again" if words is not None else ""
        return f"nothing, in Shadow{nobody}{ends}"
    if session.spec.release is not None:
        return "it is released at once, as requested; a pause does not stop that"
    waits = any(is_true(status, kind) for kind in ("Blocked", "Paused", "Storm"))
    when = "once nothing blocks it: " if waits and status.phase in _OUT_NEXT else ""
    return f"{when}{step}" if (step := _of_phase(session, sight)) else ""


def _of_phase(session: QuarantineView, sight: CauseSight) -> str:
    status = session.status
    causes = open_causes(session, sight)
    drains = level_in_effect(session, causes, sight.policy) == Level.DRAIN
    only_people = all(cause.source == "Human" for cause in causes or session.spec.causes)
    match status.phase:
        case Phase.PENDING | "" if drains:
            return "taint and cordon, then its pods are evicted within their budgets"
        case Phase.PENDING | "":
            return "taint and cordon; its pods stay"
        case Phase.MARKED if drains:
            return "its pods are evicted within their budgets"
        case Phase.DRAINING:
            return "Quarantined when its last pod has gone"
        case Phase.QUARANTINED | Phase.MARKED if only_people:
            return "only people ask for this, so a person releases it"
        case Phase.QUARANTINED | Phase.MARKED if not causes:
            return "its causes are closed: Validating, then it is released"
        case Phase.MARKED:
            return "its pods stay; once its causes are closed: Validating, then it is released"
        case Phase.QUARANTINED:
            return "once its causes are closed: Validating, then it is released"
        case Phase.REPAIRING if status.repair and status.repair[-1].state == RepairState.PROVEN:
            return "the repair is proven: Validating"
        case Phase.REPAIRING:
            return "Validating when the repair is proven, else the next step of the ladder"
        case Phase.VALIDATING if sight.node is not None and not_ready(sight.node):
            return "the node must be Ready before it is released"
    return ""
