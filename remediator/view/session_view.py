"""Sessions as values: what an open one waits for, what ends that and what comes next; rows for
tables; all of one session. Pure.

The page and `kubectl gpuward why` show the same explanation. It is made of conditions, drain and
phase; the session's own sentence is shown as it is stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from remediator.view import operators, shapes
from remediator.view.shapes import Blocker
from rules.api import gpu_record, messages, quarantine, timestamps
from rules.api.health import GpuStatus, IncidentStatus
from rules.api.nodes import QuarantineView
from rules.api.quarantine import BlockedBy, Condition, DrainStatus, Mode, Phase, RepairState
from rules.catalog import why_not
from rules.catalog.data_file import data_file
from rules.catalog.reason import Level
from rules.catalog.why_not import WhyNot
from rules.policy import policy
from rules.session import history, observation
from rules.session.causes import CauseContext, cause_context, level_in_effect, open_causes, worst
from rules.session.repair import ladder
from rules.session.repair.ladder import LadderRung
from rules.session.status import PROPOSED, blocked_by, condition, is_true
from rules.session.validation import validating

if TYPE_CHECKING:  # the rules of the fleet, which commands do not wait for
    from remediator.view.state import PageState

_MOST_INCIDENTS: Final = 8
_MOST_LINES: Final = 5
_MOST_GPUS: Final = 16
_MOST_CHARS: Final = 512


class Remedy(msgspec.Struct, frozen=True):
    """What an operator can do about a blocker, and the command, with `{node}` for the node; either
    may be "".
    """

    text: str
    command: str = ""


REMEDIES: Final = msgspec.json.decode(
    data_file("remedies.json", "remediator"), type=dict[WhyNot, Remedy]
)
"""The remedy of each blocker, by reason."""
_IN_MESSAGE: Final = frozenset({"Blocked", "NeedsHuman", "Storm"})
"""Conditions whose message is a part of the session's own sentence."""
_NOT_OF_PODS: Final = frozenset({WhyNot.NODE_UNREADABLE, WhyNot.SESSION_UNREADABLE})
"""While these hold nothing is decided, and the drain's list is what it was before."""
_FIRST: Final = ("Blocked", "Paused", "Storm", "NodeUnreachable", "Replace", "NeedsHuman")
"""The order of conditions."""
_OUT_NEXT: Final = frozenset({"", Phase.PENDING, Phase.MARKED, Phase.DRAINING})
"""Phases whose next step waits for whatever blocks the session."""


def blockers(session: QuarantineView) -> Iterator[Blocker]:
    """What blocks the session, each once: budgets and pods, then its conditions by reason."""
    status, node = session.status, session.spec.node_name
    draining = status.phase == Phase.DRAINING
    of_drain = draining or status.mode == Mode.SHADOW
    blocks = status.drain.blocked if status.drain is not None and of_drain else ()
    for block in blocks:
        yield _of_block(block, blocked_by(status))
    seen: set[str] = set()
    for one in sorted((c for c in status.conditions if c.status == "True"), key=_order):
        by_pods = one.type in _IN_MESSAGE and one.reason not in _NOT_OF_PODS
        if (draining and blocks and by_pods) or one.reason in seen:
            continue
        if one.type == PROPOSED and WhyNot.APPROVAL in seen:
            continue
        yield _of_condition(one, node, also=one.type in seen)
        seen.add(one.reason)


def _of_block(block: BlockedBy, reason: str) -> Blocker:
    return Blocker(
        reason=reason,
        what=f"PDB {block.pdb}" if block.pdb else f"pod {messages.pod_list(block.pods)}",
        why=block.why,
        permanent=block.permanent,
        owner=block.owner,
        pods=block.pods,
        remedy=block.remedy,
    )


def _of_condition(one: Condition, node: str, *, also: bool) -> Blocker:
    """`also`: a blocker before it has the remedy of its type."""
    remedy = next((REMEDIES[why] for why in WhyNot if why == one.reason), None)
    if remedy is None and not also:
        remedy = next((REMEDIES[why] for why in WhyNot if why == one.type), None)
    return Blocker(
        reason=one.reason,
        why="" if one.type in _IN_MESSAGE else one.message,
        remedy=remedy.text if remedy is not None else "",
        command=remedy.command.format(node=node) if remedy is not None else "",
    )


