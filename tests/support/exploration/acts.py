"""What others do to the small world: each act is a label and the state it leads to.

Foreign controllers follow their own procedure (`Ghost.script`); people and tenants do anything at
any time. Labels carry ``{}`` where the node's name goes, because states are kept up to a mirror.
"""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from rules.api.names import ANNOTATION_HOLD, TAINT_QUARANTINE
from rules.api.quarantine import QuarantineStatus, ReleaseRequest
from tests.support.exploration import acts_controllers as controllers
from tests.support.exploration.acts_controllers import (
    BOOT_S,
    NEW_LEADER_S,
    NOW,
    OWNER_GONE_S,
    Act,
    is_quarantined,
    near_owner,
    operator_requested,
    with_item,
    without,
)
from tests.support.exploration.invariants import our_taint
from tests.support.exploration.packing import OLDEST_S, later
from tests.support.exploration.state import (
    OPERATOR,
    Bundle,
    Memory,
    PodState,
    State,
    open_sessions,
    session_of,
    session_view,
    status_of,
)

# ---------------------------------------------------------------------- people


def operator_uncordons(state: State, index: int) -> Iterator[Act]:
    bundle = state.bundles[index]
    node, ghost = bundle.node, bundle.ghost
    assert node is not None
    if node.cordoned:
        # Right after a boot it may be the driver manager's doing, near an owner the owner's.
        doubtful = near_owner(bundle) or not ghost.uncordoned_since_boot
        changed = state.with_node(index, cordoned=False, managers=())
        changed = changed.with_ghost(index, cordoned_by="", uncordoned_since_boot=True)
        if is_quarantined(bundle):
            changed = operator_requested(changed, index, doubtful=doubtful)
        yield "an operator uncordons {}", index, changed


def operator_cordons(state: State, index: int) -> Iterator[Act]:
    node = state.bundles[index].node
    assert node is not None
    if not node.cordoned:
        changed = state.with_node(index, cordoned=True, managers=((OPERATOR, NOW),))
        yield "an operator cordons {}", index, changed.with_ghost(index, cordoned_by=OPERATOR)


def operator_untaints(state: State, index: int) -> Iterator[Act]:
    bundle = state.bundles[index]
    assert bundle.node is not None
    if our_taint(bundle.node):
        taints = without(bundle.node.taints, TAINT_QUARANTINE)
        changed = state.with_node(index, taints=taints)
        changed = operator_requested(changed, index, doubtful=near_owner(bundle))
        yield "an operator removes the taint of {}", index, changed


def operator_claims(state: State, index: int) -> Iterator[Act]:
    """``kubectl apply --server-side`` of a cordon: its managedFields entry carries no time."""
    node = state.bundles[index].node
    assert node is not None
    if not any(at is None for _, at in node.managers):
        managers = (*node.managers, (OPERATOR, None))
        changed = state.with_node(index, cordoned=True, managers=managers)
        changed = changed.with_ghost(index, cordoned_by=OPERATOR)
        yield "an operator applies a cordon to {} by server-side apply", index, changed


def operator_on_session(state: State, index: int) -> Iterator[Act]:
    bundle = state.bundles[index]
    for session in open_sessions(bundle, index):
        others = tuple(s for s in bundle.sessions if s.name != session.name)
        changed = state
        if bundle.node is not None:
            changed = operator_requested(state, index, doubtful=not is_quarantined(bundle))
        changed = changed.with_bundle(index, sessions=others)
        if bundle.lagging is None and state.leads:
            deleted = (*bundle.memory.deleted, session)
            changed = changed.with_memory(index, deleted=deleted)
        yield "an operator deletes the session of {}", index, changed
        view = session_view(session, index, "1")
        if view.spec.release is None:
            spec = msgspec.structs.replace(view.spec, release=ReleaseRequest(by="ada"))
            new = session_of(view.name, session.created, spec, view.status, index)
            changed = state.with_bundle(index, sessions=_replaced(bundle, new))
            if bundle.node is not None:
                changed = operator_requested(changed, index, doubtful=False)
            yield "an operator releases {}", index, changed


