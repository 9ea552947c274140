"""Follow the device taints of an open session: create, correct and check them.

Every reconcile compares the recorded devices with the DeviceTaintRules and with the ResourceSlices
of the node, which change when the driver's plugin restarts, at a reboot, and with MIG. A rule that
an operator deleted or changed ends the session, like a removed taint of the node. A session that
can no longer isolate devices isolates the node.
"""

import msgspec

from rules.api import quarantine_taint
from rules.api.quarantine import IsolatedDevice, Phase
from rules.api.writes import Decision, Write
from rules.catalog.reason import DrainScope
from rules.repair import objects
from rules.repair.objects import ReadState
from rules.session import drain_scope, halts, isolation, phases
from rules.session import status as st
from rules.session.case import Case, is_fresh, touched
from rules.session.validation import validating


def followed(case: Case) -> Decision | None:
    """Return the decision that corrects the session's device taints; None if they are right."""
    devices = case.status.devices
    on_node = quarantine_taint.isolates_devices(case.node, case.session.name)
    if case.phase is Phase.PENDING or not (devices or on_node):
        return None
    if halts.halt_of(case) is not None:
        return None
    if not on_node and (not case.shadow or case.status.evidence.get(isolation.EVIDENCE_NODE)):
        return _without_devices(case)
    if case.settled and not all(each.rule for each in devices):
        # The session ends.
        return None
    if why := _why_node(case):
        return _node_instead(case, why)
    seen = isolation.rules_of(case)
    if isinstance(seen, Decision):
        return seen
    if seen.state in {ReadState.NOT_SERVED, ReadState.FORBIDDEN}:
        return _node_instead(case, isolation.no_rules(seen))
    if seen.state is not ReadState.FOUND:
        return None
    own = isolation.own_rules(case, seen)
    if altered := isolation.altered(case, seen):
        why = f"an operator deleted or changed DeviceTaintRule {altered}"
        return validating.end(case, Phase.CANCELLED, why, by=st.BY_OPERATOR)
    for rule in own.values():
        if why := isolation.without_effect(rule, case.now):
            return _node_instead(case, why)
    known = isolation.devices_of(case)
    if isinstance(known, Decision):
        return known
    found = isolation.resolved(case, known, devices)
    if found.why:
        return _node_instead(case, found.why)
    wanted = tuple(
        msgspec.structs.replace(each, rule_uid=objects.uid_of(own.get(each.rule, {})))
        for each in found.devices
    )
    if wanted != devices:
        return _recorded(case, wanted)
    names = {each.rule for each in wanted}
    writes: tuple[Write, ...] = (
        *(
            isolation.taint(case, seen.api_version, each, phases.taint_value(case))
            for each in wanted
            if each.rule and each.rule not in own
        ),
        *(isolation.untaint(case, seen, rule) for name, rule in own.items() if name not in names),
    )
    if not writes:
        return None
    return case.decision("TaintDevice", case.status, because=case.severity, before=writes)


def _why_node(case: Case) -> str:
    """Return why the node has to be isolated after all; "" if its devices still suffice."""
    if not case.status.devices:
        return "no device is recorded in the session"
    drained = drain_scope.recorded(case.status.drain)
    if drained is not None and drained.scope > DrainScope.HOLDERS:
        return drained.why or f"the drain has scope {drained.scope}"
    return isolation.why_node(case) if case.causes and not case.seen.stale else ""


def _node_instead(case: Case, why: str) -> Decision:
    """Return the decision that isolates the node; the rules are deleted afterwards."""
    status = isolation.with_reason(case.status, why, case.now)
    if case.shadow:
        return case.decision("IsolateNode", status, because=why, wake_at=case.now)
    if not is_fresh(case.node):
        return Decision(step="ReadNode", because=why, needs_fresh_node=True)
    write = phases.taint_write(case)
    if case.refusal(write) is not None:
        status = case.status
    return case.decision("IsolateNode", status, because=why, before=(write,))


def _without_devices(case: Case) -> Decision:
    """Return the decision that deletes the rules of a session that isolates the node."""
    left = isolation.removed(case)
    if isinstance(left, Decision):
        return left
    status = case.status
    if left:
        status = st.noted(status, isolation.LEFT, f"delete manually: {left}", case.now)
    return case.decision(
        "UntaintDevice", touched(status, devices=()), because="the node is isolated"
    )


def _recorded(case: Case, wanted: tuple[IsolatedDevice, ...]) -> Decision:
    """Return the decision that records the devices before their rules are written."""
    status = touched(case.status, devices=wanted)
    before = {each.rule for each in case.status.devices}
    if new := [each for each in wanted if each.rule not in before]:
        status = isolation.noted(status, new, case.now)
    return case.decision("RecordDevices", status, because="the devices of its GPUs changed")
