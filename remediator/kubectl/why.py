"""`kubectl gpuward why`: explain the state of one node, or of the node of a pod.

The first 15 lines hold the headline, blocker with remedy, next step and the operator's actions.
Health, cause, history, repair ladder and taints follow.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec

from remediator.kubectl import command, node_state, why_causes, why_node
from remediator.kubectl.cluster import Cluster, unreadable
from remediator.kubectl.command import Answer, CommandError, Terminal
from remediator.kubectl.node_state import NodeLook
from remediator.view import operators, session_view
from remediator.view.shapes import Blocker
from rules.api import (
    gpu_record,
    health,
    messages,
    names,
    object_name,
    quarantine_taint,
    timestamps,
)
from rules.api.nodes import QuarantineView
from rules.api.pods import PodView
from rules.api.quarantine import Phase, TimelineEntry
from rules.catalog import why_not
from rules.catalog.why_not import WhyNot
from rules.policy.policy import Policy
from rules.session import exclusions, observation
from rules.session.causes import open_causes
from rules.session.repair import ladder
from rules.session.status import APPROVED, blocked_by, is_true
from rules.text.printable import count, printable

SHOWN_STEPS: Final = 8
SHOWN_BLOCKERS: Final = 8
FIRST_LINES: Final = 15
"""Lines for the headline, status, blockers, next step and actions."""
_APPROVAL_OVER: Final = "; the faults for which it was approved are over"


async def why(cluster: Cluster, options: argparse.Namespace, _: Terminal) -> Answer:
    """Everything about one node, or about a pod (NAMESPACE/NAME) and its node."""
    values = options.output not in {None, "wide"}
    namespace, slash, name = str(options.node).rpartition("/")
    above = ""
    if slash:
        above, name = await _pod(cluster, namespace, name)
    look = await node_state.look_at(cluster, name, namespace=options.namespace)
    if look.node is None and not look.node_hidden and not look.sessions:
        raise CommandError(f"node {name} not found{await node_state.nearest(cluster, name)}")
    if values:
        return [_item(look)]
    gone = look.node is None and not look.node_hidden
    lines = _gone(look) if gone else why_lines(look, wide=options.output == "wide")
    return "\n".join([*([above, ""] if above else []), *lines])


async def _pod(cluster: Cluster, namespace: str, name: str) -> tuple[str, str]:
    """A line about the pod, and the node to tell of: where it is, or else the newest node whose
    drain moved it.
    """
    pod, called = f"{namespace}/{name}", printable(f"pod {namespace}/{name}")
    unknown = ""
    try:
        found = await cluster.get(
            object_name.api_path("/api/v1/namespaces", namespace, "pods", name)
        )
    except CommandError as error:
        if not error.forbidden:
            raise
        found, unknown = None, f"; you may not get pods in {namespace}"
    if found is not None:
        try:
            node = msgspec.convert(found, PodView).spec.node_name
        except msgspec.ValidationError as error:
            raise CommandError(unreadable(error)) from error
        if node:
            return f"{called} is on node {node}", node
    naming = [one for one in await cluster.sessions() if pod in _pods_named(one)]
    if not naming:
        raise CommandError(
            f"{called} is on no node, and no session names it{unknown}; see kubectl "
            f"-n {namespace} get events --field-selector involvedObject.name={name}"
        )
    last = max(naming, key=lambda one: one.metadata.creation_timestamp or "")
    reason = f"{last.spec.node_name} ({node_state.leading_reason(last)}, session {last.name})"
    return printable(f"{called} was moved by the drain of {reason}{unknown}"), last.spec.node_name


def _pods_named(session: QuarantineView) -> frozenset[str]:
    """The pods that the session's drain names, as `NAMESPACE/NAME`: of many, the last."""
    drain = session.status.drain
    if drain is None:
        return frozenset()
    lists = (drain.waiting, drain.left_by_policy, drain.left_by_failure)
    blocked = (block.pods for block in drain.blocked)
    return frozenset(drain.recent).union(*(pods.names for pods in (*lists, *blocked)))


