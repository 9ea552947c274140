"""The phases of a session: what each one does and which one follows.

| phase | what happens | next phase |
|---|---|---|
| Pending | waits for its turn | "Marked"; Cancelled if the causes close |
| "Marked" | has its taint and cordon, waits for its turn to drain | Draining |
| Draining | pods are evicted (`draining`) | Quarantined; "Marked" if no drain is required |
| Quarantined | the next repair step waits or begins (`repair.readiness`) | Repairing |
| Repairing | a step is followed to its proof (`repair.progress`) | Quarantined |
| Validating | test under load, then healthy time (`validation`) | Released; "Marked" |

From "Marked" to Repairing, closed causes lead to Validating; a returning cause leads back. Ends in
any phase (release, uncordon, node deleted) are in `rules.session.decide`, the only caller.
"""

from dataclasses import replace
from typing import Final

import msgspec

from rules.api import messages, quarantine_taint
from rules.api.quarantine import Cause, DrainStatus, Phase, Pods, QuarantineStatus
from rules.api.quarantine_taint import QuarantineState
from rules.api.refusal import NodeWrite
from rules.api.writes import Decision, Evicting, TaintAndCordon
from rules.catalog.reason import is_reason_code
from rules.catalog.why_not import Refusal, WhyNot
from rules.policy import policy
from rules.session import causes, drain_scope, halts, history, isolation, observation
from rules.session import status as st
from rules.session.case import Case, is_fresh, remove_taint, touched
from rules.session.drain_scope import ScopeChoice
from rules.session.draining import begin_drain, draining, probe, scope_of
from rules.session.observation import Unjudged
from rules.session.repair import evidence, progress, readiness
from rules.session.repair.readiness import Outlook
from rules.session.validation import result as test_result
from rules.session.validation.validating import begin_validation, end, validating


def in_phase(case: Case, halt: Refusal | None = None) -> Decision:
    """Return the decision of the current phase, with halts and suspended time recorded.

    `halt` replaces the result of `halt_of` if the caller knows more.
    """
    halt = halt or halts.halt_of(case)
    status = evidence.with_evidence(case, halts.with_halts(case, halt))
    if case.phase is not Phase.QUARANTINED:
        status = st.with_condition(status, st.PROPOSED, case.now)
    if case.phase is not Phase.PENDING and not case.shadow:
        status = _with_replace(case, status)
    if case.phase is Phase.PENDING:
        return _pending(case, status, halt)
    if case.phase is Phase.VALIDATING:
        return validating(case, status, halt)
    if (followed := progress.follow_step(case, status, halt)) is not None:
        return followed
    if case.settled:
        if case.shadow:
            why = f"{messages.closed_clause(case.reported)}; Shadow made no changes"
            return end(case, Phase.RELEASED, why)
        return begin_validation(case, status)
    if case.phase is Phase.QUARANTINED or case.phase is Phase.REPAIRING:
        return _quarantined(case, status, halt)
    if case.phase is Phase.MARKED:
        return _tainted(case, status, halt)
    return _draining(case, status, halt)


def _with_replace(case: Case, status: QuarantineStatus) -> QuarantineStatus:
    if not history.needs_replacement(case.session, case.seen, case.policy, case.now):
        return status
    return st.with_condition(
        status,
        "Replace",
        case.now,
        "RepeatOffender",
        f"This node had at least {case.policy.release.replace_after} sessions within 7d; "
        "replace the hardware, then release the node: "
        f'kubectl gpuward release {case.node.name} --reason "..."',
    )


