"""Operator decisions about a node, operator action that its session needs, and useful commands.

The page and `kubectl gpuward why` show the same commands in the same order: those that have an
effect now.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from remediator.view.shapes import OperatorAction
from rules.api import messages, names, selectors, timestamps
from rules.api.health import HealthStatus, IncidentStatus
from rules.api.metadata import LabelSelector
from rules.api.nodes import HealthView, NodeView, PauseView, QuarantineView
from rules.api.quarantine import Cause, Condition, Mode, Phase
from rules.api.timestamps import TimeFormat
from rules.catalog.reason import ClosesKind, Level
from rules.catalog.why_not import WhyNot
from rules.fleet import node_health
from rules.repair.ladder import Step
from rules.session import exclusions, observation
from rules.session.causes import DETECTOR, CauseContext, level_in_effect, open_causes
from rules.session.repair import ladder
from rules.session.status import PROPOSED, blocked_by, condition, is_true
from rules.text.printable import printable

HELD, PAUSED, OPTED_OUT = "held", "paused", "opted out"
MUST_APPROVE, MUST_ACT, MUST_RELEASE = "must approve", "must act", "must release"
"""What a session needs: an approval, an action, or the release of an operator request."""
MUSTS: Final = frozenset({MUST_APPROVE, MUST_ACT, MUST_RELEASE})
_AT_REST: Final = frozenset({Phase.MARKED, Phase.QUARANTINED})
_DECIDED: Final = frozenset({WhyNot.HOLD, WhyNot.PAUSED, WhyNot.OPT_OUT})
"""Blocking reasons that an operator decided: they need no operator action."""


def part_of_people(
    node: NodeView | None,
    session: QuarantineView | None,
    pauses: Iterable[PauseView],
    now: float,
    health: HealthView | None = None,
) -> tuple[str, ...]:
    """Return the operators' decisions about a node and the action that its session needs.

    `health` is the current health status, if it is known and not stale.
    """
    opened = session if session is not None and observation.is_open(session) else None
    decisions = decided(node, opened, pauses, now)
    must = must_of(session) if session is not None else ""
    # A pause covers many nodes and ends: it does not answer what one of them needs.
    decided_alone = set(decisions) - {PAUSED}
    if not must and not decided_alone and opened and _only_people_ask(opened, health):
        must = MUST_RELEASE
    return (*decisions, *([must] if must else ()))


def _only_people_ask(session: QuarantineView, health: HealthView | None) -> bool:
    """Whether a session that has done all it will do stays for an operator's request alone, which
    no health status closes.
    """
    incidents = health.status.incidents if health is not None else ()
    closed = {incident.id for incident in incidents if not incident.active}
    return _rests_for_people(session) and all(c.incident in closed for c in _of_others(session))


def faults_over(session: QuarantineView, health: HealthView | None) -> bool:
    """Whether its faults are over by that health status and an operator's wish alone keeps the
    node out.
    """
    return bool(_of_others(session)) and _only_people_ask(session, health)


def _rests_for_people(session: QuarantineView) -> bool:
    phase, spec = session.status.phase, session.spec
    drains_yet = phase == Phase.MARKED and spec.level == Level.DRAIN
    if phase not in _AT_REST or drains_yet or session.status.mode == Mode.SHADOW:
        return False
    return len(_of_others(session)) < len(spec.causes) and spec.release is None


def _of_others(session: QuarantineView) -> list[Cause]:
    return [cause for cause in session.spec.causes if cause.source != "Human"]


def must_of(session: QuarantineView) -> str:
    """What an operator must do before the session goes on; "" where it needs none, or waits for
    what people decided.
    """
    needed = condition(session.status, "NeedsHuman")
    if needed is None or needed.status != "True" or session.spec.release is not None:
        return ""
    if needed.reason in _DECIDED:
        return ""
    return MUST_APPROVE if needed.reason == WhyNot.APPROVAL else MUST_ACT


def decided(
    node: NodeView | None,
    session: QuarantineView | None,
    pauses: Iterable[PauseView],
    now: float,
) -> tuple[str, ...]:
    """Return what operators decided about a node; by its session if the node cannot be read."""
    held = session is not None and session.spec.hold
    paused = session is not None and is_paused(session)
    if node is not None:
        held = held or names.ANNOTATION_HOLD in node.annotations
        paused = any(exclusions.pause_covers(pause, node, now) for pause in pauses)
    out = node is not None and exclusions.opted_out(node)
    decisions = ((HELD, held), (PAUSED, paused), (OPTED_OUT, out))
    return tuple(name for name, made in decisions if made)


def is_paused(session: QuarantineView) -> bool:
    """Return whether a pause stops the session, and not an opt-out or another controller."""
    found = (condition(session.status, kind) for kind in ("Paused", "Blocked"))
    return any(c is not None and c.status == "True" and c.reason == WhyNot.PAUSED for c in found)


def pause_lines(pauses: Iterable[PauseView], times: TimeFormat) -> list[str]:
    """Return a line for each pause in force."""
    return [
        pause_line(pause, times)
        for pause in sorted(pauses, key=lambda one: one.metadata.name)
        if not exclusions.pause_over(pause, times.now)
    ]


def pause_line(pause: PauseView, times: TimeFormat) -> str:
    """Return `paused for 20m by ann (pause-1a2b3c4d), all nodes, for another 2h: reason`."""
    spec = pause.spec
    until = f", {times.until(spec.until)}" if spec.until else ""
    since = times.since(pause.metadata.creation_timestamp or "")
    return printable(
        f"paused {since} by {spec.by or 'an operator'} ({pause.metadata.name}), "
        f"{pause_scope(pause)}{until}: {spec.reason or 'no reason given'}"
    )


def pause_scope(pause: PauseView) -> str:
    """Return the nodes that a pause covers, as text."""
    scope = pause.spec.scope
    if doubt := exclusions.pause_doubt(pause):
        return f"all nodes, because {doubt}"
    if scope.all:
        return "all nodes"
    parts = [messages.name_list(scope.nodes)] if scope.nodes else []
    if scope.node_selector is not None:
        selector = msgspec.convert(scope.node_selector, LabelSelector)
        parts.append(
            f"nodes with {selectors.spelled(selector)[:200]}"
            if selectors.spelled(selector)
            else "every node"
        )
    return " and ".join(parts)


def taint_stays(session: QuarantineView) -> bool:
    """Whether the session has ended and its taint and cordon could not be removed."""
    return not observation.is_open(session) and is_true(session.status, "Blocked")


def degraded_of(status: HealthStatus) -> str:
    """Return the number of degraded GPUs as a clause; "" if there are none."""
    degraded = sum(gpu.health == "Degraded" for gpu in status.gpus)
    return f", {degraded} of them degraded" if degraded else ""


def clock_message(node: NodeView | None, health: HealthView | None, now: float) -> str:
    """Return how wrong the node's clock is and the effect; "" if it is correct or unknown."""
    apart = node_health.apart_s(node, health, now)
    if not apart:
        return ""
    way = "ahead of" if apart > 0 else "behind"
    return (
        f"the node's clock is {timestamps.span(abs(apart))} {way} the API server's: the times of "
        "its faults are, too, while deadlines and healthy time go by the API server's; "
        f"{_meanwhile(apart)}see to its NTP"
    )