def _gone(look: NodeLook) -> list[str]:
    """A node that is no more: what its last session kept."""
    last = look.sessions[-1]
    ended = look.times.ago(last.status.phase_since or last.metadata.creation_timestamp or "")
    lines = [f"{look.name}: the node no longer exists"]
    lines += command.labelled(
        "status", [f"session {last.name} ended {ended}: {node_state.phase_text(last)}"]
    )
    lines += command.labelled("", [last.status.message] if last.status.message else [])
    causes = [
        text
        for cause in last.spec.causes
        for text in (f"{cause.reason} ({cause.severity})", f"  {command.quoted(cause.message)}")
    ]
    return (
        lines
        + command.labelled("cause", causes)
        + command.labelled("history", [sessions_of(look.name)])
    )


def _item(look: NodeLook) -> dict[str, Any]:
    node, session = look.node, look.session or (look.sessions[-1] if look.sessions else None)
    note = quarantine_taint.read_note(node) if node is not None else None
    return {
        "apiVersion": names.API_VERSION,
        "kind": "GPUNodeExplanation",
        "metadata": {"name": look.name},
        "exists": None if look.node_hidden else node is not None,
        "unschedulable": node.spec.unschedulable if node is not None else None,
        "mark": health.plain(note) if note is not None else None,
        "hold": node.annotations.get(names.ANNOTATION_HOLD) if node is not None else None,
        "optedOut": exclusions.opted_out(node) if node is not None else None,
        "people": list(look.people),
        "stale": look.stale or None,
        "health": health.plain(look.health.status) if look.health is not None else None,
        "session": _session(session) if session is not None else None,
        "ended": [one.name for one in look.sessions if not observation.is_open(one)],
        "pauses": [{"name": p.metadata.name, **health.plain(p.spec)} for p in look.pauses],
        "lines": why_lines(look, wide=True),
        "unseen": list(look.unknown),
    }


def _session(session: QuarantineView) -> dict[str, Any]:
    return {
        "name": session.name,
        "open": observation.is_open(session),
        "spec": health.plain(session.spec),
        "status": health.plain(session.status),
    }


def why_lines(look: NodeLook, *, wide: bool = False) -> list[str]:
    """Return the explanation of one node. The first 15 lines hold the headline, status, blocker
    with remedy, next step and the commands that an operator can run. `wide` adds every incident,
    step and line of evidence, and prints absolute times instead of ages.
    """
    look = replace(look, absolute=wide)
    session = look.session
    explained = session or _removing_taint(look)

    headline = [printable(_headline(look, session))]
    status = command.labelled("status", _status(explained, look))
    then = command.labelled("next", _next(look, session))
    then += command.labelled("actions", _advice(look, session))
    room = FIRST_LINES - len(headline + status + then)
    return [
        *headline,
        *status,
        *_fitting(explained, None if wide else room),
        *then,
        *command.labelled("health", why_node.health_lines(look)),
        *command.labelled("cause", why_causes.cause_lines(look, session, wide=wide)),
        *command.labelled("pods", why_causes.pod_lines(session)),
        *command.labelled("history", _steps(look, session, wide=wide)),
        *command.labelled("repair", _ladder(look, session)),
        *command.labelled("test", why_causes.test_lines(session, look.times)),
        *command.labelled("taints", why_node.taint_lines(look, session)),
        *command.labelled("devices", why_node.device_lines(session)),
        *command.labelled("domain", why_node.domain_lines(look)),
        *command.labelled("policy", why_node.policy_lines(look)),
        *command.labelled("notes", why_node.kept_lines(look)),
        *command.labelled("earlier", _history(look)),
        *command.labelled("unknown", look.unknown),
    ]


def _next(look: NodeLook, session: QuarantineView | None) -> Iterator[str]:
    """The next step, and that it waits while no remediator acts."""
    coming = (
        [session_view.next_step(session, look.sight)] if session else [*why_node.quiet_lines(look)]
    )
    awaited = look.opening is not None and look.opening.not_opened is None
    lasts, cannot = look.leader.lasts, look.leader.cannot_act
    if (lasts or cannot) and (session is not None or awaited):
        if lasts:
            yield f"nothing: gpuward-remediator has had no leader {lasts}; after it has one:"
        else:
            yield f"nothing: the leading remediator {cannot}"
            yield "check its rights with kubectl gpuward preflight; after it can act:"
    yield from filter(None, coming)


