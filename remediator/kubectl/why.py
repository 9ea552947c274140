"""`kubectl gpuward why`: one node, or the node of a pod, as lines for an operator or as a value.

Cause with its evidence, since when, what was done by whom, what is next, what blocks it, who owns
taint and cordon, and what the reader can do. `-o wide` shows the rest.
"""

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from remediator.kubectl import command, node_state, why_causes, why_node
from remediator.kubectl.cluster import Cluster, unreadable
from remediator.kubectl.command import Answer, CommandError, Terminal
from remediator.kubectl.node_state import NodeLook
from remediator.view import session_view
from remediator.view.operators import MUSTS, node_acts, taking_out
from remediator.view.shapes import Blocker
from rules.api import (
    gpu_record,
    health,
    messages,
    names,
    object_name,
    quarantine,
    quarantine_taint,
    timestamps,
)
from rules.api.nodes import QuarantineView
from rules.api.pods import PodView
from rules.api.quarantine import Phase, TimelineEntry
from rules.catalog import why_not
from rules.catalog.why_not import WhyNot
from rules.drain.fate import LeftBy
from rules.policy.policy import Policy
from rules.session import exclusions, observation
from rules.session.causes import EVIDENCE_GANGS, open_causes
from rules.session.repair import ladder
from rules.session.status import APPROVED, is_true
from rules.text.printable import count, printable

SHOWN_STEPS = 8
SHOWN_BLOCKERS = 8
_WORD_OVER = "; the faults it was said for are over"


async def why(cluster: Cluster, options: argparse.Namespace, _: Terminal) -> Answer:
    """Everything about one node, or about a pod (NAMESPACE/NAME) and its node."""
    values = options.output in {"json", "yaml"}
    namespace, slash, name = str(options.node).rpartition("/")
    above = ""
    if slash:
        above, name = await _pod(cluster, namespace, name)
    look = await node_state.look_at(cluster, name, namespace=options.namespace)
    if look.node is None and not look.node_hidden and not look.sessions:
        raise CommandError(f"there is no node {name}{await node_state.nearest(cluster, name)}")
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
    unseen = ""
    try:
        found = await cluster.get(
            object_name.api_path("/api/v1/namespaces", namespace, "pods", name)
        )
    except CommandError as error:
        if not error.forbidden:
            raise
        found, unseen = None, f"; you may not get pods in {namespace}"
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
            f"{called} is on no node, and no session names it{unseen}; see kubectl -n {namespace} "
            f"get events --field-selector involvedObject.name={name}"
        )
    last = max(naming, key=lambda one: one.metadata.creation_timestamp or "")
    reason = f"{last.spec.node_name} ({node_state.leading_reason(last)}, session {last.name})"
    return printable(f"{called} was moved by the drain of {reason}{unseen}"), last.spec.node_name


def _pods_named(session: QuarantineView) -> frozenset[str]:
    """The pods that the session's drain names, as `NAMESPACE/NAME`: of many, the last."""
    drain = session.status.drain
    if drain is None:
        return frozenset()
    told = (drain.waiting, drain.left_by_policy, drain.left_by_failure)
    blocked = (block.pods for block in drain.blocked)
    return frozenset(drain.recent).union(*(pods.names for pods in (*told, *blocked)))


def _gone(look: NodeLook) -> list[str]:
    """A node that is no more: what its last session kept."""
    last = look.sessions[-1]
    since = timestamps.age(last.status.phase_since or last.metadata.creation_timestamp, look.now)
    lines = [f"{look.name}: there is no such node any more"]
    lines += command.labelled(
        "last", [f"session {last.name} is {node_state.phase_words(last)} for {since}"]
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
        + command.labelled("before", [sessions_of(look.name)])
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
        "unseen": list(look.unseen),
    }


def _session(session: QuarantineView) -> dict[str, Any]:
    return {
        "name": session.name,
        "open": observation.is_open(session),
        "spec": health.plain(session.spec),
        "status": health.plain(session.status),
    }


def why_lines(look: NodeLook, *, wide: bool = False) -> list[str]:
    """The answer to "why is my node gone", line by line."""
    session = look.session
    told = session or _removing_taint(look)
    lines = [printable(_headline(look, session))]
    sections: tuple[tuple[str, Iterator[str]], ...] = (
        ("now", _now(told, look)),
        ("pods", _pods(session)),
        ("health", why_node.health_lines(look)),
        ("cause", why_causes.cause_lines(look, session, wide=wide)),
        ("done", _done(look, session, wide=wide)),
        ("ladder", _ladder(look, session)),
        ("tested", _tested(session)),
        ("blocked", _blocked(told)),
        ("next", _next(look, session)),
        ("marks", why_node.taint_lines(look, session)),
        ("people", why_node.kept_lines(look)),
        ("before", _history(look)),
        ("unseen", iter(look.unseen)),
        ("you can", _advice(look, session)),
    )
    for label, text in sections:
        lines += command.labelled(label, text)
    return lines


