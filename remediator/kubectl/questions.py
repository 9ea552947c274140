"""What a command that steers a node will change, from how the node is now: sentences for a person
to agree to. Pure.

A question that tells of the usual case is answered by habit: a node that is out already is not
taken out, and what only gets one more reason is not drained.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from remediator.kubectl.node_look import NodeLook
from remediator.kubectl.why_causes import faults
from remediator.kubectl.why_node import what_comes_off
from remediator.view.people import HELD
from remediator.view.times import span
from rules.api.health import IncidentStatus
from rules.api.mark import marked
from rules.api.nodes import FreshNode, QuarantineView
from rules.api.quarantine import Mode, Phase, RepairState
from rules.catalog.reason import Level
from rules.policy.policy import Policy
from rules.policy.shadow import by_accident
from rules.session.causes import actionable, has_human, level_in_effect, open_causes
from rules.session.repair.ladder import under_way
from rules.session.repair.readiness import NOT_DRAINED
from rules.text.counted import count

STAYS: Final = "and the hold stays on the node for the next time"
_MOST_NAMED: Final = 6
_DOES: Final = {"CordonAndTaint": "cordons and taints", "Taint": "taints", "Cordon": "cordons"}
_NOTHING_EVICTED: Final = "nothing is evicted"
_EMPTY: Final = "no pods are on it"
_YOURS: Final = "only a person gives it back then"


def of_quarantine(look: NodeLook, node: FreshNode, level: str, pods: str, waits: str) -> str:
    """`level` is what is asked for, `pods` how many there are ("" for none), `waits` what stands
    in the way.
    """
    session = look.session
    waits_for_policy = by_accident(look.policy)
    if look.shadow and (session is not None or not waits_for_policy):
        where = f"its session {session.name}" if session is not None else "a session of its own"
        why = look.shadow_words.said if look.shadow_words is not None else "the policy is Shadow"
        return f"This touches nothing of {look.name}: {why}, and {where} says why."
    leave = f"{pods} on it, what may go is evicted within its budgets" if pods else _EMPTY
    if look.policy_is_shadow and not waits_for_policy:
        leave = _NOTHING_EVICTED
    if session is None:
        said = _anew(look, node, level, leave)
    elif session.status.phase in {"", Phase.PENDING}:
        said = _sooner(look, session, level, leave)
    else:
        said = _more(look, session, level, leave)
    return f"{said}{waits}."


def _anew(look: NodeLook, node: FreshNode, level: str, leave: str) -> str:
    """Of a node without an open session."""
    name = look.name
    then = leave if level == Level.DRAIN else _NOTHING_EVICTED
    mark = (look.policy or Policy()).mark
    if marked(node):
        return f"{name} carries the mark of a session that has ended: this keeps it out; {then}"
    if node.spec.unschedulable:
        adds = "adds no mark of its own" if mark == "Cordon" else "taints it, too"
        return (
            f"{name} is cordoned already, not by gpuward: this {adds}, and the cordon stays when "
            f"it is given back; {then}"
        )
    if level != Level.DRAIN:
        return f"This {_DOES[mark]} {name}: nothing new starts there, {then}"
    return f"This takes {name} out of service: {then}"


def _sooner(look: NodeLook, session: QuarantineView, level: str, leave: str) -> str:
    """Of a node that its session has not marked yet."""
    drains = level == Level.DRAIN or drains_now(look, session)
    changes = "" if has_human(session) else f", it waits for no budget of nodes then, and {_YOURS}"
    return (
        f"{look.name} already waits to be taken out of service: your reason is added to its "
        f"session {session.name}{changes}; {leave if drains else _NOTHING_EVICTED}"
    )


def _more(look: NodeLook, session: QuarantineView, level: str, leave: str) -> str:
    """Of a node that its session has marked."""
    phase = session.status.phase
    added = f"your reason is added to its session {session.name}"
    yours = "" if has_human(session) else f", and {_YOURS}"
    if level == Level.DRAIN and not drains_now(look, session):
        return (
            f"{look.name} takes no new work already, its pods are on it still: {leave}; "
            f"{added}{yours}"
        )
    if phase == Phase.VALIDATING:
        return (
            f"{look.name} is out of service and about to be given back: {added}, it stays{yours}"
        )
    return f"{look.name} is out of service already ({phase}): {added}{yours}"


def drains_now(look: NodeLook, session: QuarantineView) -> bool:
    """Whether the session's pods are evicted as things are."""
    sight = look.sight
    causes = open_causes(session, sight) or session.spec.causes
    return level_in_effect(session, causes, sight.policy) == Level.DRAIN


