"""Whether a step really happened: a pure function of what was before it and what is seen after.

Never by the word of whoever was asked: a finished Job, a Complete condition or a Ready node with
the old boot prove nothing. Called by `rules.session.repair` at every decision while a step runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from rules.api.quarantine import RepairBefore
from rules.repair.ladder import Step
from rules.text.printable import count


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The node after a step was asked for, as Node object and verdict say it now."""

    node_uid: str
    boot_id: str
    ready: str
    """Status of the Ready condition; "" where there is none."""
    old_heartbeat: bool
    """The kubelet's last word about Ready is older than the request."""
    stale: str
    """Why the verdict cannot be believed; "" when it is of this boot and alive."""
    serials: Mapping[str, str]
    """Serial number ("" where unknown) by UUID of each GPU there is."""
    pending: bool
    """A reset is still asked for: a remap waits, or the driver recommends an action."""
    causes: int
    """How many causes hold."""
    resets: frozenset[str]
    """UUIDs of the GPUs whose reset the agent saw since the step was asked for; a load of the
    driver is a reset of all."""
    expected_gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """`clause` says what was seen, or, where nothing is proven, what is missing."""

    proven: bool
    clause: str


def prove(step: Step, before: RepairBefore, seen: Seen) -> Proof:
    """Whether `step` has happened between `before` and what is seen now."""
    return _PROOFS[step](before, seen)


def _missing(clause: str) -> Proof:
    return Proof(proven=False, clause=clause)


def _reset(before: RepairBefore, seen: Seen) -> Proof:
    if seen.stale:
        return _missing(seen.stale)
    if gone := [gpu.uuid for gpu in before.gpus if gpu.uuid not in seen.serials]:
        return _missing(f"GPU {gone[0][:64]} is not there")
    if seen.pending:
        return _missing("the driver still asks for a reset")
    if seen.causes:
        return _missing("no reset that closes its causes was seen")
    accused = [gpu.uuid for gpu in before.gpus if gpu.accused]
    whole = bool(accused) and seen.resets.issuperset(accused)
    if not whole and not seen.resets.isdisjoint(accused):
        other = next(uuid for uuid in accused if uuid not in seen.resets)
        return _missing(f"no reset of GPU {other[:64]} was seen, only of others")
    how = "a reset of each GPU accused was seen" if whole else "nothing is pending any more"
    return Proof(proven=True, clause=f"{how}, its causes closed, all its GPUs are there")


def _restart_driver(before: RepairBefore, seen: Seen) -> Proof:
    if seen.stale:
        return _missing(seen.stale)
    loaded = bool(before.gpus) and seen.resets.issuperset(gpu.uuid for gpu in before.gpus)
    if not (loaded or _rebooted(before, seen)):
        return _missing("no new load of the driver was seen")
    wanted = max(seen.expected_gpus, len(before.gpus))
    if len(seen.serials) < wanted:
        return _missing(f"{len(seen.serials)} of {wanted} GPUs are there")
    return Proof(
        proven=True, clause=f"the driver loaded anew with {count(len(seen.serials), 'GPU')}"
    )


def _rebooted(before: RepairBefore, seen: Seen) -> bool:
    return bool(seen.boot_id) and bool(before.boot_id) and seen.boot_id != before.boot_id


def _restart_node(before: RepairBefore, seen: Seen) -> Proof:
    if not _rebooted(before, seen):
        return _missing("the node runs the boot of before")
    if seen.ready != "True":
        return _missing("the node booted anew and is not Ready")
    if seen.old_heartbeat:
        return _missing("the kubelet's last word is from before")
    if seen.stale:
        return _missing(f"the node booted anew, but {seen.stale}")
    return Proof(proven=True, clause="new boot, Ready, and a verdict of that boot")


def _replace(before: RepairBefore, seen: Seen) -> Proof:
    if seen.node_uid != before.node_uid:
        return Proof(proven=True, clause="the Node is another one")
    if seen.stale:
        return _missing(seen.stale)
    accused = {gpu.serial for gpu in before.gpus if gpu.accused and gpu.serial}
    if not accused:
        return _missing("the Node is the one of before")
    if accused & set(seen.serials.values()):
        return _missing("the GPUs accused are still there")
    if len(seen.serials) < len(before.gpus):
        return _missing(f"{len(seen.serials)} of {len(before.gpus)} GPUs are there")
    return Proof(proven=True, clause="the GPUs accused were exchanged")


_PROOFS: Final[Mapping[Step, Callable[[RepairBefore, Seen], Proof]]] = {
    Step.RESET_GPU: _reset,
    Step.RESTART_DRIVER: _restart_driver,
    Step.RESTART_NODE: _restart_node,
    Step.POWER_CYCLE: _restart_node,
    Step.REPLACE_NODE: _replace,
}
