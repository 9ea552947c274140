"""Why a node is as it is: one pure function from what was read to short lines for a person.

Cause with verbatim evidence, since when, what was done by whom, what is next, what blocks it, who
owns each mark, and what the reader can do; nothing twice. `why -o wide` says the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from remediator.kube.resources import AGENT_SELECTOR
from remediator.kubectl.command import WIDTH, labelled
from remediator.kubectl.node_look import NodeLook, has_gpus
from remediator.kubectl.why.blocked import blocked_lines, next_lines
from remediator.kubectl.why.calm import calm_lines, is_awaited, left_to_people
from remediator.kubectl.why.causes import cause_lines
from remediator.kubectl.why.marks import kept_lines, mark_lines
from remediator.view.acts import node_acts, taking_out
from remediator.view.people import MUSTS, clock_said, degraded_of
from remediator.view.times import age
from rules.api.health import HealthStatus, SourceStatus
from rules.api.mark import marked, read_note
from rules.api.names import LABEL_GPUS
from rules.api.nodes import QuarantineView
from rules.api.quarantine import Mode, Phase, TimelineEntry, ValidationCheck, pods_of
from rules.api.sentences import blocked_clause, let_go_by, some, these
from rules.api.timestamps import parse_time, utc, utc_of
from rules.drain.fate import LeftBy
from rules.fleet.health_now import UNKNOWN
from rules.ledger.verdict import faults_said
from rules.policy.policy import Policy
from rules.session.causes import EVIDENCE_GANGS, open_causes
from rules.session.observation import OF_THE_AGENT, is_open
from rules.session.owners import failed_owner, working_owner
from rules.session.people.said import word_in_force
from rules.session.repair.ladder import rungs
from rules.session.status import LET_GO, NEW_BOOT, is_true
from rules.text.counted import count
from rules.text.printable import printable

SHOWN_STEPS = 8
_STEPS = {
    Phase.PENDING: "session opened",
    Phase.MARKED: "taint and cordon put on",
    Phase.DRAINING: "evictions began",
    Phase.QUARANTINED: "nothing left to evict",
    Phase.REPAIRING: "a repair step began",
    Phase.VALIDATING: "all causes closed",
}
"""A phase in few words; what its sentence said at the time is in `show`."""
_STILL_MARKED = "taint and cordon are on still"
_REBOOTED = "a verdict of the new boot says whether its causes closed"
_OVER = "the repair step is over, and the node is out still"
_WORD_OVER = "; the faults it was said for are over"


def why(look: NodeLook, *, wide: bool = False, width: int = WIDTH) -> list[str]:
    """The answer to "why is my node gone", line by line, for a terminal that is `width` wide."""
    session = look.session
    told = session or _unmarking(look)
    lines = [printable(_headline(look, session))]
    sections: tuple[tuple[str, Iterator[str]], ...] = (
        ("now", _now(told, look)),
        ("pods", _pods(session)),
        ("health", _health(look)),
        ("cause", cause_lines(look, session, wide=wide)),
        ("done", _done(look, session, wide=wide)),
        ("ladder", _ladder(look, session)),
        ("tested", _tested(session, wide=wide)),
        ("blocked", blocked_lines(look, told)),
        ("next", _next(look, session)),
        ("marks", mark_lines(look, session)),
        ("people", kept_lines(look)),
        ("before", _history(look)),
        ("unseen", iter(look.unseen)),
        ("you can", _advice(look, session)),
    )
    for label, text in sections:
        lines += labelled(label, text, width)
    return lines


def _next(look: NodeLook, session: QuarantineView | None) -> Iterator[str]:
    """What comes next, and that nothing does while there is nobody to do it."""
    coming = next_lines(look, session) if session else calm_lines(look)
    lasts, cannot = look.leader.lasts, look.leader.cannot_act
    if (lasts or cannot) and (session is not None or is_awaited(look)):
        if lasts:
            yield f"nothing while no remediator leads, and none has {lasts}; once one does:"
        else:
            yield f"nothing while the remediator that leads {cannot}"
            yield "its rights: kubectl gpuward preflight; once it can act:"
    yield from coming


def _pods(session: QuarantineView | None) -> Iterator[str]:
    """The pods that were moved off the node, and their gangs: whose work it was; and those that
    the policy leaves on it. Daemons are counted in the session's sentence and no news.
    """
    drain = session.status.drain if session is not None else None
    if session is None or drain is None:
        return
    if left := [note for note in drain.left_by_policy.named if note.why != LeftBy.NATURE_DAEMON]:
        yield f"left on it by policy: {these(pods_of(left))}"
    if drain.evicted and drain.recent:
        more = ", the last" if drain.evicted > len(drain.recent) else ""
        yield f"evicted{more}: {some(drain.recent)}"
    gangs = session.status.evidence.get(EVIDENCE_GANGS)
    if drain.evicted and isinstance(gangs, list) and gangs:
        yield f"gang: {some([str(gang) for gang in gangs])}"


def _tested(session: QuarantineView | None, *, wide: bool) -> Iterator[str]:
    """The tests under load before the release: the last one, and what it found wrong."""
    tests = session.status.validation if session is not None else ()
    for test in tests if wide else tests[-1:]:
        said = f": {test.message}" if test.message else ""
        at = utc_of(test.ended_at or test.started_at)
        yield f"{at} {test.state} by {test.provider}, Job {test.object}{said}"
        yield from (f"  {_check(c)}" for c in test.checks if wide or c.verdict != "pass")


def _check(check: ValidationCheck) -> str:
    gpu = f" on {'GPU ' if check.gpu.isdecimal() else ''}{check.gpu}" if check.gpu else ""
    value = f", {check.value:g} {check.unit}".rstrip() if check.value is not None else ""
    floor = f", at least {check.floor:g}" if check.floor is not None else ""
    note = f"; {check.note}" if check.note else ""
    return f"{check.verdict}: {check.id}{gpu}{value}{floor}{note}"


def _headline(look: NodeLook, session: QuarantineView | None) -> str:
    people = "".join(
        f", a person {word}" if word in MUSTS else f", {word}" for word in look.people
    )
    if session is None:
        if look.node is None:
            return f"{look.name}: no open session"
        said = "in service" if not look.node.spec.unschedulable else "cordoned, but not by gpuward"
        if marked(look.node):
            said = "carries a mark of gpuward without an open session; it comes off"
        return f"{look.name}: {said}{people}"
    phase = session.status.phase or Phase.PENDING
    since = age(session.status.phase_since or session.metadata.creation_timestamp, look.now)
    words = look.shadow_words
    nobody = f", {words.nobody}" if words is not None and words.nobody else ""
    shadow = f", Shadow: nothing is touched{nobody}" if look.shadow else ""
    return f"{look.name}: {phase} for {since}{shadow}{people} (session {session.name})"


def _unmarking(look: NodeLook) -> QuarantineView | None:
    """The ended session that says why its mark is on the node still."""
    note = read_note(look.node) if look.node is not None else None
    name = note.session if note is not None else ""
    return next(
        (s for s in look.sessions if s.name == name and is_true(s.status, "Blocked")), None
    )


def _now(session: QuarantineView | None, look: NodeLook) -> Iterator[str]:
    """The remediator's sentence; what the section `blocked` says in full is cut off."""
    if session is None:
        return
    status, leader = session.status, look.leader
    if not status.phase:
        asks = "" if leader.cannot_act else "; does it run?"
        yield f"the remediator has not looked at it yet{asks}"
        return
    blocked = blocked_clause(status.drain.blocked) if status.drain is not None else ""
    yield status.message.removesuffix(f"; {blocked}.") or "the remediator said nothing"
    if leader.lasts and leader.led_at is not None:
        yield f"so it stood at {utc(leader.led_at)}, when a remediator last looked"
    elif leader.cannot_act and leader.word.unable_since is not None:
        yield f"so it stood at {utc(leader.word.unable_since)}, when the remediator could last act"