def of_release(look: NodeLook, session: QuarantineView) -> str:
    """What a release ends, what it takes back, and the faults that are still there."""
    return " ".join(
        part
        for part in (
            _asked_before(session),
            _comes_off(look),
            _in_the_middle(session),
            _still_wrong(look),
            f"It is held; a release goes over that, {STAYS}." if HELD in look.people else "",
        )
        if part
    )


def _comes_off(look: NodeLook) -> str:
    if look.node is None and not look.node_hidden:
        return f"There is no node {look.name} any more: this only ends its session."
    return what_comes_off(look.name, look.node)


def _asked_before(session: QuarantineView) -> str:
    asked = session.spec.release
    if asked is None:
        return ""
    return f"Its release was asked for by {asked.by or 'a person'} already ({asked.reason})."


def _in_the_middle(session: QuarantineView) -> str:
    """What is going on and would stop half done."""
    attempt = under_way(session.status)
    if attempt is not None:
        whom = attempt.adapter or "somebody"
        if attempt.state != RepairState.ASKED:
            return f"{attempt.step} is to be asked of {whom}: it is not asked then."
        return (
            f"{attempt.step} was asked of {whom}: the request is taken back, but a step that has "
            "begun goes on, under whatever is scheduled there by then."
        )
    if session.status.phase == Phase.DRAINING and session.status.mode != Mode.SHADOW:
        evicted = session.status.drain.evicted if session.status.drain is not None else 0
        return f"Its drain stops: {count(evicted, 'pod')} evicted, the others stay."
    return ""


def _still_wrong(look: NodeLook) -> str:
    if look.health is None:
        return "Nobody knows whether it is well: there is no verdict for it."
    active = faults(look)
    if not active:
        return "No fault is active."
    policy = look.policy or Policy()
    acting = {one.id for one in actionable(look.health, (), policy)}
    asking = [one for one in active if one.id in acting]
    reported = [one for one in active if one.id not in acting]
    said = [f"Still active: {_named(asking)}; {_covered(look)}."] if asking else []
    if reported:
        said.append(f"Still active and only reported (level Report): {_named(reported)}.")
    return " ".join(said)


def _named(faults: Sequence[IncidentStatus]) -> str:
    names = [f"{one.reason} ({one.severity})" for one in faults]
    return ", ".join(names[:_MOST_NAMED]) + (", ..." if len(names) > _MOST_NAMED else "")


def _covered(look: NodeLook) -> str:
    """For how long what is left open opens no other session."""
    expiry = look.policy.release.cancel_expiry_s if look.policy is not None else None
    unknown = "as long as release.cancelExpiry says"
    lasts = f"{span(expiry)} (release.cancelExpiry)" if expiry else unknown
    return f"as they are, nothing opens for them again for {lasts}"


def repair_begins(session: QuarantineView, step: str) -> str:
    """When a step that is let go begins, a clause."""
    phase = session.status.phase
    empty = "once nothing uses a GPU there"
    attempt = under_way(session.status)
    if attempt is not None and attempt.step != step:
        return f"if {attempt.step}, which is under way, fails, {empty}"
    if phase == Phase.VALIDATING:
        return f"if a cause of its session comes back (all are closed), {empty}"
    if phase in NOT_DRAINED or not phase:
        return "once it is drained and nothing uses a GPU there"
    return empty