def _pending(case: Case, status: QuarantineStatus, halt: Refusal | None) -> Decision:
    permit = case.seen.permit
    if case.settled:
        why = messages.closed_clause(case.reported) if case.reported else "the cause closed"
        early = (
            " before any action"
            if case.shadow or not quarantine_taint.quarantined(case.node)
            else ""
        )
        return end(case, Phase.CANCELLED, f"{why}{early}")
    if not case.shadow and case.taint_state is QuarantineState.INTACT:
        if quarantine_taint.isolates_devices(case.node, case.session.name):
            return _isolate(case, status)
        return _enter_tainted(case, status)
    if not case.shadow and case.taint_state is QuarantineState.FOREIGN:
        return _clear_foreign(case, status)
    refused = case.seen.refused.get(NodeWrite.TAINT)
    its_turn = permit.start or permit.unjudged is Unjudged.TAINT_REFUSED
    if halt is not None:
        refusal = halt
    elif case.seen.stale and not causes.needs_no_health_status(case.causes):
        refusal = Refusal(reason=WhyNot.HEALTH_STATUS_STALE, why=case.seen.stale)
    elif refused is not None and not case.shadow and its_turn:
        refusal = refused
    elif permit.start:
        return _isolate(case, status)
    elif permit.refusal is not None:
        refusal = permit.refusal
    else:
        # Also after a refusal: the fleet rules decide whether there is room now.
        return _await_assessment(case)
    status = st.with_refusal(status, case.now, refusal, f"Waiting: {refusal.why}.")
    storm = permit.refusal if halt is None and permit.storm else None
    status = st.with_condition(
        status,
        "Storm",
        case.now,
        storm.reason if storm is not None else "",
        f"The circuit breaker is open: {permit.why}.",
    )
    sentence = messages.pending(case.causes, refusal.why)
    # The retry of a refused write is no news.
    until = refusal.until if refusal is not refused else None
    status = st.enter(status, Phase.PENDING, sentence, case.now, until=until)
    return case.decision(
        "Wait",
        status,
        because=refusal.why,
        blocked_by=refusal.reason,
        wake_at=refused.until if refused is not None else None,
    )


def _isolate(case: Case, status: QuarantineStatus) -> Decision:
    """Return the decision that takes the accused GPUs or the node out of service."""
    chosen = isolation.choice(case)
    if isinstance(chosen, Decision):
        return chosen
    if chosen.devices:
        status = isolation.noted(touched(status, devices=chosen.devices), chosen.devices, case.now)
    elif chosen.why:
        status = isolation.with_reason(status, chosen.why, case.now)
    intact = case.taint_state is QuarantineState.INTACT
    if case.shadow or (intact and chosen.devices):
        return _enter_tainted(case, status)
    if case.node.spec.unschedulable and not is_fresh(case.node):
        # The taint records who cordoned the node, and only a read returns managed fields.
        why = "the node is already cordoned"
        return Decision(step="ReadNode", because=why, needs_fresh_node=True)
    parts = quarantine_taint.DEVICE if chosen.devices else case.policy.parts
    # The write carries the resourceVersion of the node as last seen.
    return _enter_tainted(case, status, write=taint_write(case, parts=parts))


def _await_assessment(case: Case) -> Decision:
    """Return a decision without writes until the fleet rules have assessed the session."""
    return Decision(
        step="Judge",
        because=case.seen.permit.why,
        message=case.session.status.message,
        status=case.session.status,
        wake_at=case.now + 1.0,
    )


def taint_value(case: Case) -> str:
    """Return the value of the session's taints: the reason of its first cause."""
    first = next(iter(case.session.spec.causes), Cause())
    # A manual cause needs no reason code; the taint then has its source.
    return first.reason if is_reason_code(first.reason) else str(first.source)


def taint_write(
    case: Case, *, boot: str = "", restored: bool = False, parts: str = ""
) -> TaintAndCordon:
    """Return the write that puts taint and cordon of this session on the node as it was read.

    `boot`: restores the cordon in this boot. `restored`: another controller removed a part.
    `parts`: other ones than the policy's.
    """
    return TaintAndCordon(
        node=case.node.name,
        node_uid=case.node.uid,
        session=case.session.name,
        patch=quarantine_taint.quarantine_patch(
            case.node,
            session=case.session.name,
            reason=taint_value(case),
            parts=parts or case.policy.parts,
            now=case.now,
            restored_boot=boot,
            restored=restored,
        ),
    )


def _enter_tainted(
    case: Case, status: QuarantineStatus, write: TaintAndCordon | None = None
) -> Decision:
    for kind in ("Blocked", "NeedsHuman", "Storm"):
        status = st.with_condition(status, kind, case.now)
    sentence = _sentence(case, "", status=status)
    status = st.enter(status, Phase.MARKED, sentence, case.now)
    before = () if write is None else (write,)
    return case.decision("Taint", status, because=case.severity, before=before, wake_at=case.now)