def _next(look: NodeLook, session: QuarantineView | None) -> Iterator[str]:
    """What comes next, and that nothing does while no remediator acts."""
    coming = (
        [session_view.next_step(session, look.sight)] if session else [*why_node.quiet_lines(look)]
    )
    awaited = look.opening is not None and look.opening.not_opened is None
    lasts, cannot = look.leader.lasts, look.leader.cannot_act
    if (lasts or cannot) and (session is not None or awaited):
        if lasts:
            yield f"nothing while no remediator leads, and none has {lasts}; once one does:"
        else:
            yield f"nothing while the remediator that leads {cannot}"
            yield "its rights: kubectl gpuward preflight; once it can act:"
    yield from filter(None, coming)


def _blocked(session: QuarantineView | None) -> Iterator[str]:
    """Each blocker once: what, whose, why, whether waiting helps, what ends it."""
    found = [*session_view.blockers(session)] if session is not None else []
    for one in found[:SHOWN_BLOCKERS]:
        yield from _blocker(one)
    if session is not None and len(found) > SHOWN_BLOCKERS:
        more = f"kubectl get gpuquarantine {session.name} -o yaml"
        yield f"and {len(found) - SHOWN_BLOCKERS} more: {more}"
    reasons = (one.reason for one in found if one.reason in set(WhyNot))
    yield from (f"runbook: {why_not.runbook(reason)}" for reason in dict.fromkeys(reasons))


def _blocker(one: Blocker) -> Iterator[str]:
    if one.what:
        owner = f", owner {one.owner}" if one.owner else ""
        lasting = "waiting cannot help" if one.permanent else "may clear by itself"
        yield f"{one.what}{owner}: {one.why} ({lasting})"
        if one.pods.total:
            yield f"  {count(one.pods.total, 'pod')}: {messages.pod_list(one.pods)}"
    else:
        yield f"{one.reason}: {one.why}" if one.why else one.reason
    if one.remedy or one.command:
        yield f"  ends with: {one.remedy or one.command}"
    if one.remedy and one.command:
        yield f"  {one.command}"  # on a line of its own, to be copied


def _pods(session: QuarantineView | None) -> Iterator[str]:
    """The pods that were moved off the node, and their gangs: whose work it was; and those that
    the policy leaves on it. Daemons are counted in the session's sentence and no news.
    """
    drain = session.status.drain if session is not None else None
    if session is None or drain is None:
        return
    if left := [note for note in drain.left_by_policy.named if note.why != LeftBy.NATURE_DAEMON]:
        yield f"left on it by policy: {messages.pod_list(quarantine.pods_of(left))}"
    if drain.evicted and drain.recent:
        more = ", the last" if drain.evicted > len(drain.recent) else ""
        yield f"evicted{more}: {messages.name_list(drain.recent)}"
    gangs = session.status.evidence.get(EVIDENCE_GANGS)
    if drain.evicted and isinstance(gangs, list) and gangs:
        yield f"gang: {messages.name_list([str(gang) for gang in gangs])}"


def _tested(session: QuarantineView | None) -> Iterator[str]:
    """The last test under load, and the checks that did not pass."""
    for test in session.status.validation[-1:] if session is not None else ():
        said = f": {test.message}" if test.message else ""
        at = timestamps.utc_of(test.ended_at or test.started_at)
        yield f"{at} {test.state} by {test.provider}, Job {test.object}{said}"
        for check in test.checks:
            if check.verdict != "pass":
                gpu = f" on {check.gpu}" if check.gpu else ""
                note = f"; {check.note}" if check.note else ""
                yield f"  {check.verdict}: {check.id}{gpu}{note}"