def operator_lowers(state: State, index: int) -> Iterator[Act]:
    bundle = state.bundles[index]
    for session in open_sessions(bundle, index):
        view = session_view(session, index, "1")
        if view.spec.level == "Drain":
            spec = msgspec.structs.replace(view.spec, level="Cordon")
            new = session_of(view.name, session.created, spec, view.status, index)
            changed = state.with_bundle(index, sessions=_replaced(bundle, new))
            yield "an operator sets the session of {} to Cordon", index, changed


def _replaced(bundle: Bundle, new: Any) -> tuple[Any, ...]:
    return tuple(new if s.name == new.name else s for s in bundle.sessions)


def operator_holds(state: State, index: int) -> Iterator[Act]:
    node = state.bundles[index].node
    assert node is not None
    held = ANNOTATION_HOLD in dict(node.annotations)
    if held:
        annotations = without(node.annotations, ANNOTATION_HOLD)
        yield "an operator unholds {}", index, state.with_node(index, annotations=annotations)
    else:
        annotations = with_item(node.annotations, (ANNOTATION_HOLD, "mine"))
        yield "an operator holds {}", index, state.with_node(index, annotations=annotations)


def pause(state: State) -> Iterator[Act]:
    verb = "resumes" if state.paused else "pauses"
    yield f"an operator {verb} everything", None, state._replace(paused=not state.paused)


def operator(state: State) -> Iterator[Act]:
    """Who writes the policy."""
    verb = "lifts the rule" if state.skips else "adds a rule"
    yield f"the operator {verb} that pods stay", None, state._replace(skips=not state.skips)


# ---------------------------------------------------------------------- tenants


def tenant_pdb(state: State) -> Iterator[Act]:
    for minimum in range(len(state.pods) + 1):
        if minimum != state.pdb_minimum:
            changed = state._replace(pdb_minimum=minimum)
            yield f"the tenant sets the PDB to minAvailable {minimum}", None, changed


def tenant_pods(state: State) -> Iterator[Act]:
    for slot, pod in enumerate(state.pods):
        for node in (0, 1):
            if pod.node != node and state.bundles[node].node is not None:
                moved = PodState(node=node, number=(pod.number + 1) % 8)
                pods = (*state.pods[:slot], moved, *state.pods[slot + 1 :])
                yield "the tenant binds a pod to {}", node, state._replace(pods=pods)


# ---------------------------------------------------------------------- our own surroundings


def lag(state: State, index: int) -> Iterator[Act]:
    """The leader's watch of a node and its sessions falls behind from now on."""
    bundle = state.bundles[index]
    if bundle.lagging is None:
        cached = (bundle.node, bundle.sessions)
        yield "the watch of {} lags", index, state.with_bundle(index, lagging=cached)


def leader_dies(state: State) -> Iterator[Act]:
    if state.leads:
        yield "the leader dies", None, without_leader(state)


def without_leader(state: State) -> State:
    for index in (0, 1):
        memory = Memory(active_at=NOW if state.bundles[index].memory.active_at else None)
        state = state.with_bundle(index, memory=memory)
    return state._replace(leads=False)


def taken_over(state: State, *, gangs_read: bool) -> State:
    for index, bundle in enumerate(state.bundles):
        state = state.with_memory(index, gangs_read=gangs_read)
        if any(_stands_down(status_of(s, index)) for s in open_sessions(bundle, index)):
            # That the owner is gone is news only now; what follows may still be its doing.
            state = state.with_ghost(index, owner_left=NOW)
    return state._replace(leads=True, took_over=NOW)


def _stands_down(status: QuarantineStatus) -> bool:
    return any(c.reason == "StandDown" and c.status == "True" for c in status.conditions)


def synced(state: State, index: int) -> State:
    """The watch delivers delayed events."""
    bundle = state.bundles[index]
    assert bundle.lagging is not None
    there = {session.name for session in bundle.sessions}
    cached = bundle._replace(sessions=bundle.lagging[1])
    gone = tuple(s for s in open_sessions(cached, index) if s.name not in there)
    deleted = (*bundle.memory.deleted, *gone) if state.leads else ()
    memory = bundle.memory._replace(deleted=deleted)
    return state.with_bundle(index, lagging=None, memory=memory)