def _clear_foreign(case: Case, status: QuarantineStatus) -> Decision:
    """Remove the taint and cordon of another session if that session has ended."""
    note = quarantine_taint.read_note(case.node)
    name = note.session if note else ""
    holder = next((other for other in case.seen.siblings if other.name == name), None)
    if holder is not None and observation.is_open(holder):
        return case.decision("Wait", status, because=f"{name} holds the node")
    if not is_fresh(case.node):
        return Decision(
            step="ReadNode", because="an old quarantine must be removed", needs_fresh_node=True
        )
    old = remove_taint(case.node, name, orphan=holder is None)
    return case.decision("RemoveTaint", status, because=f"{name} has ended", before=(old,))


def _sentence(
    case: Case,
    waiting_for: str,
    probed: DrainStatus | None = None,
    status: QuarantineStatus | None = None,
) -> str:
    """Return the status message of `status`: what was done, what is next, what else to know."""
    drain, status = case.drains, status or case.status
    devices, kept = status.devices, status.evidence.get(isolation.EVIDENCE_NODE)
    if case.shadow:
        what = messages.isolated_devices(devices)
        what = f"isolate {what}" if what else f"quarantine the node ({case.policy.parts})"
        would = f"Enforce mode would {what}"
        would += " and drain it" if drain else ""
        would += f" ({messages.would_drain(probed)})" if probed is not None else ""
        tests = case.policy.validate
        tested = f", and test it under load ({tests.template})" if tests.tests else ""
        would += readiness.would_repair(case) + tested if drain else ""
        texts = policy.shadow_of(case.policy)
        return messages.shadow(case.causes, would, texts.unintended if texts else "")
    if not drain:
        text = "level Cordon keeps its pods running until the causes close"
    elif waiting_for:
        text = f"its pods are evicted later: {waiting_for}"
    else:
        # The turn to drain is decided after the taint and cordon: gangs or limits may delay it.
        text = "its pods are evicted as soon as gangs, limits and budgets allow"
    if kept and not devices:
        text += f". The node is isolated, not the GPU: {kept}"
    if case.seen.untolerating and not devices:
        text += (
            f". DaemonSets {messages.name_list(case.seen.untolerating)} do not tolerate the taint "
            "and could not come back"
        )
    if case.no_data:
        text += f". The node is not released: {case.no_data}"
    note = quarantine_taint.read_note(case.node)
    parts = note.parts if note else case.policy.parts
    return messages.tainted(case.causes, text, parts, devices)


def _tainted(case: Case, status: QuarantineStatus, halt: Refusal | None) -> Decision:
    permit = case.seen.permit
    refusal: Refusal | None = None
    if case.drains:
        if case.shadow:
            status, evicting = probe(case, status)
            sentence = _sentence(case, "", status.drain)
            status = st.enter(status, Phase.MARKED, sentence, case.now)
            return case.decision("Shadow", status, because=case.severity, evicting=evicting)
        if halt is not None:
            refusal = halt
        elif halts.unreachable(case):
            why = "the kubelet stopped posting node status"
            refusal = Refusal(reason=WhyNot.NODE_UNREACHABLE, why=why)
        elif permit.unjudged is not None:
            return _await_assessment(case)
        elif permit.drain:
            return begin_drain(case, status)
        else:
            refusal = permit.refusal
    cordoned = _cordoned(case, status, refusal)
    return replace(cordoned, hand_over=permit.hand_over and halt is None)


def _cordoned(case: Case, status: QuarantineStatus, refusal: Refusal | None) -> Decision:
    """Return the decision to evict nothing: at level Cordon, or because of the refusal."""
    waiting_for = refusal.why if refusal is not None else ""
    status = st.with_refusal(status, case.now, refusal, f"Waiting: {waiting_for}.")
    sentence, until = _sentence(case, waiting_for), refusal.until if refusal is not None else None
    status = st.enter(status, Phase.MARKED, sentence, case.now, until=until)
    return case.decision(
        "Cordoned",
        status,
        because=waiting_for or "level Cordon stops here",
        blocked_by=refusal.reason if refusal is not None else None,
    )