def _fitting(session: QuarantineView | None, room: int | None) -> list[str]:
    """Return the lines of as many blockers as fit into `room` lines, at least one and at most
    eight.
    """
    found = [*session_view.blockers(session)] if session is not None else []
    shown: list[str] = []
    for number in range(1, min(len(found), SHOWN_BLOCKERS) + 1):
        more = command.labelled("blocker", _blocked(session, found, number))
        if shown and room is not None and len(more) > room:
            break
        shown = more
    return shown


def _blocked(
    session: QuarantineView | None, found: Sequence[Blocker], number: int
) -> Iterator[str]:
    """The first blockers: what, owner, reason, whether waiting helps, remedy, runbook."""
    for one in found[:number]:
        yield from _blocker(one)
    if session is not None and len(found) > number:
        more = f"kubectl get gpuquarantine {session.name} -o yaml"
        yield f"and {len(found) - number} more: {more}"
    reasons = (one.reason for one in found[:number] if one.reason in set(WhyNot))
    yield from (f"runbook: {why_not.runbook(reason)}" for reason in dict.fromkeys(reasons))


def _blocker(one: Blocker) -> Iterator[str]:
    if one.what:
        owner = f", owner {one.owner}" if one.owner else ""
        lasting = "waiting does not help" if one.permanent else "may clear by itself"
        yield f"{one.what}{owner}: {one.why} ({lasting})"
        if one.pods.total:
            yield f"  {count(one.pods.total, 'pod')}: {messages.pod_list(one.pods)}"
    else:
        yield f"{one.reason}: {one.why}" if one.why else one.reason
    if one.remedy or one.command:
        also = ":" if one.remedy and one.command else ""
        yield f"  remedy: {one.remedy or one.command}{also}"
    if one.remedy and one.command:
        yield f"  {one.command}"  # on its own line, so that it can be copied


_MUSTS: Final = {
    operators.MUST_APPROVE: "waits for approval",
    operators.MUST_ACT: "needs operator action",
    operators.MUST_RELEASE: "waits for an operator to release it",
}


def _headline(look: NodeLook, session: QuarantineView | None) -> str:
    """Node, phase, since when, and what it waits for."""
    decided = "".join(f", {_MUSTS.get(one, one)}" for one in look.people)
    if session is None:
        if look.node is None:
            return f"{look.name}: no open session"
        state = "in service" if not look.node.spec.unschedulable else "cordoned, not by gpuward"
        if quarantine_taint.quarantined(look.node):
            state = "tainted and cordoned by gpuward without an open session; being removed"
        return f"{look.name}: {look.health_now.value}, {state}{decided}"
    status = session.status
    since = look.times.since(status.phase_since or session.metadata.creation_timestamp or "")
    texts = look.shadow_texts
    unintended = f": {texts.unintended}" if texts is not None and texts.unintended else ""
    shadow = f", Shadow, node unchanged{unintended}" if look.shadow else ""
    waits = blocked_by(status)
    decided_by: dict[str, str] = {WhyNot.HOLD: operators.HELD, WhyNot.PAUSED: operators.PAUSED}
    blocker = (
        f", blocked by {waits}" if waits and decided_by.get(waits, "") not in look.people else ""
    )
    return f"{look.name}: {status.phase or Phase.PENDING} {since}{shadow}{blocker}{decided}"


def _removing_taint(look: NodeLook) -> QuarantineView | None:
    """The ended session that explains why its taint and cordon are still on the node."""
    note = quarantine_taint.read_note(look.node) if look.node is not None else None
    name = note.session if note is not None else ""
    return next(
        (s for s in look.sessions if s.name == name and is_true(s.status, "Blocked")), None
    )


