"""What keeps a session from going on, what would end that, and what comes after. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from remediator.kubectl.node_look import NodeLook
from remediator.view.acts import heeds_repaired, proposed_step, resume_command
from rules.api.nodes import QuarantineView
from rules.api.quarantine import BlockedBy, Cause, Condition, Mode, Phase, RepairState
from rules.api.sentences import some, these
from rules.catalog.data_file import data_file
from rules.catalog.reason import Level
from rules.catalog.why_not import WhyNot, runbook
from rules.policy.policy import Policy
from rules.policy.shadow import GOES_ON
from rules.session.case import Case
from rules.session.causes import DETECTOR, level_in_effect, open_causes
from rules.session.external import taken_back
from rules.session.halts import halt_of
from rules.session.repair.ladder import NEXT, rungs
from rules.session.status import PROPOSED, blocked_by, is_true
from rules.session.validation.validating import not_ready
from rules.text.counted import count


class Remedy(msgspec.Struct, frozen=True):
    """What ends a wait, and the command that does, with `{node}` for the node; either may be
    "".
    """

    words: str
    command: str = ""


REMEDIES: Final = msgspec.json.decode(
    data_file("remedies.json", "remediator"), type=dict[WhyNot, Remedy]
)
"""What would end each kind of waiting, by reason; the long form of each is the page of the same
name in `docs/runbooks/blocked/`.
"""
LET_GO: Final = "kubectl gpuward repair {node}"
"""Ends the wait for approval where a repair step is proposed, and not a release."""
SHOWN_BLOCKS: Final = 8
_TOLD: Final = frozenset({"Blocked", "NeedsHuman", "Storm"})
"""Conditions whose clause is a part of the session's sentence."""
_NOT_OF_PODS: Final = frozenset({WhyNot.NODE_UNREADABLE, WhyNot.SESSION_UNREADABLE})
"""While these are said nothing is decided, and the drain's list is what it was before."""
_HALTS: Final = frozenset({"Paused", "Blocked"})
"""Conditions that name what keeps all harm from the node."""
_FIRST: Final = ("Blocked", "Paused", "Storm", "NodeUnreachable", "Replace", "NeedsHuman")
"""The order in which conditions are told."""
_TOUCHED_AGAIN: Final[dict[WhyNot, str]] = {
    WhyNot.STAND_DOWN: "when the other owner is done with the node",
    WhyNot.UNDONE_AGAIN: "when the node is cordoned and tainted again",
    WhyNot.OPT_OUT: "when the node is opted in again",
    WhyNot.NOT_SELECTED: "when the policy selects the node again",
    WhyNot.PAUSED: "when the pause ends",
    **GOES_ON,
}
"""When a halt ends (`rules.session.halts.halt_of`)."""


def blocked_lines(look: NodeLook, session: QuarantineView | None) -> Iterator[str]:
    """Each blocker once: what, whose, why, whether waiting helps, the remedy."""
    if session is None:
        return
    status = session.status
    draining = status.phase == Phase.DRAINING
    told_by_drain = draining or status.mode == Mode.SHADOW
    blocks = status.drain.blocked if status.drain and told_by_drain else ()
    for block in blocks[:SHOWN_BLOCKS]:
        yield from _block(block)
    if blocks and (why := blocked_by(status)):
        yield f"  runbook: {runbook(why)}"
    if len(blocks) > SHOWN_BLOCKS:
        more = f"kubectl get gpuquarantine {session.name} -o yaml"
        yield f"and {len(blocks) - SHOWN_BLOCKS} more: {more}"
    remedies = {**REMEDIES, **dict(_of_this(look, session))}
    reasons: set[str] = set()
    printed: set[str] = set()
    for one in sorted(_true(status.conditions), key=_order):
        by_drain = draining and one.type in _TOLD and one.reason not in _NOT_OF_PODS
        if (by_drain and blocks) or one.reason in reasons:
            continue
        if one.type == PROPOSED and WhyNot.APPROVAL in reasons:
            continue  # it waits for a person: said, with the command that lets it go
        reasons.add(one.reason)
        for line in _condition(look.name, one, remedies):
            if line not in printed:
                yield line
            printed.add(line)


