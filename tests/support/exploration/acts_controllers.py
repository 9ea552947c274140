"""What every act of others is made of, and what controllers of others do to nodes."""

from collections.abc import Iterator
from typing import Any

from rules.api.names import ANNOTATION_SESSION
from tests.support.exploration.invariants import PRIOR_ANNOTATION, our_taint, owner_at_work
from tests.support.exploration.packing import INCIDENTS, NODES, Moment
from tests.support.exploration.state import (
    AUTOSCALER,
    KURED,
    Bundle,
    Ghost,
    HealthState,
    NodeState,
    PodState,
    State,
    open_sessions,
    session_view,
)

Act = tuple[str, int | None, State]
"""A label, the node it is about, the state after."""

NOW = Moment(0, False)
OWNER_GONE_S = 95
"""So long after an owner's work an operator's uncordon may be taken for the owner's: 60 s, and 90
s without a leader meanwhile."""
BOOT_S = 140
"""So long after a boot the driver manager may still uncordon."""
NEW_LEADER_S = 60
"""Longer than a new leader waits for anything it has to find out."""
KARPENTER_TAINT = ("karpenter.sh/disrupted", "")
AUTOSCALER_TAINT = ("ToBeDeletedByClusterAutoscaler", "")
KURED_ANNOTATION = ("weave.works/kured-reboot-in-progress", "now")
BOOTS = 3


def without(items: tuple[Any, ...], key: str) -> tuple[Any, ...]:
    return tuple(item for item in items if item[0] != key)


def with_item(items: tuple[Any, ...], item: tuple[str, Any]) -> tuple[Any, ...]:
    return tuple(sorted((*without(items, item[0]), item)))


def is_quarantined(bundle: Bundle) -> bool:
    node = bundle.node
    return node is not None and (our_taint(node) or ANNOTATION_SESSION in dict(node.annotations))


def near_owner(bundle: Bundle) -> bool:
    assert bundle.node is not None
    left = bundle.ghost.owner_left
    return owner_at_work(bundle.node) or (left is not None and left.at >= -OWNER_GONE_S)


def operator_requested(state: State, index: int, *, doubtful: bool) -> State:
    """An operator requested that the node is in service."""
    bundle = state.bundles[index]
    state = state.with_ghost(index, excused=bundle.health.active, taken=False)
    known = {
        cause.incident
        for session in open_sessions(bundle, index)
        for cause in session_view(session, index, "1").spec.causes
    }
    about = tuple(n for n in range(INCIDENTS) if f"inc-{NODES[index]}-{n}" in known)
    return state if doubtful else state.with_ghost(index, request=NOW, about=about)


# ---------------------------------------------------------------------- faults and machines


def faults(state: State, index: int) -> Iterator[Act]:
    bundle = state.bundles[index]
    active = bundle.health.active
    for number in (0,):
        if number in active:
            rest = tuple(n for n in active if n != number)
            health = bundle.health._replace(active=rest)
            healed = state.with_bundle(index, health=health)
            yield f"fault {number} of {{}} is repaired", index, _healed(healed, index)
        else:
            health = bundle.health._replace(active=tuple(sorted((*active, number))))
            yield f"fault {number} appears on {{}}", index, state.with_bundle(index, health=health)


def _healed(state: State, index: int) -> State:
    bundle = state.bundles[index]
    return state if bundle.health.active else state.with_ghost(index, taken=False)


def second_fault(state: State, index: int) -> Iterator[Act]:
    bundle = state.bundles[index]
    if 1 not in bundle.health.active:
        active = tuple(sorted((*bundle.health.active, 1)))
        health = bundle.health._replace(active=active)
        state = state.with_bundle(index, health=health)
        yield "fault 1 appears on {}", index, state


def reboot(state: State, index: int) -> Iterator[Act]:
    node = state.bundles[index].node
    assert node is not None
    if node.boot < BOOTS:
        yield "{} reboots", index, _rebooted(state, index)


def _rebooted(state: State, index: int) -> State:
    node = state.bundles[index].node
    assert node is not None
    state = _overlaid(state.with_node(index, boot=node.boot + 1, back=NOW), index)
    return state.with_ghost(index, booted=NOW, uncordoned_since_boot=False)


def agent(state: State, index: int) -> Iterator[Act]:
    health = state.bundles[index].health
    verb = "falls silent" if health.alive else "speaks again"
    changed = health._replace(alive=not health.alive)
    yield f"the agent of {{}} {verb}", index, state.with_bundle(index, health=changed)


# ---------------------------------------------------------------------- foreign controllers


def driver_manager(state: State, index: int) -> Iterator[Act]:
    """Uncordons its node once after each boot, even if another client cordoned it."""
    bundle = state.bundles[index]
    node, ghost = bundle.node, bundle.ghost
    assert node is not None
    recent = ghost.booted is not None and ghost.booted.at >= -BOOT_S
    if ghost.booted and node.cordoned and recent and not ghost.uncordoned_since_boot:
        state = state.with_node(index, cordoned=False, managers=())
        state = state.with_ghost(index, cordoned_by="", uncordoned_since_boot=True)
        yield "the GPU driver manager uncordons {}", index, state


