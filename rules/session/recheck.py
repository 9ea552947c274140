"""Recheck a disruptive write against the node as it was just read.

The gateway calls this without an await before sending. The read of the node was answered at most a
second ago and took at most 5 s. The recheck covers everything that may have changed since the
decision: the node's identity and boot, the session with phase, causes and level, the taint and
cordon, the policy, pauses, opt-out, other owners, and the age of all this data. `rules.drain.plan`
decides whether a single pod may be evicted.
"""

from rules.api import names, quarantine_taint
from rules.api import writes as d
from rules.api.device_taints import TaintDevice
from rules.api.nodes import NodeView, QuarantineView
from rules.api.quarantine import Phase
from rules.api.quarantine_taint import QuarantineState
from rules.api.repair_writes import CreateTestJob, SetRepairCondition, WriteRepairObject
from rules.policy import policy
from rules.session import causes, exclusions, observation
from rules.session.observation import FleetSnapshot
from rules.session.repair import ladder
from rules.session.validation import result as test_result


def recheck(write: d.Write, node: NodeView, snapshot: FleetSnapshot) -> str:
    """Return why `write` must not be sent now; "" if it may. Other writes than disruptive ones
    always may.
    """
    if not write.disruptive:
        return ""
    if (texts := policy.shadow_of(snapshot.policy_of(node))) is not None:
        return texts.state
    if snapshot.doubt:
        return snapshot.doubt
    for refusal in (exclusions.kept_off(node, snapshot), _session(write, node, snapshot)):
        if refusal:
            return refusal
    return ""


def _session(write: d.Write, node: NodeView, snapshot: FleetSnapshot) -> str:
    if isinstance(write, d.TaintAndCordon):
        if write.node_uid != node.uid:
            return "the node was replaced"
        session = snapshot.quarantines.get(write.session)
        return _open(session, node, snapshot) or _may_taint(session, node, snapshot)
    if isinstance(write, TaintDevice):
        return _isolates(write, node, snapshot)
    if isinstance(write, SetRepairCondition | WriteRepairObject):
        return _repairs(write, node, snapshot)
    if isinstance(write, CreateTestJob):
        return _tests(write, node, snapshot)
    if node.ready == "Unknown":
        return "the kubelet stopped posting node status"
    note = quarantine_taint.read_note(node)
    if note is None:
        return "the node has no quarantine taint and cordon"
    if isinstance(write, d.EvictPod) and write.session and write.session != note.session:
        return f"the node is quarantined by session {note.session}"
    if quarantine_taint.quarantine_state(node, note.session) is not QuarantineState.INTACT:
        return "the quarantine on the node is incomplete"
    session = snapshot.quarantines.get(note.session)
    if session is not None and session.status.boot_id not in {"", node.boot_id}:
        return "the node rebooted"
    return _open(session, node, snapshot) or _drains(session, node, snapshot)


def _isolates(write: TaintDevice, node: NodeView, snapshot: FleetSnapshot) -> str:
    """Return why the device may not be tainted; "" if the open session has it on record."""
    session = snapshot.quarantines.get(write.session)
    if refusal := _open(session, node, snapshot):
        return refusal
    if session is None or write.name not in {each.rule for each in session.status.devices}:
        return "the device is not recorded in the session"
    if quarantine_taint.quarantine_state(node, session.name) is not QuarantineState.INTACT:
        return "the quarantine on the node is incomplete"
    return ""


def _repairs(
    write: SetRepairCondition | WriteRepairObject, node: NodeView, snapshot: FleetSnapshot
) -> str:
    """Return why a repair step may not be requested; "" if it is recorded and not on hold."""
    session = snapshot.quarantines.get(write.session)
    if refusal := _not_held(session, node, snapshot):
        return refusal
    assert session is not None
    attempt = ladder.under_way(session.status)
    if attempt is None or attempt.step != write.step:
        return "the step is not recorded in the session"
    if attempt.before.boot_id != node.boot_id:
        return "the node rebooted"
    return _drained(session, node, snapshot)


def _tests(write: CreateTestJob, node: NodeView, snapshot: FleetSnapshot) -> str:
    """Return why a test may not begin; "" if it is recorded, without hold or returned cause."""
    if not write.session:
        return _tests_new(write, node, snapshot)
    session = snapshot.quarantines.get(write.session)
    if refusal := _not_held(session, node, snapshot):
        return refusal
    assert session is not None
    test = test_result.under_way(session.status)
    if session.status.phase != Phase.VALIDATING or test is None or test.object != write.name:
        return "the test is not recorded in the session"
    if test.boot_id != node.boot_id:
        return "the node rebooted"
    returned = session.spec.causes and causes.holds_now(session, node, snapshot)
    return "a cause returned" if returned else ""


def _not_held(session: QuarantineView | None, node: NodeView, snapshot: FleetSnapshot) -> str:
    """Return why no step or test may begin: the session ended, or an operator set a hold."""
    refusal = _open(session, node, snapshot)
    if refusal or session is None:
        return refusal
    if quarantine_taint.quarantine_state(node, session.name) is not QuarantineState.INTACT:
        return "the quarantine on the node is incomplete"
    held = session.spec.hold or names.ANNOTATION_HOLD in node.annotations
    return "an operator set a hold on the node" if held else ""


def _tests_new(write: CreateTestJob, node: NodeView, snapshot: FleetSnapshot) -> str:
    """Return why a new node may not be tested; "" if it may."""
    if not snapshot.policy_of(node).validate.tests_new_nodes:
        return "the policy does not test new nodes"
    if write.node_uid != node.uid:
        return "the node was replaced"
    if node.spec.unschedulable or node.ready != "True" or quarantine_taint.quarantined(node):
        return "the node does not accept pods"
    if not observation.selects_node(snapshot.policy, node):
        return "the policy's nodeSelector does not select the node"
    taken = (s for s in snapshot.quarantines.values() if s.spec.node_name == node.name)
    return "the node is in quarantine" if any(map(observation.is_open, taken)) else ""


def _drained(session: QuarantineView, node: NodeView, snapshot: FleetSnapshot) -> str:
    if snapshot.policy_of(node).repair.mode == "Off":
        return "repair.mode is Off"
    if not causes.drains_now(session, node, snapshot):
        return "no active cause requires a drained node"
    return ""


def _open(session: QuarantineView | None, node: NodeView, snapshot: FleetSnapshot) -> str:
    if session is None:
        return "its session was deleted"
    if not observation.is_open(session) or session.spec.release is not None:
        return "its session has ended"
    if session.spec.node_uid not in {"", node.uid}:
        return "the node was replaced"
    if not causes.has_human(session) and not observation.selects_node(snapshot.policy, node):
        return "the policy's nodeSelector does not select the node"
    return ""


def _may_taint(session: QuarantineView | None, node: NodeView, snapshot: FleetSnapshot) -> str:
    """Return why the node may not be quarantined: a first quarantine needs active causes, a
    restored one only the session.
    """
    if session is None or session.status.phase not in {"", Phase.PENDING}:
        return ""
    return (
        ""
        if causes.holds_now(session, node, snapshot)
        else "no active cause requires a quarantine"
    )


def _drains(session: QuarantineView | None, node: NodeView, snapshot: FleetSnapshot) -> str:
    """Return why evictions must stop: session and level may have changed while they waited."""
    if session is None or session.status.phase != Phase.DRAINING:
        return "its session is no longer draining"
    if not causes.drains_now(session, node, snapshot):
        return "no active cause requires a drain"
    return ""