def _block(block: BlockedBy) -> Iterator[str]:
    what = f"PDB {block.pdb}" if block.pdb else f"pod {these(block.pods)}"
    owner = f", owner {block.owner}" if block.owner else ""
    lasting = "waiting cannot help" if block.permanent else "may clear by itself"
    yield f"{what}{owner}: {block.why} ({lasting})"
    if block.pdb and block.pods.total:
        yield f"  {count(block.pods.total, 'pod')}: {these(block.pods)}"
    if block.remedy:
        yield f"  remedy: {block.remedy}"


def _of_this(look: NodeLook, session: QuarantineView) -> Iterator[tuple[WhyNot, Remedy]]:
    """Remedies that depend on what the session waits for."""
    if proposed := proposed_step(session.status.conditions):
        words = f"a person letting {proposed} go"
        yield WhyNot.APPROVAL, Remedy(words=words, command=LET_GO)
    if look.pauses:
        yield WhyNot.PAUSED, Remedy(words="", command=resume_command(look.pauses))
    yield WhyNot.NO_STEP_LEFT, _without_step(look, session)


def _without_step(look: NodeLook, session: QuarantineView) -> Remedy:
    """Of a session that no repair step is left for: what ends each kind of its causes."""
    known = REMEDIES[WhyNot.NO_STEP_LEFT]
    causes = open_causes(session, look.sight)
    others = taken_back(causes, session.spec.node_uid, look.sight.policy)
    words = []
    by_word = heeds_repaired(session, look.sight)
    if by_word:
        words.append(known.words)
    elif any(cause.source == DETECTOR for cause in causes):
        words.append("a repair by hand that the agent sees (the cause says which)")
    if others:
        words.append(f"whoever set it taking it back ({some(others)})")
    if not words:
        return known
    return Remedy(words=", and ".join(words), command=known.command if by_word else "")


def _condition(node: str, said: Condition, remedies: Mapping[WhyNot, Remedy]) -> Iterator[str]:
    """The message only where the sentence of the session does not hold it already."""
    message = "" if said.type in _TOLD else f": {said.message.rstrip('.')}"
    yield f"{said.reason}{message}"
    remedy = next((remedies[why] for why in WhyNot if why == said.reason), None)
    remedy = remedy or next((remedies[why] for why in WhyNot if why == said.type), None)
    if remedy is None:
        return
    command = remedy.command.format(node=node)
    yield f"  ends with: {remedy.words or command}"
    if remedy.words and command:
        # On a line of its own, to be copied.
        yield f"  {command}"
    if any(why == said.reason for why in WhyNot):
        yield f"  runbook: {runbook(said.reason)}"


def _true(conditions: tuple[Condition, ...]) -> list[Condition]:
    return [condition for condition in conditions if condition.status == "True"]


def _order(condition: Condition) -> tuple[int, str]:
    known = condition.type in _FIRST
    return (_FIRST.index(condition.type) if known else len(_FIRST), condition.type)


def _halted(look: NodeLook, session: QuarantineView) -> str:
    """When the node is touched again, where something keeps all harm from it; else ""."""
    if look.node is None:
        return ""
    # Of a policy that this person may not read its sessions tell the mode.
    enforces = session.status.mode == Mode.ENFORCE
    policy = look.policy or Policy(mode=Mode.ENFORCE if enforces else Mode.SHADOW)
    seen = look.observed(look.node, policy, session)
    halt = halt_of(Case(session=session, seen=seen, now=look.now, policy=policy))
    if halt is not None:
        return _TOUCHED_AGAIN.get(halt.reason, "")
    # Of a maintenance Lease only its session tells: people may not read those. So it is of Shadow
    # where the policy cannot be read.
    only_told = {WhyNot.STAND_DOWN, WhyNot.UNDONE_AGAIN} | (
        GOES_ON.keys() if look.policy is None else set()
    )
    said = {one.reason for one in _true(session.status.conditions) if one.type in _HALTS}
    return next((_TOUCHED_AGAIN[why] for why in only_told if why in said), "")