def karpenter(state: State, index: int) -> Iterator[Act]:
    node = state.bundles[index].node
    assert node is not None
    if KARPENTER_TAINT not in node.taints:
        taints = with_item(node.taints, KARPENTER_TAINT)
        yield "Karpenter taints {}", index, _begun(state.with_node(index, taints=taints), index)
        return
    if state.bundles[index].ghost.owner == "begun":
        return
    untainted = state.with_node(index, taints=without(node.taints, KARPENTER_TAINT[0]))
    yield "Karpenter gives up on {}", index, _left(untainted, index)


def node_deleted(state: State, index: int) -> Iterator[Act]:
    node = state.bundles[index].node
    assert node is not None
    if KARPENTER_TAINT in node.taints:
        yield "Karpenter deletes {}", index, _deleted(state, index)


def _begun(state: State, index: int) -> State:
    """An owner is at work; it takes some time, and gpuward may see it meanwhile."""
    ghost = state.bundles[index].ghost
    state = _overlaid(state, index)
    return state.with_ghost(index, owner=ghost.owner or "begun")


def _overlaid(state: State, index: int) -> State:
    """A request that gpuward has not processed yet cannot be distinguished from later changes."""
    if open_sessions(state.bundles[index], index):
        return state.with_ghost(index, request=None, about=())
    return state


def _left(state: State, index: int) -> State:
    """What an owner does that nobody saw at work looks like an operator's doing."""
    bundle = state.bundles[index]
    assert bundle.node is not None
    missed = bundle.ghost.owner == "missed"
    excused = bundle.health.active if missed else bundle.ghost.excused
    owner = bundle.ghost.owner if owner_at_work(bundle.node) else ""
    return state.with_ghost(index, owner=owner, owner_left=NOW, excused=excused)


def _deleted(state: State, index: int) -> State:
    pods = tuple(
        PodState(node=None, number=(pod.number + 1) % 8) if pod.node == index else pod
        for pod in state.pods
    )
    return state._replace(pods=pods).with_bundle(index, node=None, ghost=Ghost())


def namesake(state: State, index: int) -> Iterator[Act]:
    """A new machine registers under the old name."""
    bundle = state.bundles[index]
    if bundle.node is not None:
        return
    uid = 2
    if any(_node_uid(session, index) == uid for session in bundle.sessions):
        return
    node = NodeState(uid=uid, boot=1, back=NOW, annotations=(PRIOR_ANNOTATION,))
    ghost = Ghost(booted=NOW, uncordoned_since_boot=False)
    yield (
        "a new machine registers as {}",
        index,
        state.with_bundle(index, node=node, health=HealthState(boot=1), ghost=ghost),
    )


def _node_uid(session: Any, index: int) -> int:
    return int(session_view(session, index, "1").spec.node_uid[-1:] or 0)


def autoscaler(state: State, index: int) -> Iterator[Act]:
    """Cluster Autoscaler with --cordon-node-before-terminating."""
    bundle = state.bundles[index]
    node = bundle.node
    assert node is not None
    if AUTOSCALER_TAINT not in node.taints:
        state = state.with_node(index, taints=with_item(node.taints, AUTOSCALER_TAINT))
        if not node.cordoned:
            state = state.with_node(index, cordoned=True, managers=((AUTOSCALER, NOW),))
            state = state.with_ghost(index, cordoned_by=AUTOSCALER)
        yield "Cluster Autoscaler taints and cordons {}", index, _begun(state, index)
        return
    if bundle.ghost.owner == "begun":
        return
    state = state.with_node(index, taints=without(node.taints, AUTOSCALER_TAINT[0]))
    state = state.with_node(index, cordoned=False, managers=())
    state = state.with_ghost(index, cordoned_by="")
    yield "Cluster Autoscaler rolls back on {}", index, _left(state, index)


def kured(state: State, index: int) -> Iterator[Act]:
    """Annotates, cordons what is not cordoned, reboots, undoes what it did."""
    bundle = state.bundles[index]
    node, script = bundle.node, bundle.ghost.script
    assert node is not None
    if script == "" and node.boot < BOOTS:
        annotations = with_item(node.annotations, KURED_ANNOTATION)
        begun = _begun(state.with_node(index, annotations=annotations), index)
        if node.cordoned:
            yield "kured begins on {}", index, begun.with_ghost(index, script="kured")
        else:
            begun = begun.with_node(index, cordoned=True, managers=((KURED, NOW),))
            begun = begun.with_ghost(index, script="kured-cordoned", cordoned_by=KURED)
            yield "kured begins on {} and cordons it", index, begun
    elif script in {"kured", "kured-cordoned"}:
        state = _rebooted(state, index).with_ghost(index, script=f"{script}-booted")
        yield "kured reboots {}", index, state
    elif script.endswith("-booted") and bundle.ghost.owner != "begun":
        if script.startswith("kured-cordoned"):
            state = state.with_node(index, cordoned=False, managers=())
            state = state.with_ghost(index, cordoned_by="")
        node = state.bundles[index].node
        assert node is not None
        annotations = without(node.annotations, KURED_ANNOTATION[0])
        state = state.with_node(index, annotations=annotations).with_ghost(index, script="")
        yield "kured is done with {}", index, _left(state, index)