def _health(look: NodeLook) -> Iterator[str]:
    if look.health is None:
        labels = look.node.labels.keys() if look.node is not None else frozenset()
        if LABEL_GPUS in labels:  # an agent wrote that, so one published once
            yield (
                "Unknown: there is no verdict for this node any more; an agent that runs "
                "publishes one again within minutes"
            )
        else:
            yield "Unknown: no agent has ever published a verdict for this node"
        if look.node is not None and LABEL_GPUS not in labels and not has_gpus(look.node):
            yield "no label says that it has NVIDIA GPUs: without any, no agent belongs there"
        yield from _clock(look)
        yield from _see_agent(look)
        return
    status = look.health.status
    said = ", ".join(
        part
        for part in (
            status.health,
            status.gpus_healthy and f"{status.gpus_healthy} GPUs usable{degraded_of(status)}",
            status.driver_version and f"driver {status.driver_version}",
        )
        if part
    )
    written = age(status.observed_at, look.now)
    if look.stale:
        since = f" for {age(status.silent_since, look.now)}" if status.silent_since else ""
        word = look.health_now.word
        if word == UNKNOWN:
            yield f"{word}: {look.stale}{since}; the last verdict, {written} ago, was {said}"
        else:
            yield f"{said}; last changed {written} ago, and now {look.stale}"
        if look.stale in OF_THE_AGENT and not _let_go(status):
            yield from _see_agent(look)
    else:
        # Without a right to read nodes and pods a silent agent is known minutes later.
        alive = "" if look.node is None or look.agents is None else ", its agent is alive"
        yield f"{said}; last changed {written} ago{alive}"
    yield from _clock(look)
    if status.message and status.health != "Healthy":
        yield status.message
    if look.node is not None and (failed := failed_owner(look.node)):
        yield failed
    for source in status.sources:
        if source.state == "Released":
            yield f"{_released(look, source)}"
        elif source.state == "Down":
            since = f" for {age(source.since, look.now)}" if source.since else ""
            yield f"source {source.name} is {source.state}{since}: {source.reason or 'no reason'}"


