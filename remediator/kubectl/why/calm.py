"""Why nothing is being done about a node without an open session. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from remediator.kubectl.node_look import NodeLook
from remediator.view.acts import resume_command
from remediator.view.times import span
from rules.api.names import LABEL_OPT_OUT
from rules.api.nodes import FreshNode
from rules.api.sentences import some
from rules.api.timestamps import parse_time, utc
from rules.catalog.reason import Severity
from rules.policy.policy import Policy
from rules.session.causes import actionable, ended_by_person
from rules.session.reuse import NotOpened, Opening, opening

OVERDUE_S: Final = 60.0
"""A session opens within seconds of a verdict, another leader within twenty."""


def calm_lines(look: NodeLook) -> Iterator[str]:
    """Nothing to say about a healthy node; one reason for one that is not."""
    said = look.health.status.incidents if look.health else ()
    active = [i for i in (*said, *look.external) if i.active]
    if look.node is None:
        return
    if not active:
        if look.stale or look.health is None:
            yield "nothing is done: not seeing is not failing"
        return
    policy = look.policy or Policy()
    acting = actionable(look.health, look.external, policy)
    if not acting:
        names = some(incident.reason for incident in active)
        are = "is" if len({incident.reason for incident in active}) == 1 else "are"
        stays = "as it is" if look.node.spec.unschedulable else "in service"
        yield f"nothing: {names} {are} only reported (level Report); the node stays {stays}"
        return
    yield _reason(look, look.node, policy)


def left_to_people(look: NodeLook) -> bool:
    """Whether something is wrong with the node in service that only a person would act on."""
    if look.session is not None or look.health is None or look.node is None or look.stale:
        return False
    wrong = any(i.active and i.severity != Severity.INFO for i in look.health.status.incidents)
    policy = look.policy or Policy()
    if not actionable(look.health, look.external, policy):
        return wrong
    return wrong and _opening(look, look.node).not_opened is NotOpened.ENDED_BY_PERSON


def is_awaited(look: NodeLook) -> bool:
    """Whether a remediator that led would do something about the node without a session."""
    if look.node is None:
        return False
    policy = look.policy or Policy()
    acting = actionable(look.health, look.external, policy)
    return bool(acting) and _opening(look, look.node).not_opened is None


def _opening(look: NodeLook, node: FreshNode) -> Opening:
    policy = look.policy or Policy()
    return opening(look.observed(node, policy), look.now, policy)


def _reason(look: NodeLook, node: FreshNode, policy: Policy) -> str:
    """The first thing that keeps a session from opening, or from touching the node."""
    found = _opening(look, node)
    until = utc(found.until) if found.until is not None else ""
    match found.not_opened:
        case NotOpened.OPTED_OUT:
            label = "kubectl label node"
            return f"nothing while it is opted out: {label} {look.name} {LABEL_OPT_OUT}-"
        case NotOpened.STALE:
            return "nothing on a verdict that cannot be believed: bring the agent back first"
        case NotOpened.NOT_SELECTED:
            selector = policy.node_selector
            return f"nothing: the policy's nodeSelector {selector!r} does not select it"
        case NotOpened.REPORTED if look.stale:
            return (
                "nothing: what others say is only reported (level Report), and the agent's "
                "verdict cannot be believed: bring the agent back first"
            )
        case NotOpened.ENDED_BY_PERSON:
            last = next(s for s in reversed(look.sessions) if ended_by_person(s))
            how = last.status.message.removeprefix(f"{last.status.phase}: ").rstrip(".")
            return (
                f"nothing before {until}: a person ended session {last.name} ({how}), and until "
                "then these incidents open no other as they are; a new one, another GPU or a "
                "graver verdict may"
            )
    if look.shadow_words is not None and look.shadow_words.nobody:
        words = look.shadow_words
        return f"nothing is touched in Shadow, {words.nobody}; {words.enforced} ends that"
    if look.shadow_words is not None:
        return "nothing is touched in Shadow; kubectl gpuward plan says what Enforce would do"
    if look.pauses:
        return f"nothing while it is paused: {resume_command(look.pauses)}"
    if found.not_opened is NotOpened.COMES_AND_GOES:
        return (
            f"nothing before {until}: its fault comes and goes, and its last "
            "sessions ended before anything was done; to take it out now: "
            f'kubectl gpuward quarantine {look.name} --reason "..."'
        )
    since = None if look.leader.cannot_act else _overdue_since(look, found)
    if since is None:
        return "a session opens within seconds"
    return (
        f"a session should have opened within seconds of {utc(since)} ({span(look.now - since)} "
        "ago): unless something has just let it, the remediator does not act; kubectl gpuward "
        f"preflight looks at its rights, kubectl cordon {look.name} keeps new work off"
    )


def _overdue_since(look: NodeLook, found: Opening) -> float | None:
    """Since when a session that is promised within seconds has not opened: a right may be lost,
    and a remediator that may not write cannot say so here; None where that is not long.
    """
    seen_at = [parse_time(incident.first_seen) for incident in found.incidents]
    ended_at = [parse_time(session.status.phase_since) for session in look.sessions]
    since = max((at for at in (*seen_at, *ended_at) if at is not None), default=look.now)
    return since if look.now - since > OVERDUE_S else None
