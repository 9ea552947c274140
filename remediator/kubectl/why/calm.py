"""Why nothing is being done about a node without an open session. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from remediator.kubectl.node_look import NodeLook
from remediator.view.acts import resume_command
from rules.api.health import IncidentStatus
from rules.api.names import COMPONENT_REMEDIATOR
from rules.api.nodes import NodeView
from rules.api.quarantine import Mode
from rules.api.selectors import parse_selector
from rules.api.sentences import some
from rules.api.timestamps import format_time, parse_time
from rules.catalog.reason import Severity
from rules.policy.policy import Policy
from rules.session.causes import actionable, ended_by_person
from rules.session.history import suppressed_incidents
from rules.session.observation import opted_out
from rules.session.reuse import reusable, too_many_until


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
    yield _reason(look, policy, acting)


def left_to_people(look: NodeLook) -> bool:
    """Whether something is wrong with the node in service that only a person would act on."""
    if look.session is not None or look.health is None or look.node is None or look.stale:
        return False
    wrong = any(i.active and i.severity != Severity.INFO for i in look.health.status.incidents)
    policy = look.policy or Policy()
    acting = actionable(look.health, look.external, policy)
    return wrong and (not acting or _all_ended_by_person(look, policy, acting))


def _all_ended_by_person(
    look: NodeLook, policy: Policy, acting: tuple[IncidentStatus, ...]
) -> bool:
    suppressed = suppressed_incidents(look.sessions, policy, look.now)
    return all(incident.id in suppressed for incident in acting)


def _reason(look: NodeLook, policy: Policy, acting: tuple[IncidentStatus, ...]) -> str:
    """The first thing that keeps a session from opening."""
    if look.node is not None and opted_out(look.node):
        return f"nothing while it is opted out: kubectl label node {look.name} gpuward.io/opt-out-"
    if look.stale and not look.external:
        return "nothing on a verdict that cannot be believed: bring the agent back first"
    if look.node is not None and not parse_selector(policy.node_selector)(look.node.labels):
        return f"nothing: the policy's nodeSelector {policy.node_selector!r} does not select it"
    if _all_ended_by_person(look, policy, acting):
        return _ended_by_person(look, policy)
    if look.policy is not None and look.policy.mode == Mode.SHADOW:
        return "nothing is touched in Shadow; kubectl gpuward plan says what Enforce would do"
    if look.pauses:
        return f"nothing while it is paused: {resume_command(look.pauses)}"
    if look.node is not None and (until := _waits_until(look, look.node, policy)) is not None:
        return (
            f"nothing before {format_time(until)}: its fault comes and goes, and its last "
            "sessions ended before anything was done; to take it out now: "
            f'kubectl gpuward quarantine {look.name} --reason "..."'
        )
    return (
        "a session opens within seconds; if none does, the remediator does not run: "
        f"kubectl get deploy -A | grep {COMPONENT_REMEDIATOR}"
    )


def _waits_until(look: NodeLook, node: NodeView, policy: Policy) -> float | None:
    if reusable(look.sessions, node, policy, look.now) is not None:
        return None
    return too_many_until(look.sessions, look.now)


def _ended_by_person(look: NodeLook, policy: Policy) -> str:
    last = next(s for s in reversed(look.sessions) if ended_by_person(s))
    at = parse_time(last.status.phase_since) or look.now
    until = format_time(at + policy.release.cancel_expiry_s)
    return (
        f"nothing before {until}: a person ended session {last.name}, and until then these "
        "incidents open no other; a new incident may"
    )
