"""Why a node is as it is: one pure function from the objects to short lines for a person.

Cause with verbatim evidence, since when, what was done, what is next, what blocks it, who owns each
mark, and what the reader can do.
"""

from collections.abc import Iterator, Sequence

from remediator.kubectl.text import age, printable
from rules.health_object import Incident
from rules.mark import read_note
from rules.names import ANNOTATION_HOLD, LABEL_OPT_OUT, TAINT_QUARANTINE
from rules.quarantine_object import Phase
from rules.snapshot import FreshNode, HealthView, PauseView, QuarantineView

SHOWN_INCIDENTS = 5
SHOWN_EVIDENCE = 2
SHOWN_STEPS = 6
CORDON_TAINT = "node.kubernetes.io/unschedulable"
"""Kubernetes puts it beside every cordon; the cordon has its own line."""


def open_session(sessions: Sequence[QuarantineView]) -> QuarantineView | None:
    """The session that has not ended, if there is one."""
    return next((s for s in reversed(sessions) if not ended(s)), None)


def ended(session: QuarantineView) -> bool:
    """True when the session is history."""
    return session.status.phase in {str(phase) for phase in Phase if phase.ended}


def why(
    node: FreshNode,
    health: HealthView | None,
    sessions: Sequence[QuarantineView],
    pauses: Sequence[PauseView],
    now: float,
) -> list[str]:
    """The answer to "why is my node gone", line by line."""
    session = open_session(sessions)
    return [
        printable(line)
        for line in (
            *_headline(node, health, session, now),
            *_causes(session),
            *_incidents(health, now),
            *_done(session),
            *_blocks(session),
            *_marks(node, session),
            *_others(node, pauses),
            *_history(sessions, now),
            *_advice(node, session),
        )
    ]


def _headline(
    node: FreshNode, health: HealthView | None, session: QuarantineView | None, now: float
) -> Iterator[str]:
    if session is None:
        said = "in service" if not node.spec.unschedulable else "cordoned, but not by gpuward"
        yield f"{node.name}: {said}"
    else:
        shadow = " (Shadow: nothing was touched)" if session.status.mode == "Shadow" else ""
        since = age(session.status.phase_since or session.metadata.creation_timestamp, now)
        yield f"{node.name}: {session.status.phase or 'Pending'} for {since}{shadow}"
        yield f"  {session.status.message or 'the remediator has not looked at it yet'}"
    if health is None:
        yield "  health: no agent has published a verdict; is gpuward-agent running on this node?"
        return
    status = health.status
    seen = age(status.observed_at, now)
    yield f"  health: {status.health}, {status.gpus_healthy or '?'} GPUs, seen {seen} ago"
    if status.message:
        yield f"  agent says: {status.message}"
    for source in status.sources:
        if source.state == "Down":
            yield f"  source {source.name} is Down: {source.reason or 'no reason given'}"


def _causes(session: QuarantineView | None) -> Iterator[str]:
    if session is None:
        return
    for cause in session.spec.causes[:SHOWN_INCIDENTS]:
        by = f" by {cause.by}" if cause.by else ""
        yield f"cause: {cause.reason or cause.source} ({cause.severity}){by}: {cause.message}"


def _incidents(health: HealthView | None, now: float) -> Iterator[str]:
    active: list[Incident] = [i for i in (health.status.incidents if health else ()) if i.active]
    for incident in active[:SHOWN_INCIDENTS]:
        seen = f"{age(incident.first_seen, now)} ago, {incident.count} times"
        yield (
            f"incident: {incident.reason} ({incident.severity}, {incident.level}), first seen {seen}; "
            f"repair: {incident.recommended_action}; closes on {incident.closes_on or '?'}"
        )
        for where in incident.pci or incident.gpus:
            yield f"  GPU {where}"
        for line in incident.evidence[:SHOWN_EVIDENCE]:
            yield f"  evidence: {line}"
    if len(active) > SHOWN_INCIDENTS:
        yield f"  and {len(active) - SHOWN_INCIDENTS} more active incidents"


def _done(session: QuarantineView | None) -> Iterator[str]:
    if session is None:
        return
    for step in session.status.timeline[-SHOWN_STEPS:]:
        by = f" by {step.by}" if step.by else ""
        yield f"done: {step.at} {step.step}{by} {step.message}".rstrip()
    drain = session.status.drain
    if drain is not None:
        yield (
            f"drain: {drain.evicted} evicted, {len(drain.waiting)} being waited for, "
            f"{len(drain.left_by_policy)} left by policy, {len(drain.left_by_failure)} left by failure"
        )


def _blocks(session: QuarantineView | None) -> Iterator[str]:
    if session is None:
        return
    said = {session.status.message, ""}
    for condition in session.status.conditions:
        if condition.status == "True" and condition.message not in said:
            said.add(condition.message)
            yield f"{condition.type}: {condition.reason}: {condition.message}".rstrip(": ")
    for block in session.status.drain.blocked if session.status.drain else ():
        lasting = "waiting cannot help" if block.permanent else "may clear by itself"
        owner = f", owner {block.owner}" if block.owner else ""
        yield f"blocked: {block.pdb or 'no PDB'}{owner} ({lasting}): {block.why}"
        if block.remedy:
            yield f"  remedy: {block.remedy}"


def _marks(node: FreshNode, session: QuarantineView | None) -> Iterator[str]:
    record = read_note(node)
    ours = "gpuward" if record is not None else "not gpuward"
    for taint in node.spec.taints:
        if taint.key == CORDON_TAINT:
            continue
        owner = "gpuward" if taint.key == TAINT_QUARANTINE else "not gpuward"
        yield f"mark: taint {taint.key}={taint.value}:{taint.effect} ({owner})"
    if node.spec.unschedulable:
        before = " and was cordoned before" if record and record.prior_unschedulable else ""
        yield f"mark: cordoned ({ours}{before})"
    if record is not None and (session is None or record.session != session.name):
        yield f"mark: belongs to session {record.session}, which is not open"


def _others(node: FreshNode, pauses: Sequence[PauseView]) -> Iterator[str]:
    if reason := node.annotations.get(ANNOTATION_HOLD):
        yield f"hold: {reason}"
    if node.labels.get(LABEL_OPT_OUT) == "true":
        yield "opt-out: this node is watched and reported, never touched"
    for pause in pauses:
        if pause.spec.scope.all or node.name in pause.spec.scope.nodes:
            yield f"pause {pause.metadata.name} by {pause.spec.by or '?'}: {pause.spec.reason}"


def _history(sessions: Sequence[QuarantineView], now: float) -> Iterator[str]:
    past = [s for s in sessions if ended(s)]
    if past:
        last = past[-1]
        when = age(last.status.phase_since or last.metadata.creation_timestamp, now)
        yield f"history: {len(past)} ended sessions, the last {last.status.phase} {when} ago"


def _advice(node: FreshNode, session: QuarantineView | None) -> Iterator[str]:
    if session is None:
        return
    yield f'you can: kubectl gpuward hold {node.name} --reason "..."      keep it out after repair'
    yield f'         kubectl gpuward release {node.name} --reason "..."   give it back now'
    if any(c.type == "NeedsHuman" and c.status == "True" for c in session.status.conditions):
        yield "         follow the remedy above; the drain goes on by itself once it is done"
