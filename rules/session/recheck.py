"""The last check before disruption: may this write still go, on the node as it was just read?

Called by the gateway without an await before sending, with a node whose read was answered at most
a second ago and took at most 5 s. Everything that could have changed since the decision is looked
at again: the node's identity and boot, the session, its phase, its causes, its level and its taint
and cordon, the policy, pauses, opt-out and other owners, and whether what is known of all that is
recent enough. Whether a single pod may still go is asked of `rules.drain.plan` beside it.
"""

from rules.api import names, quarantine_taint
from rules.api import writes as d
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
    """Why `write` must not be sent now; "" when it may. Harmless writes always may."""
    if not write.disruptive:
        return ""
    if (texts := policy.shadow_of(snapshot.policy)) is not None:
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
    if isinstance(write, SetRepairCondition | WriteRepairObject):
        return _repairs(write, node, snapshot)
    if isinstance(write, CreateTestJob):
        return _tests(write, node, snapshot)
    if node.ready == "Unknown":
        return "the node's kubelet is silent"
    note = quarantine_taint.read_note(node)
    if note is None:
        return "the node does not carry our taint and cordon"
    if isinstance(write, d.EvictPod) and write.session and write.session != note.session:
        return f"the node carries the taint and cordon of {note.session}"
    if quarantine_taint.quarantine_state(node, note.session) is not QuarantineState.INTACT:
        return "the taint and cordon on the node is not whole"
    session = snapshot.quarantines.get(note.session)
    if session is not None and session.status.boot_id not in {"", node.boot_id}:
        return "the node rebooted"
    return _open(session, node, snapshot) or _drains(session, node, snapshot)


def _repairs(
    write: SetRepairCondition | WriteRepairObject, node: NodeView, snapshot: FleetSnapshot
) -> str:
    """Whether a step may be asked for: the session has it on record, and nobody holds the node."""
    session = snapshot.quarantines.get(write.session)
    if refusal := _not_held(session, node, snapshot):
        return refusal
    assert session is not None
    attempt = ladder.under_way(session.status)
    if attempt is None or attempt.step != write.step:
        return "the step is not on record"
    if attempt.before.boot_id != node.boot_id:
        return "the node rebooted"
    return _drained(session, node, snapshot)


def _tests(write: CreateTestJob, node: NodeView, snapshot: FleetSnapshot) -> str:
    """Whether a test may begin: the session has it on record, no cause is back, nobody holds
    it.
    """
    if not write.session:
        return _tests_new(write, node, snapshot)
    session = snapshot.quarantines.get(write.session)
    if refusal := _not_held(session, node, snapshot):
        return refusal
    assert session is not None
    test = test_result.under_way(session.status)
    if session.status.phase != Phase.VALIDATING or test is None or test.object != write.name:
        return "the test is not on record"
    if test.boot_id != node.boot_id:
        return "the node rebooted"
    back = session.spec.causes and causes.holds_now(session, node, snapshot)
    return "a cause came back" if back else ""


def _not_held(session: QuarantineView | None, node: NodeView, snapshot: FleetSnapshot) -> str:
    """Why no step and no test begins on the node: its session is over, or an operator holds it."""
    refusal = _open(session, node, snapshot)
    if refusal or session is None:
        return refusal
    if quarantine_taint.quarantine_state(node, session.name) is not QuarantineState.INTACT:
        return "the taint and cordon on the node is not whole"
    held = session.spec.hold or names.ANNOTATION_HOLD in node.annotations
    return "an operator holds the node" if held else ""


def _tests_new(write: CreateTestJob, node: NodeView, snapshot: FleetSnapshot) -> str:
    """Why a new node may not be tested; "" where it may."""
    if not snapshot.policy.validate.tests_new_nodes:
        return "the policy tests no new nodes"
    if write.node_uid != node.uid:
        return "the node was replaced"
    if node.spec.unschedulable or node.ready != "True" or quarantine_taint.quarantined(node):
        return "the node takes no pods"
    if not observation.selects_node(snapshot.policy, node):
        return "the policy's nodeSelector does not select the node"
    taken = (s for s in snapshot.quarantines.values() if s.spec.node_name == node.name)
    return "the node is in quarantine" if any(map(observation.is_open, taken)) else ""


def _drained(session: QuarantineView, node: NodeView, snapshot: FleetSnapshot) -> str:
    if snapshot.policy.repair.mode == "Off":
        return "the policy repairs nothing"
    if not causes.drains_now(session, node, snapshot):
        return "none of its causes asks for a drained node any more"
    return ""


def _open(session: QuarantineView | None, node: NodeView, snapshot: FleetSnapshot) -> str:
    if session is None:
        return "its session is gone"
    if not observation.is_open(session) or session.spec.release is not None:
        return "its session has ended"
    if session.spec.node_uid not in {"", node.uid}:
        return "the node was replaced"
    if not causes.has_human(session) and not observation.selects_node(snapshot.policy, node):
        return "the policy's nodeSelector does not select the node"
    return ""


def _may_taint(session: QuarantineView | None, node: NodeView, snapshot: FleetSnapshot) -> str:
    """A first quarantine rests on causes; one that is put back, on the session alone."""
    if session is None or session.status.phase not in {"", Phase.PENDING}:
        return ""
    return (
        ""
        if causes.holds_now(session, node, snapshot)
        else "none of its causes asks for it any more"
    )


def _drains(session: QuarantineView | None, node: NodeView, snapshot: FleetSnapshot) -> str:
    """Evictions wait for their turn; the session and what it is allowed move on meanwhile."""
    if session is None or session.status.phase != Phase.DRAINING:
        return "its session does not drain any more"
    if not causes.drains_now(session, node, snapshot):
        return "none of its causes asks for a drain any more"
    return ""
