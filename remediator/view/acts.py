"""What a person can do about a node now, as commands to copy. Pure.

The page and `kubectl gpuward why` show the same commands in the same order: only those that change
something as things stand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from remediator.view.people import HELD, OPTED_OUT, PAUSED, decided
from remediator.view.shapes import PersonsAct
from remediator.view.state import PageState
from rules.api.health import IncidentStatus
from rules.api.mark import marked
from rules.api.names import LABEL_OPT_OUT
from rules.api.nodes import PauseView, QuarantineView
from rules.api.quarantine import Condition, Mode, Phase
from rules.catalog.reason import ClosesKind, Level
from rules.catalog.why_not import WhyNot
from rules.repair.ladder import Step
from rules.session.causes import DETECTOR, CauseSight, level_in_effect, open_causes, sight_of
from rules.session.observation import pause_covers
from rules.session.repair.ladder import taken_in, unfit
from rules.session.status import PROPOSED, blocked_by


def proposed_step(conditions: Iterable[Condition]) -> str:
    """The repair step that waits for a person's word; "" where none does."""
    asked = (c.reason for c in conditions if c.type == PROPOSED and c.status == "True")
    return next(asked, "")


def node_acts(
    node: str,
    session: QuarantineView | None,
    sight: CauseSight,
    *,
    people: Iterable[str] = (),
    pauses: Iterable[PauseView] = (),
) -> tuple[PersonsAct, ...]:
    """What a person can do about a node whose open session is `session`; `people` is what they
    decided already, `pauses` are those that cover the node.
    """
    held = HELD in people
    found = [*_session_acts(node, session, sight, held=held)] if session is not None else []
    if session is None and held:
        found.append(_unhold(node, "take the hold back: it would keep the node the next time"))
    if session is not None and session.spec.release is None and OPTED_OUT in people:
        found.append(_opt_in(node))
    found += [
        _act(f"kubectl gpuward resume {pause.metadata.name}", "end the pause")
        for pause in sorted(pauses, key=lambda one: one.metadata.name)
    ]
    return tuple(found)


def acts_on(name: str, state: PageState) -> tuple[PersonsAct, ...]:
    """The same as the page sees it, and for a node in service what takes it out; nothing of a node
    that is gone: whatever was written for it would change nothing.
    """
    snapshot = state.snapshot
    node = snapshot.nodes.get(name)
    if node is None:
        return ()
    session = state.open_session(name)
    pauses = [pause for pause in snapshot.pauses.values() if pause_covers(pause, node, state.now)]
    people = decided(node, session, pauses, state.now)
    found = node_acts(name, session, sight_of(node, snapshot), people=people, pauses=pauses)
    if session is not None or marked(node):
        return found
    return (*taking_out(name, people, shadow=snapshot.policy.mode == Mode.SHADOW), *found)


def resume_command(pauses: Iterable[PauseView]) -> str:
    """What ends these pauses and no others."""
    return " ".join(["kubectl gpuward resume", *sorted(one.metadata.name for one in pauses)])


def taking_out(node: str, people: Iterable[str], *, shadow: bool) -> tuple[PersonsAct, ...]:
    """What takes a node without a session out of service: nothing in Shadow, and of one that is
    opted out first the label.
    """
    if shadow:
        return ()
    if OPTED_OUT in people:
        return (_opt_in(node),)
    when = " once the pause ends" if PAUSED in people else ""
    does = f"take it out of service{when}"
    return (_act(f'kubectl gpuward quarantine {node} --reason "..."', does),)


def _session_acts(
    node: str, session: QuarantineView, sight: CauseSight, *, held: bool
) -> Iterator[PersonsAct]:
    asked_back = session.spec.release is not None
    pending = session.status.phase in {"", Phase.PENDING}
    proposed = proposed_step(session.status.conditions)
    if proposed and not asked_back:
        yield _act(f"kubectl gpuward repair {node}", f"let {proposed} go")
    if not asked_back and blocked_by(session.status) == WhyNot.NO_STEP_LEFT:
        yield from _once_more(node, session, sight)
    there = sight.node is not None  # what is written on the Node needs one
    if there and not asked_back and _stops_at_cordon(session, sight):
        yield _act(f'kubectl gpuward quarantine {node} --reason "..."', "move its pods off, too")
    if held and there:
        yield _unhold(node)
    elif there and not asked_back and session.status.mode != Mode.SHADOW:
        keeps = "keep it out (a second cordon leaves no trace)"
        does = "keep it out once it is taken out" if pending else keeps
        yield _act(f'kubectl gpuward hold {node} --reason "..."', does)
    if asked_back:
        return  # it comes back whatever else is said
    if there and heeds_repaired(session, sight):
        yield _act(
            f'kubectl gpuward repaired {node} --reason "..."', "say that a part was replaced"
        )
    untouched = pending or session.status.mode == Mode.SHADOW
    does = "leave it in service, end the session" if untouched else "give it back now"
    yield _act(f'kubectl gpuward release {node} --reason "..."', does)


def _once_more(node: str, session: QuarantineView, sight: CauseSight) -> Iterator[PersonsAct]:
    """Steps that the ladder passed over and that a person may let go all the same: each is asked
    for once in a session.
    """
    repair = sight.policy.repair
    unfitting = unfit(session, sight.health, sight.policy)
    for step in Step:
        free = step not in taken_in(session) and step not in unfitting
        if repair.mode != "Off" and step in repair.steps and free:
            yield _act(
                f"kubectl gpuward repair {node} --step {step}", f"ask for {step} all the same"
            )


def _stops_at_cordon(session: QuarantineView, sight: CauseSight) -> bool:
    """Whether only a person's word would drain the marked node."""
    status = session.status
    if status.phase != Phase.MARKED or status.mode == Mode.SHADOW:
        return False
    causes = open_causes(session, sight)
    return level_in_effect(session, causes, sight.policy) != Level.DRAIN


def _opt_in(node: str) -> PersonsAct:
    return _act(f"kubectl label node {node} {LABEL_OPT_OUT}-", "let gpuward act on it")


def _unhold(node: str, does: str = "let it be released") -> PersonsAct:
    return _act(f"kubectl gpuward unhold {node}", does)


def heeds_repaired(session: QuarantineView, sight: CauseSight) -> bool:
    """Whether a fault of the session is one that a person's word closes: not one that closes on
    what the agent sees, and never what others say or people asked for.
    """
    open_ids = {c.incident for c in open_causes(session, sight) if c.source == DETECTOR}
    if not open_ids:
        return False
    if sight.health is None:
        return True  # nobody knows what it closes on
    incidents = sight.health.status.incidents
    return any(i.active and i.id in open_ids and _by_word(i) for i in incidents)


def _by_word(incident: IncidentStatus) -> bool:
    """Closed by a person's word, or kept open because it came back too often."""
    return incident.closes_on == ClosesKind.HUMAN or bool(incident.held_since)


def _act(command: str, does: str) -> PersonsAct:
    return PersonsAct(command=command, does=does)