def _headline(look: NodeLook, session: QuarantineView | None) -> str:
    people = "".join(
        f", an operator {word}" if word in MUSTS else f", {word}" for word in look.people
    )
    if session is None:
        if look.node is None:
            return f"{look.name}: no open session"
        said = "in service" if not look.node.spec.unschedulable else "cordoned, but not by gpuward"
        if quarantine_taint.quarantined(look.node):
            said = "carries a taint and cordon of gpuward without an open session; it comes off"
        return f"{look.name}: {said}{people}"
    phase = session.status.phase or Phase.PENDING
    since = timestamps.age(
        session.status.phase_since or session.metadata.creation_timestamp, look.now
    )
    words = look.shadow_words
    nobody = f", {words.nobody}" if words is not None and words.nobody else ""
    shadow = f", Shadow: nothing is touched{nobody}" if look.shadow else ""
    return f"{look.name}: {phase} for {since}{shadow}{people} (session {session.name})"


def _removing_taint(look: NodeLook) -> QuarantineView | None:
    """The ended session that says why its taint and cordon is on the node still."""
    note = quarantine_taint.read_note(look.node) if look.node is not None else None
    name = note.session if note is not None else ""
    return next(
        (s for s in look.sessions if s.name == name and is_true(s.status, "Blocked")), None
    )


def _now(session: QuarantineView | None, look: NodeLook) -> Iterator[str]:
    """The session's own sentence, and how old it is while no remediator acts."""
    if session is None:
        return
    status, leader = session.status, look.leader
    if not status.phase:
        asks = "" if leader.cannot_act else "; does it run?"
        yield f"the remediator has not checked it yet{asks}"
        return
    yield status.message or "the remediator reported nothing"
    if leader.lasts and leader.led_at is not None:
        yield f"so it stood at {timestamps.utc(leader.led_at)}, when a remediator last looked"
    elif leader.cannot_act and leader.word.unable_since is not None:
        since = timestamps.utc(leader.word.unable_since)
        yield f"so it stood at {since}, when the remediator could last act"


def _done(look: NodeLook, session: QuarantineView | None, *, wide: bool) -> Iterator[str]:
    if session is None:
        return
    timeline = session.status.timeline
    shown = timeline if wide else timeline[-SHOWN_STEPS:]
    if len(timeline) > len(shown):
        yield (
            f"{count(len(timeline) - len(shown), 'earlier step')}: kubectl get gpuquarantine "
            f"{session.name} -o yaml"
        )
    phases = set(Phase)
    for step in shown:
        text = step.message if wide or step.step not in phases else ""
        about = f" {step.subject}" if step.step == APPROVED else ""
        said = f": {text}" if text else ""
        when = timestamps.utc_of(step.at, seconds=True)
        yield f"{when} {step.step}{about} by {step.by or '?'}{said}"
    if (word := session.spec.repair) is not None and not _begun(timeline, word.step):
        over = ladder.request_in_force(session, open_causes(session, look.sight)) is None
        late = _WORD_OVER if over and observation.is_open(session) else ""
        yield f"{word.step}: {messages.approved_by(word)}{late}"
    if session.spec.release is not None:
        asked = session.spec.release
        at = timestamps.parse_time(asked.at)
        when = f" at {timestamps.utc(at)}" if at is not None else ""
        yield f"release asked for by {asked.by or '?'}{when}: {asked.reason}"


def _begun(timeline: Sequence[TimelineEntry], step: str) -> bool:
    """Whether the timeline tells already who let the step go."""
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
        yield f"{rung.clause}{f', {timestamps.age(at, look.now)} ago' if at else ''}"


def _history(look: NodeLook) -> Iterator[str]:
    for record in look.repeat_offenders:
        yield gpu_record.faults_said(record, look.now)
    past = [session for session in look.sessions if not observation.is_open(session)]
    if past:
        last = past[-1]
        when = timestamps.age(
            last.status.phase_since or last.metadata.creation_timestamp, look.now
        )
        ended = f"{count(len(past), 'ended session')}, the last {last.status.phase} {when} ago"
        yield f"{ended}{_by_whom(last)}: {sessions_of(look.name)}"


def sessions_of(node: str) -> str:
    """The command that lists every session of a node that is still kept."""
    return f"kubectl get gpuquarantines --field-selector spec.nodeName={node}"


def _by_whom(session: QuarantineView) -> str:
    """Who asked for the release, and why; "" where nobody did."""
    asked = session.spec.release
    return f" by {asked.by or 'an operator'} ({asked.reason})" if asked is not None else ""


def _advice(look: NodeLook, session: QuarantineView | None) -> Iterator[str]:
    can = [*node_acts(look.name, session, look.sight, people=look.people, pauses=look.pauses)]
    if why_node.left_to_people(look):
        can = [*taking_out(look.name, look.people, shadow=look.shadow), *can]
    width = max((len(act.command) for act in can), default=0)
    yield from (f"{act.command.ljust(width)}   {act.does}" for act in can)