def _meanwhile(apart: float) -> str:
    """Return the effect of a clock that is behind."""
    if apart > 0:
        return ""
    return "a reset or boot that it dates before the request proves no repair; "


def proposed_step(conditions: Iterable[Condition]) -> str:
    """Return the repair step that waits for approval; "" if none does."""
    asked = (c.reason for c in conditions if c.type == PROPOSED and c.status == "True")
    return next(asked, "")


def node_acts(
    node: str,
    session: QuarantineView | None,
    sight: CauseContext,
    *,
    people: Iterable[str] = (),
    pauses: Iterable[PauseView] = (),
) -> tuple[OperatorAction, ...]:
    """Return the commands that have an effect on the node and its open `session`.

    `people` are the operators' decisions, `pauses` the pauses that cover the node.
    """
    held = HELD in people
    found = [*_session_acts(node, session, sight, held=held)] if session is not None else []
    if session is None and held:
        found.append(_unhold(node, "remove the hold: it prevents the next release"))
    if session is not None and session.spec.release is None and OPTED_OUT in people:
        found.append(_opt_in(node))
    found += [
        _act(f"kubectl gpuward resume {pause.metadata.name}", "end the pause")
        for pause in sorted(pauses, key=lambda one: one.metadata.name)
    ]
    return tuple(found)