def _order(condition: Condition) -> tuple[int, str]:
    known = condition.type in _FIRST
    return (_FIRST.index(condition.type) if known else len(_FIRST), condition.type)


def next_step(session: QuarantineView, sight: CauseContext) -> str:
    """Return the next step as a clause; "" if the message of the session has it."""
    status = session.status
    if not observation.is_open(session):
        return ""
    if (status.mode or sight.policy.mode) == Mode.SHADOW:
        texts = policy.shadow_of(sight.policy)
        why = f": {texts.unintended}" if texts is not None and texts.unintended else ""
        ends = f"; {texts.ended_by} ends it" if texts is not None else ""
        return f"nothing in Shadow mode{why}{ends}"
    if session.spec.release is not None:
        return "released now, as an operator requested; a pause does not stop the release"
    waits = any(is_true(status, kind) for kind in ("Blocked", "Paused", "Storm"))
    when = "when unblocked: " if waits and status.phase in _OUT_NEXT else ""
    return f"{when}{step}" if (step := _of_phase(session, sight)) else ""


def _of_phase(session: QuarantineView, sight: CauseContext) -> str:
    status = session.status
    causes = open_causes(session, sight)
    drains = level_in_effect(session, causes, sight.policy) == Level.DRAIN
    only_people = all(cause.source == "Human" for cause in causes or session.spec.causes)
    match status.phase:
        case Phase.PENDING | "" if drains:
            return "taint and cordon, then its pods are evicted within their PodDisruptionBudgets"
        case Phase.PENDING | "":
            return "taint and cordon; its pods stay"
        case Phase.MARKED if drains:
            return "its pods are evicted within their PodDisruptionBudgets"
        case Phase.DRAINING:
            return "phase Quarantined when the last pod is gone"
        case Phase.QUARANTINED | Phase.MARKED if only_people:
            return "an operator quarantined the node and has to release it"
        case Phase.QUARANTINED | Phase.MARKED if not causes:
            return "its causes are closed: phase Validating, then release"
        case Phase.MARKED:
            return "its pods stay; when its causes are closed: phase Validating, then release"
        case Phase.QUARANTINED:
            return "when its causes are closed: phase Validating, then release"
        case Phase.REPAIRING if status.repair and status.repair[-1].state == RepairState.PROVEN:
            return "the repair is verified: phase Validating"
        case Phase.REPAIRING:
            return "phase Validating when the repair is verified, otherwise the next repair step"
        case Phase.VALIDATING if sight.node is not None and validating.not_ready(sight.node):
            return "the node must be Ready before it is released"
    return ""


def session_row(session: QuarantineView) -> shapes.SessionRow:
    """One session as tables show it. One without status has not begun and touches nothing yet."""
    status, causes = session.status, session.spec.causes
    drain = status.drain or DrainStatus()
    return shapes.SessionRow(
        name=session.name,
        node=session.spec.node_name,
        phase=status.phase or Phase.PENDING,
        mode=status.mode or Mode.SHADOW,
        open=observation.is_open(session),
        severity=worst(causes),
        level=session.spec.level,
        reason=quarantine.most_severe_reason(causes),
        causes=len(causes),
        opened_at=timestamps.format_time(history.wanted_at(session)),
        phase_since=status.phase_since or session.metadata.creation_timestamp,
        message=status.message or "The remediator has not reconciled it yet.",
        conditions=tuple(_condition(c) for c in status.conditions if c.status == "True"),
        until=status.until,
        evicted=drain.evicted,
        waits_for=_waits_for(session),
        needs=operators.must_of(session),
    )


def _waits_for(session: QuarantineView) -> str:
    """What the fleet rules wait for, the same for many sessions; "" where it waits for its own."""
    blocked = condition(session.status, "Blocked")
    if blocked is None or blocked.status != "True" or not observation.is_open(session):
        return ""
    return blocked.message if blocked.reason in why_not.FLEET_WIDE else ""