def _draining(case: Case, status: QuarantineStatus, halt: Refusal | None) -> Decision:
    """Return the decision of a drain while it is required and within the limits."""
    if not case.drains:
        return _stop_draining(case, status, "the level is now Cordon")
    if halt is None and not halts.unreachable(case):
        permit = case.seen.permit
        if permit.unjudged is Unjudged.HALT_OVER:
            return _await_assessment(case)
        if permit.refusal is not None and permit.refusal.reason is WhyNot.NODES_DRAINING:
            # The halt is over, and another node drains in its place.
            return _stop_draining(case, status, permit.why)
    return draining(case, status, halt)


def _stop_draining(case: Case, status: QuarantineStatus, why: str) -> Decision:
    """Return to phase "Marked": remaining pods and the taint and cordon stay."""
    status = st.with_refusal(status, case.now, None)
    if status.drain is not None:
        drain = msgspec.structs.replace(status.drain, waiting=Pods(), blocked=())
        status = touched(status, drain=drain)
    status = st.enter(status, Phase.MARKED, _sentence(case, ""), case.now)
    return case.decision("StopDraining", status, because=why)


def _quarantined(case: Case, status: QuarantineStatus, halt: Refusal | None) -> Decision:
    step = readiness.begin_step(case, status, halt)
    if isinstance(step, Decision):
        return step
    outlook = step or Outlook(then=readiness.awaited(case))
    if (wider := _wider(case, outlook)) is not None:
        return _stop_draining(case, touched(status, drain=wider), wider.scope_reason)
    arrived = case.seen.plan.arrived if case.seen.plan is not None else None
    kept = outlook.refusal if step is not None else _failed_test(case)
    message = f"Not repaired: {kept.why}." if kept is not None else ""
    also = []
    if arrived:
        # Evicted pods would bypass the scheduler again: an operator has to act.
        why = messages.unscheduled_pods(arrived)
        kept = Refusal(reason=WhyNot.POD_ARRIVED, why=why, permanent=True)
        message = f"Not empty: {why}."
        also.append(why)
    not_listed = arrived is None and st.blocked_by(status) == WhyNot.POD_ARRIVED
    if not not_listed:
        status = st.with_refusal(status, case.now, kept, message)
    proposal = st.sentence(outlook.then) if outlook.proposes else ""
    status = st.with_condition(status, st.PROPOSED, case.now, outlook.proposes, proposal)
    if case.no_data:
        also.append(f"{case.no_data}, so the node is not released")
    sentence = messages.drained(case.causes, status.drain, outlook.then, also)
    if not_listed:
        # The earlier message stays until the pods are listed again.
        sentence = status.message
    status = st.enter(status, Phase.QUARANTINED, sentence, case.now, until=outlook.until)
    return case.decision(
        "Quarantined",
        status,
        because=kept.why if kept is not None else "waiting for the repair",
        blocked_by=kept.reason if kept is not None else (halt.reason if halt else None),
        evicting=Evicting.CONFIRM_IDLE if outlook.lists_pods else Evicting.WATCH,
        hand_over=outlook.hand_over,
        wake_at=outlook.wake_at,
    )


def _wider(case: Case, outlook: Outlook) -> DrainStatus | None:
    """Return the drain with a wider scope if a step or a new cause needs one; None if not."""
    before = drain_scope.recorded(case.status.drain)
    if before is None or case.status.drain is None or not case.drains:
        return None
    chosen = scope_of(case)
    if outlook.widens_to is not None:
        chosen = ScopeChoice(outlook.widens_to, outlook.then)
    if chosen.scope <= before.scope:
        return None
    return msgspec.structs.replace(
        case.status.drain, scope=chosen.scope, scope_reason=chosen.why or _NEW_CAUSE
    )


_NEW_CAUSE: Final = "a cause needs more pods to leave"


def _failed_test(case: Case) -> Refusal | None:
    """Return the refusal for a failed test if repair.mode is Off; no health status has it."""
    failed = next((c for c in case.causes if c.source == test_result.SOURCE), None)
    if failed is None or case.policy.repair.mode != "Off":
        return None
    why = (
        f'its test under load failed ("{failed.message[:300]}") and repair.mode is Off, '
        "repair the node and reboot it: then it is tested again"
    )
    return Refusal(reason=WhyNot.VALIDATION_FAILED, why=why, permanent=True)