def resume_command(pauses: Iterable[PauseView]) -> str:
    """Return the command that ends these pauses."""
    return " ".join(["kubectl gpuward resume", *sorted(one.metadata.name for one in pauses)])


def taking_out(node: str, people: Iterable[str], *, shadow: bool) -> tuple[OperatorAction, ...]:
    """Return the command that quarantines a node without a session; none in Shadow mode.

    If the node is opted out, it is the command that removes the label.
    """
    if shadow:
        return ()
    if OPTED_OUT in people:
        return (_opt_in(node),)
    when = " once the pause ends" if PAUSED in people else ""
    does = f"take it out of service{when}"
    return (_act(f'kubectl gpuward quarantine {node} --reason "..."', does),)


def _session_acts(
    node: str, session: QuarantineView, sight: CauseContext, *, held: bool
) -> Iterator[OperatorAction]:
    asked_back = session.spec.release is not None
    pending = session.status.phase in {"", Phase.PENDING}
    proposed = proposed_step(session.status.conditions)
    if proposed and not asked_back:
        yield _act(f"kubectl gpuward approve {node}", f"approve {proposed}")
    if not asked_back and blocked_by(session.status) == WhyNot.NO_STEP_LEFT:
        yield from _once_more(node, session, sight)
    there = sight.node is not None  # what is written on the Node needs one
    if there and not asked_back and _stops_at_cordon(session, sight):
        yield _act(f'kubectl gpuward quarantine {node} --reason "..."', "evict its pods, too")
    if held and there:
        yield _unhold(node)
    elif there and not asked_back and session.status.mode != Mode.SHADOW:
        keeps = "keep it out of service"
        does = "keep it out of service once it is quarantined" if pending else keeps
        yield _act(f'kubectl gpuward hold {node} --reason "..."', does)
    if asked_back:
        return  # it is released in any case
    if there and heeds_repaired(session, sight):
        yield _act(
            f'kubectl gpuward mark-replaced {node} --reason "..."', "report a replaced part"
        )
    untouched = pending or session.status.mode == Mode.SHADOW
    does = (
        "end the session and leave the node in service"
        if untouched
        else "return it to service now"
    )
    yield _act(f'kubectl gpuward release {node} --reason "..."', does)


def _once_more(
    node: str, session: QuarantineView, sight: CauseContext
) -> Iterator[OperatorAction]:
    """Yield the skipped repair steps that an operator can still approve, each once a session."""
    repair = sight.policy.repair
    unfitting = ladder.unfit(session, sight.health, sight.policy)
    for step in Step:
        free = step not in ladder.taken_in(session) and step not in unfitting
        if repair.mode != "Off" and step in repair.steps and free:
            yield _act(f"kubectl gpuward approve {node} --step {step}", f"request {step} anyway")


def _stops_at_cordon(session: QuarantineView, sight: CauseContext) -> bool:
    """Whether only an operator's request would drain the quarantined node."""
    status = session.status
    if status.phase != Phase.MARKED or status.mode == Mode.SHADOW:
        return False
    causes = open_causes(session, sight)
    return level_in_effect(session, causes, sight.policy) != Level.DRAIN


def _opt_in(node: str) -> OperatorAction:
    return _act(f"kubectl label node {node} {names.LABEL_OPT_OUT}-", "let gpuward act on it")


def _unhold(node: str, does: str = "allow its release") -> OperatorAction:
    return _act(f"kubectl gpuward unhold {node}", does)


def heeds_repaired(session: QuarantineView, sight: CauseContext) -> bool:
    """Whether `mark-replaced` closes a fault of the session.

    It does not close faults that the agent closes itself, nor external and manual causes.
    """
    open_ids = {c.incident for c in open_causes(session, sight) if c.source == DETECTOR}
    if not open_ids:
        return False
    if sight.health is None:
        return True  # nobody knows what it closes on
    incidents = sight.health.status.incidents
    return any(i.active and i.id in open_ids and _closed_by_operator(i) for i in incidents)


def _closed_by_operator(incident: IncidentStatus) -> bool:
    """Whether an operator closes it, or it is kept open because it recurred too often."""
    return incident.closes_on == ClosesKind.HUMAN or bool(incident.held_since)


def _act(command: str, does: str) -> OperatorAction:
    return OperatorAction(command=command, does=does)