def _status(session: QuarantineView | None, look: NodeLook) -> Iterator[str]:
    """The message of the session, until when it holds at the latest, and how old it is while no
    remediator acts.
    """
    if session is None:
        return
    status, leader = session.status, look.leader
    if not status.phase:
        asks = "" if leader.cannot_act else "; check that gpuward-remediator runs"
        yield f"the remediator has not reconciled this session yet{asks}"
        return
    yield status.message or "the session has no message"
    if (timestamps.parse_time(status.until) or 0.0) > look.now:
        yield f"waits {look.times.until(status.until)} at most, then continues by itself"
    if leader.lasts and leader.led_at is not None:
        yield f"as of {look.times.ago(leader.led_at)}, when a remediator last had the Lease"
    elif leader.cannot_act and leader.status.unable_since is not None:
        since = look.times.ago(leader.status.unable_since)
        yield f"as of {since}, when the remediator could last act"


def _steps(look: NodeLook, session: QuarantineView | None, *, wide: bool) -> Iterator[str]:
    """The session, the last steps of its timeline, and the requests of operators."""
    if session is None:
        return
    opened = look.times.ago(session.metadata.creation_timestamp or "")
    yield f"session {session.name}, opened {opened}"
    timeline = session.status.timeline
    shown = timeline if wide else timeline[-SHOWN_STEPS:]
    if len(timeline) > len(shown):
        yield f"{count(len(timeline) - len(shown), 'earlier step')}: -o wide"
    phases = set(Phase)
    for step in shown:
        text = step.message if wide or step.step not in phases else ""
        about = f" {step.subject}" if step.step == APPROVED else ""
        message = f": {text}" if text else ""
        yield f"{look.times.ago(step.at)} {step.step}{about} by {step.by or '?'}{message}"
    if (request := session.spec.repair) is not None and not _begun(timeline, request.step):
        over = ladder.request_in_force(session, open_causes(session, look.sight)) is None
        late = _APPROVAL_OVER if over and observation.is_open(session) else ""
        when = f"{look.times.ago(request.at)} " if request.at else ""
        yield f"{when}{request.step} {messages.approved_by(request)}{late}"
    if session.spec.release is not None:
        asked = session.spec.release
        when = f"{look.times.ago(asked.at)} " if asked.at else ""
        yield f"{when}release requested by {asked.by or '?'}: {asked.reason}"


def _begun(timeline: Sequence[TimelineEntry], step: str) -> bool:
    """Whether the timeline has the approval of the step."""
    return any(entry.step == APPROVED and entry.subject == step for entry in timeline)


def _ladder(look: NodeLook, session: QuarantineView | None) -> Iterator[str]:
    """The repair step by step: tried, next, later."""
    if session is None:
        return
    policy = look.policy or Policy()
    others = (other for other in look.sessions if other.name != session.name)
    causes = open_causes(session, look.sight) or session.spec.causes
    for rung in ladder.rungs(session, others, causes, look.health, policy, look.now):
        at = rung.ended_at or rung.started_at
        yield f"{rung.clause}{f', {look.times.ago(at)}' if at else ''}"


def _history(look: NodeLook) -> Iterator[str]:
    for record in look.repeat_offenders:
        yield gpu_record.fault_summary(record, look.now)
    past = [session for session in look.sessions if not observation.is_open(session)]
    if past:
        last = past[-1]
        when = look.times.ago(last.status.phase_since or last.metadata.creation_timestamp or "")
        ended = f"{count(len(past), 'ended session')}, the last {last.status.phase} {when}"
        yield f"{ended}{_by_whom(last)}: {sessions_of(look.name)}"


def sessions_of(node: str) -> str:
    """The command that lists every session of a node that is still kept."""
    return f"kubectl get gpuquarantines --field-selector spec.nodeName={node}"


def _by_whom(session: QuarantineView) -> str:
    """Who asked for the release, and why; "" where nobody did."""
    asked = session.spec.release
    return f" by {asked.by or 'an operator'} ({asked.reason})" if asked is not None else ""


def _advice(look: NodeLook, session: QuarantineView | None) -> Iterator[str]:
    can = [
        *operators.node_acts(
            look.name, session, look.sight, people=look.people, pauses=look.pauses
        )
    ]
    if why_node.left_to_people(look):
        can = [*operators.taking_out(look.name, look.people, shadow=look.shadow), *can]
    width = max((len(act.command) for act in can), default=0)
    yield from (f"{act.command.ljust(width)}   {act.does}" for act in can)