def next_lines(look: NodeLook, session: QuarantineView) -> Iterator[str]:
    """What comes next, where the session's own sentence does not say it."""
    node = look.node
    if look.shadow:
        words = look.shadow_words
        nobody = f", {words.nobody}" if words is not None and words.nobody else ""
        enforced = words.enforced if words else "a policy that can be read and says Enforce"
        yield f"nothing, in Shadow{nobody}; {enforced} would judge the node afresh"
        return
    if session.spec.release is not None:
        yield "it is given back at once, as was asked for; a pause does not stop that"
        return
    halted = _halted(look, session)
    if halted and session.status.phase == Phase.DRAINING:
        yield f"evictions go on {halted}"
        return
    policy = look.policy or Policy()
    causes = open_causes(session, look.sight)
    drains = level_in_effect(session, causes, policy) == Level.DRAIN
    status = session.status
    held_back = any(is_true(status, kind) for kind in ("Blocked", "Storm"))
    match status.phase:
        case Phase.PENDING | "":
            then = "then its pods are evicted within their budgets" if drains else "no eviction"
            first = f"{halted}, " if halted else ""
            first = first or ("once that has ended: " if held_back else "")
            yield f"{first}taint and cordon, {then}"
        case Phase.MARKED if drains:
            when = halted or ("once that has ended" if held_back else "within their budgets")
            yield f"its pods are evicted {when}"
        case Phase.DRAINING if is_true(status, "NeedsHuman"):
            yield (
                "what is blocked goes on by itself once that is remedied; with the last pod gone "
                "it is Quarantined"
            )
        case Phase.DRAINING:
            yield (
                "pods that were told to go end within their own grace, others are asked again; "
                "with the last pod gone it is Quarantined"
            )
        case Phase.QUARANTINED | Phase.MARKED if _only_people(causes or session.spec.causes):
            yield "only people ask for this now, so a person ends it: release"
        case Phase.QUARANTINED | Phase.MARKED if not causes:
            yield "its causes are closed: Validating, then it is given back by itself"
        case Phase.MARKED:
            yield "its pods run on; once the causes are closed it is given back by itself"
        case Phase.QUARANTINED if not is_true(status, "NeedsHuman"):
            yield "once the causes are closed: Validating, then it is given back by itself"
        case Phase.REPAIRING if status.repair and status.repair[-1].state == RepairState.PROVEN:
            yield "with its causes closed it goes on to Validating, at once"
        case Phase.REPAIRING:
            failed = _not_proven(look, session)
            yield f"proven, it goes on to Validating; not proven in time, {failed}"
        case Phase.VALIDATING if node is not None and not_ready(node):
            yield "the node must be Ready before it is released"
        case _:
            return


def _not_proven(look: NodeLook, session: QuarantineView) -> str:
    """What follows a step in vain, as the ladder stands now."""
    policy = look.policy
    if policy is None:
        return "the next step follows"
    others = (other for other in look.sessions if other.name != session.name)
    causes = open_causes(session, look.sight) or session.spec.causes
    later = rungs(session, others, causes, look.health, policy, look.now, {})
    follows = next((rung.step for rung in later if rung.state == NEXT), "")
    if not follows:
        return "a person decides: no step is left after it"
    asks = policy.repair.mode == "Ask"
    return f"{follows} is proposed" if asks else f"{follows} follows"


def _only_people(causes: Iterable[Cause]) -> bool:
    """No verdict closes a person's request."""
    return all(cause.source == "Human" for cause in causes)