def _clock(look: NodeLook) -> Iterator[str]:
    if clock := clock_said(look.node, look.health, look.now):
        yield clock


def _let_go(status: HealthStatus) -> bool:
    """The agent is well and keeps its hands off the driver, since somebody asked it to."""
    return any(source.state == "Released" for source in status.sources)


def _released(look: NodeLook, source: SourceStatus) -> str:
    since = f" {age(source.since, look.now)} ago" if source.since else ""
    owner = working_owner(look.node, None, look.now) if look.node is not None else ""
    why = owner or "somebody asked for it"
    return (
        f"its agent let go of the driver{since}, as it should: {why}; it looks again once that "
        "is over, after two hours in any case"
    )


def _see_agent(look: NodeLook) -> Iterator[str]:
    """Where to look for the agent of this node."""
    if look.agents is None:
        return
    if not look.agents:
        yield "no pod of gpuward-agent is on it:"
        yield "kubectl get daemonset -A -l app.kubernetes.io/name=gpuward"
        return
    yield (
        f"kubectl get pods -A -o wide -l {AGENT_SELECTOR} --field-selector "
        f"spec.nodeName={look.name}"
    )


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
    words = {str(phase): text for phase, text in _STEPS.items()}
    if session.status.mode == Mode.SHADOW:
        words[str(Phase.MARKED)] = "would be tainted and cordoned"
    for number, step in enumerate(shown, start=len(timeline) - len(shown)):
        short = _again(step.step, timeline[:number]) or words.get(step.step, step.message)
        text = step.message if wide else short
        about = f" {step.subject}" if step.step == LET_GO else ""
        said = f": {text}" if text else ""
        yield f"{utc_of(step.at, seconds=True)} {step.step}{about} by {step.by or '?'}{said}"
    if (word := session.spec.repair) is not None and not _begun(timeline, word.step):
        over = word_in_force(session, open_causes(session, look.sight)) is None
        yield f"{word.step}: {let_go_by(word)}{_WORD_OVER if over and is_open(session) else ''}"
    if session.spec.release is not None:
        asked = session.spec.release
        at = parse_time(asked.at)
        when = f" at {utc(at)}" if at is not None else ""
        yield f"release asked for by {asked.by or '?'}{when}: {asked.reason}"


def _begun(timeline: Sequence[TimelineEntry], step: str) -> bool:
    """Whether the timeline tells already who let the step go."""
    return any(entry.step == LET_GO and entry.subject == step for entry in timeline)


def _again(step: str, before: Sequence[TimelineEntry]) -> str:
    """What a phase means that a session comes back to; "" at its first time."""
    phases = [entry.step for entry in before if entry.step in set(Phase)]
    while Phase.PENDING in phases[1:]:
        phases = phases[phases.index(Phase.PENDING, 1) :]  # it was taken up again after its end
    if step == Phase.VALIDATING and before and before[-1].step == NEW_BOOT:
        return _REBOOTED
    if step == Phase.QUARANTINED and phases[-1:] == [Phase.REPAIRING]:
        return _OVER
    return _STILL_MARKED if step == Phase.MARKED and Phase.MARKED in phases else ""


def _ladder(look: NodeLook, session: QuarantineView | None) -> Iterator[str]:
    """The repair step by step: tried, next, later."""
    if session is None:
        return
    policy = look.policy or Policy()
    others = (other for other in look.sessions if other.name != session.name)
    causes = open_causes(session, look.sight) or session.spec.causes
    for rung in rungs(session, others, causes, look.health, policy, look.now, {}):
        at = rung.ended_at or rung.started_at
        yield f"{rung.clause}{f', {age(at, look.now)} ago' if at else ''}"


def _history(look: NodeLook) -> Iterator[str]:
    for record in look.repeat_offenders:
        yield faults_said(record, look.now)
    for moved in look.moved:
        yield f"{moved.clause}: kubectl gpuward why {moved.node}"
    past = [session for session in look.sessions if not is_open(session)]
    if past:
        last = past[-1]
        when = age(last.status.phase_since or last.metadata.creation_timestamp, look.now)
        ended = f"{count(len(past), 'ended session')}, the last {last.status.phase} {when} ago"
        yield f"{ended}{_by_whom(last)}: {sessions_of(look.name)}"


def sessions_of(node: str) -> str:
    """The command that lists every session of a node that is still kept."""
    return f"kubectl get gpuquarantines --field-selector spec.nodeName={node}"


def _by_whom(session: QuarantineView) -> str:
    """Who asked for the release, and why; "" where nobody did."""
    asked = session.spec.release
    return f" by {asked.by or 'a person'} ({asked.reason})" if asked is not None else ""


def _advice(look: NodeLook, session: QuarantineView | None) -> Iterator[str]:
    can = [*node_acts(look.name, session, look.sight, people=look.people, pauses=look.pauses)]
    if left_to_people(look):
        can = [*taking_out(look.name, look.people, shadow=look.shadow), *can]
    width = max((len(act.command) for act in can), default=0)
    yield from (f"{act.command.ljust(width)}   {act.does}" for act in can)
