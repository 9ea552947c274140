"""The ladder of repairs: its steps, which one is next, and the proof that a step happened.

Called by `rules.session.repair` for a node that is drained. A step is taken at most once per
session and at most so often per node in a window, counted from the session objects there are:
nothing is remembered elsewhere, so neither a restart nor a day forgets that it was tried.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from rules.api.quarantine import RepairBefore
from rules.catalog.reason import Action
from rules.text import printable


class Step(StrEnum):
    """One kind of repair, from the least to the most that is lost by it."""

    RESET_GPU = "ResetGPU"
    RESTART_DRIVER = "RestartDriver"
    RESTART_NODE = "RestartNode"
    POWER_CYCLE = "PowerCycle"
    REPLACE_NODE = "ReplaceNode"

    @property
    def rank(self) -> int:
        """Position from the lowest rung."""
        return LADDER.index(self)


LADDER: Final = tuple(Step)
BEGINS: Final[Mapping[Action, Step | None]] = {
    Action.NONE: None,
    Action.RESTART_APP: None,
    Action.RESET_GPU: Step.RESET_GPU,
    # Peer traffic ended with the drain: what still holds after that takes a reset.
    Action.DRAIN_P2P: Step.RESET_GPU,
    Action.RESTART_FABRIC_MANAGER: Step.RESTART_DRIVER,
    Action.RESTART_NODE: Step.RESTART_NODE,
    Action.POWER_CYCLE: Step.POWER_CYCLE,
    Action.REPLACE_NODE: Step.REPLACE_NODE,
    # These name no repair of one node that a machine could do: an operator decides.
    Action.INVESTIGATE: None,
    Action.RECOVER_IMEX_DOMAIN: None,
    Action.RUN_DIAGNOSTICS: None,
    Action.CHECK_MECHANICALS: None,
    Action.UPDATE_FIRMWARE: None,
}
"""Where the ladder begins for each action that a cause may recommend; None: nowhere."""
ENDS_BOOT: Final = frozenset({Step.RESTART_NODE, Step.POWER_CYCLE, Step.REPLACE_NODE})
"""Steps that end the boot of the node: its kernel log goes, and its kubelet falls silent."""
AFTER_A_FAILED_TEST: Final = Action.RESTART_NODE
"""What a failed test under load asks for. Not a reset: the agent saw nothing wrong, so nothing
that it sees afterwards could prove that one happened; a new boot can be proven.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """The step to take, who takes it, and the how-manieth time it is for this node."""

    step: Step
    adapter: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderPosition:
    """Where the ladder leads now. `rung` None: nowhere, and `passed` says why, step by step."""

    begins: Step | None = None
    """None: no cause recommends a repair that the ladder knows."""
    rung: Rung | None = None
    passed: tuple[tuple[Step, str], ...] = ()

    @property
    def clause(self) -> str:
        """Why there is no rung, for a sentence."""
        if self.begins is None:
            return "its causes recommend no repair that the ladder knows"
        return ", ".join(f"{step} {why}" for step, why in self.passed)


def begins_at(actions: Iterable[str]) -> Step | None:
    """The step that the most severe of the recommended actions asks for; unknown words ask for
    none.
    """
    known = [_begin(action) for action in actions]
    return max((step for step in known if step), key=lambda step: step.rank, default=None)


def above(begins: Step | None, taken: Iterable[str]) -> Step | None:
    """Where to go on when what was taken did not help: at `begins`, or above the highest step of
    `taken`, the last step standing for what would be above it.
    """
    ranks = [step.rank + 1 for step in LADDER if step in set(taken)]
    rank = max([begins.rank if begins is not None else 0, *ranks])
    return LADDER[min(rank, len(LADDER) - 1)]


def _begin(action: str) -> Step | None:
    try:
        return BEGINS[Action(action)]
    except ValueError:
        return None


def next_rung(
    begins: Step | None,
    *,
    adapters: Mapping[Step, str],
    taken: Collection[str],
    tried: Mapping[str, int],
    attempts: int,
    chosen: str,
    named: Mapping[str, int],
    unfit: Mapping[str, str],
) -> LadderPosition:
    """The lowest step from `begins` on that may be taken, or the one that an operator chose.

    What an operator chose needs an adapter and is taken once, however often it was tried before.

    `adapters` names who takes a step; `taken` are the steps of this session, `tried` counts each
    step of this node in the window, this session's included, `attempts` bounds them. `named` are
    the highest numbers that requests of this session have, so that no name comes twice.
    `unfit` says of steps why nobody can be asked for them here, whoever chose them.
    """

    def rung_of(step: Step) -> Rung:
        number = max(tried.get(step, 0), named.get(step, 0)) + 1
        return Rung(step=step, adapter=adapters[step], attempt=number)

    mine = (step for step in adapters if step == chosen and step not in taken)
    if (wanted := next((step for step in mine if step not in unfit), None)) is not None:
        return LadderPosition(begins=wanted, rung=rung_of(wanted))
    if begins is None:
        return LadderPosition()
    passed: list[tuple[Step, str]] = []
    for step in LADDER[begins.rank :]:
        if step in taken:
            passed.append((step, "was tried in this session"))
        elif step not in adapters:
            passed.append((step, "has no adapter"))
        elif step in unfit:
            passed.append((step, unfit[step]))
        elif tried.get(step, 0) >= attempts:
            times = "once" if attempts == 1 else f"{attempts} times"
            passed.append((step, f"was tried {times} lately"))
        else:
            return LadderPosition(begins=begins, rung=rung_of(step), passed=tuple(passed))
    return LadderPosition(begins=begins, passed=tuple(passed))


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The node after a step was asked for, as Node object and health status say it now."""

    node_uid: str
    boot_id: str
    ready: str
    """Status of the Ready condition; "" where there is none."""
    old_heartbeat: bool
    """The kubelet's last word about Ready is older than the request."""
    stale: str
    """Why the health status cannot be believed; "" when it is of this boot and alive."""
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
        proven=True,
        clause=f"the driver loaded again with {printable.count(len(seen.serials), 'GPU')}",
    )


def _rebooted(before: RepairBefore, seen: Seen) -> bool:
    return bool(seen.boot_id) and bool(before.boot_id) and seen.boot_id != before.boot_id


def _restart_node(before: RepairBefore, seen: Seen) -> Proof:
    if not _rebooted(before, seen):
        return _missing("the node runs the boot of before")
    if seen.ready != "True":
        return _missing("the node booted again and is not Ready")
    if seen.old_heartbeat:
        return _missing("the kubelet's last word is from before")
    if seen.stale:
        return _missing(f"the node booted again, but {seen.stale}")
    return Proof(proven=True, clause="new boot, Ready, and a health status of that boot")


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