CLOCK_S = 100


def clock(state: State) -> Iterator[Act]:
    """Everybody's clock steps, once: every stored moment is earlier or later than it was."""
    if not state.clock_jumped:
        for seconds in (CLOCK_S, -CLOCK_S):
            jumped = _shifted(state, seconds)._replace(clock_jumped=True)
            yield f"the clock steps by {seconds} s", None, jumped


def time_passes(state: State, seconds: int, cancel_expiry_s: float) -> State:
    """Kubelet, scheduler, agents and the clock move on."""
    state = _shifted(state, seconds)
    pods = list(state.pods)
    for slot, pod in enumerate(pods):
        if pod.leaving:
            pods[slot] = PodState(node=None, number=(pod.number + 1) % 8)
    for slot, pod in enumerate(pods):
        if pod.node is None:
            homes = [i for i in (slot % 2, 1 - slot % 2) if _takes_pods(state.bundles[i])]
            pods[slot] = pod._replace(node=homes[0] if homes else None)
    state = state._replace(pods=tuple(pods))
    for index, bundle in enumerate(state.bundles):
        # Every open session is checked each minute, so that none seems left alone meanwhile.
        active = bundle.memory.active_at
        active = NOW if active is not None and state.leads else active
        state = state.with_memory(index, asked=(), active_at=active)
        if bundle.node is not None and bundle.health.alive:
            health = bundle.health._replace(boot=bundle.node.boot)
            state = state.with_bundle(index, health=health)
        ghost = bundle.ghost
        if ghost.owner == "begun":
            state = state.with_ghost(index, owner="seen" if state.leads else "missed")
        heeded = not open_sessions(bundle, index)
        if heeded and ghost.request is not None and ghost.request.at <= -cancel_expiry_s:
            state = state.with_ghost(index, request=None, about=(), excused=())
        if ghost.booted is not None and ghost.booted.at < -BOOT_S:
            state = state.with_ghost(index, booted=None)
        if ghost.owner_left is not None and ghost.owner_left.at < -OWNER_GONE_S:
            state = state.with_ghost(index, owner_left=None)
    return state


def _shifted(state: State, seconds: int) -> State:
    first, second = (later(bundle, seconds) for bundle in state.bundles)
    took_over = later(state.took_over, seconds)
    if took_over.at < -NEW_LEADER_S:
        took_over = took_over._replace(at=-OLDEST_S)
    return state._replace(bundles=(first, second), took_over=took_over)


def _takes_pods(bundle: Bundle) -> bool:
    node = bundle.node
    return node is not None and not node.cordoned and not node.taints


PER_NODE: dict[str, Callable[[State, int], Iterator[Act]]] = {
    "faults": controllers.faults,
    "second fault": controllers.second_fault,
    "reboot": controllers.reboot,
    "agent": controllers.agent,
    "driver manager": controllers.driver_manager,
    "karpenter": controllers.karpenter,
    "namesake": controllers.namesake,
    "autoscaler": controllers.autoscaler,
    "kured": controllers.kured,
    "node deleted": controllers.node_deleted,
    "operator uncordons": operator_uncordons,
    "operator cordons": operator_cordons,
    "operator untaints": operator_untaints,
    "operator claims": operator_claims,
    "operator's session": operator_on_session,
    "operator lowers": operator_lowers,
    "operator holds": operator_holds,
    "lag": lag,
}
FOR_ALL: dict[str, Callable[[State], Iterator[Act]]] = {
    "pause": pause,
    "operator": operator,
    "tenant's PDB": tenant_pdb,
    "tenant's pods": tenant_pods,
    "leader": leader_dies,
    "clock": clock,
}


def acts(state: State, actors: frozenset[str]) -> Iterator[Act]:
    """Everything that somebody else may do now."""
    for name, act in PER_NODE.items():
        for index, bundle in enumerate(state.bundles):
            if name in actors and (bundle.node is not None or name in {"namesake", "lag"}):
                yield from act(state, index)
    for name, act_on_all in FOR_ALL.items():
        if name in actors:
            yield from act_on_all(state)