def _condition(one: Condition) -> str:
    """Its type; what halts a session by its reason, for an opt-out is no pause."""
    return one.reason if one.type == "Paused" and one.reason else one.type


def session_detail(session: QuarantineView, state: PageState) -> shapes.SessionDetail:
    """Return all of one session."""
    spec, status = session.spec, session.status
    return shapes.SessionDetail(
        session=session_row(session),
        explanation=shapes.Explanation(
            blockers=tuple(blockers(session)), next=next_step(session, _sight(session, state))
        ),
        hold=spec.hold,
        release_asked_by=(spec.release.by or "somebody") if spec.release else "",
        repair_asked=spec.repair,
        causes=spec.causes,
        conditions=status.conditions,
        gpus=tuple(_identity(uuid, session, state) for uuid in _gpu_ids(session)),
        evidence=_evidence(session, state),
        drain=status.drain,
        devices=status.devices,
        validation=status.validation,
        ladder=_ladder(session, state),
    )


def _sight(session: QuarantineView, state: PageState) -> CauseContext:
    """Return the facts that decide which causes are open; for a deleted node only the policy."""
    snapshot = state.snapshot
    node = snapshot.nodes.get(session.spec.node_name)
    if node is None:
        return CauseContext(
            node=None, health=None, stale="", policy=snapshot.policy, now=state.now
        )
    return cause_context(node, snapshot)


def _ladder(session: QuarantineView, state: PageState) -> tuple[LadderRung, ...]:
    snapshot, name = state.snapshot, session.spec.node_name
    causes = open_causes(session, _sight(session, state)) or session.spec.causes
    others = [other for other in state.by_node.get(name, ()) if other.name != session.name]
    health = snapshot.healths.get(name)
    of_node = _sight(session, state).policy
    return ladder.rungs(session, others, causes, health, of_node, snapshot.now)


def _evidence(session: QuarantineView, state: PageState) -> tuple[IncidentStatus, ...]:
    """Return the evidence recorded at the opening; before that, the current incidents."""
    kept = session.status.evidence.get("incidents")
    listed = kept[:_MOST_INCIDENTS] if isinstance(kept, list) else []
    if found := [_kept(one) for one in listed if isinstance(one, Mapping)]:
        return tuple(found)
    ids = {cause.incident for cause in session.spec.causes if cause.incident}
    health = state.snapshot.healths.get(session.spec.node_name)
    incidents = health.status.incidents if health is not None else ()
    return tuple(incident for incident in incidents if incident.id in ids)


def _kept(one: Mapping[str, Any]) -> IncidentStatus:
    """Evidence is free-form in the object: whatever is in it is read as text or left out."""
    lines = one.get("evidence")
    return IncidentStatus(
        id=_text_of(one.get("id")),
        reason=_text_of(one.get("reason")),
        severity=_text_of(one.get("severity")),
        first_seen=_text_of(one.get("firstSeen")),
        recommended_action=_text_of(one.get("recommendedAction")),
        evidence=tuple(map(_text_of, lines[:_MOST_LINES])) if isinstance(lines, list) else (),
    )


def _text_of(value: object) -> str:
    """A text of free-form evidence, bounded; "" for what is none."""
    return value[:_MOST_CHARS] if isinstance(value, str) else ""


def _gpu_ids(session: QuarantineView) -> tuple[str, ...]:
    """UUIDs that the session's evidence names."""
    named = session.status.evidence.get("gpus")
    listed = named[:_MOST_GPUS] if isinstance(named, list) else []
    return tuple(_text_of(one) for one in listed if isinstance(one, str))


def _identity(uuid: str, session: QuarantineView, state: PageState) -> GpuStatus:
    """A GPU that the session names, by the health object of its node; a record knows the serial
    number of one that is not listed there any more.
    """
    health = state.known(session.spec.node_name)
    for gpu in health.status.gpus if health is not None else ():
        if gpu.uuid == uuid and gpu.serial:
            return GpuStatus(uuid=uuid, serial=gpu.serial, index=gpu.index)
    record = state.snapshot.records.get(gpu_record.gpu_record_name(uuid))
    serial = record.status.serial if record is not None and not record.doubt else ""
    return GpuStatus(uuid=uuid, serial=serial, index=-1)
