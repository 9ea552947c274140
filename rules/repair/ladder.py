"""The repair ladder: its steps, the next step, and the proof that a step happened.

Called by `rules.session.repair` for a drained node. A step is taken at most once per session, and
its attempts per node within a window are limited. Attempts are counted from the session objects
alone, so that a restart loses none.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from rules.api.quarantine import RepairBefore
from rules.catalog.reason import Action
from rules.text import printable


class Step(StrEnum):
    """One kind of repair, from the least to the most disruptive."""

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
    # The drain ended peer traffic: a fault that persists needs a reset.
    Action.DRAIN_P2P: Step.RESET_GPU,
    Action.RESTART_FABRIC_MANAGER: Step.RESTART_DRIVER,
    Action.RESTART_NODE: Step.RESTART_NODE,
    Action.POWER_CYCLE: Step.POWER_CYCLE,
    Action.REPLACE_NODE: Step.REPLACE_NODE,
    # These actions have no automatic repair of one node: an operator decides.
    Action.INVESTIGATE: None,
    Action.RECOVER_IMEX_DOMAIN: None,
    Action.RUN_DIAGNOSTICS: None,
    Action.CHECK_MECHANICALS: None,
    Action.UPDATE_FIRMWARE: None,
}
"""The first step for each action that a cause may recommend; None without one."""
ENDS_BOOT: Final = frozenset({Step.RESTART_NODE, Step.POWER_CYCLE, Step.REPLACE_NODE})
"""Steps that end the boot of the node: its kernel log is lost and its kubelet stops reporting."""
AFTER_A_FAILED_TEST: Final = Action.RESTART_NODE
"""The action for a failed test under load. Not a reset: the agent found no fault, so its data
could not prove a reset; a new boot can be proven.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """The step to take, its adapter and the number of the attempt on this node."""

    step: Step
    adapter: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderPosition:
    """The next step. `rung` None: there is none, and `passed` has the reason for each step."""

    begins: Step | None = None
    """None if no cause recommends a step of the ladder."""
    rung: Rung | None = None
    passed: tuple[tuple[Step, str], ...] = ()

    @property
    def clause(self) -> str:
        """Why there is no next step, as a clause."""
        if self.begins is None:
            return "its causes recommend no step of the repair ladder"
        return ", ".join(f"{step} {why}" for step, why in self.passed)


def begins_at(actions: Iterable[str]) -> Step | None:
    """Return the highest first step of the recommended actions; unknown actions have none."""
    known = [_begin(action) for action in actions]
    return max((step for step in known if step), key=lambda step: step.rank, default=None)


def above(begins: Step | None, taken: Iterable[str]) -> Step | None:
    """Return the step after those that did not help: `begins`, or the one above the highest step
    of `taken`; the last step if there is none above.
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
    """Return the lowest step from `begins` on that may be taken, or the one that an operator
    chose.

    A chosen step needs an adapter and is taken once, regardless of earlier attempts.

    `adapters` has the adapter of each step, `taken` the steps of this session, and `tried` the
    attempts of each step on this node in the window, limited by `attempts`. `named` has the
    highest attempt number of each step in this session, so that request names stay unique. `unfit`
    has the steps that cannot be requested, with the reason.
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
            passed.append((step, f"was tried {times} recently"))
        else:
            return LadderPosition(begins=begins, rung=rung_of(step), passed=tuple(passed))
    return LadderPosition(begins=begins, passed=tuple(passed))


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The current state of the node after a step was requested, from Node and health status."""

    node_uid: str
    boot_id: str
    ready: str
    """Status of the Ready condition; "" without one."""
    old_heartbeat: bool
    """The kubelet's last heartbeat is older than the request."""
    stale: str
    """Why the health status is stale; "" if it is fresh."""
    without_agent: bool = False
    """No agent ever reported on the node: a new boot needs no health status."""
    serials: Mapping[str, str]
    """Serial number ("" if unknown) of each present GPU by UUID."""
    pending: bool
    """A reset is still needed: a row remap is pending, or the driver recommends an action."""
    causes: int
    """Number of active causes."""
    resets: frozenset[str]
    """UUIDs of the GPUs that were reset since the request, as the agent observed it; a load of the
    driver resets all."""
    expected_gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """Whether a step happened; `clause` has what was observed, or what is missing."""

    proven: bool
    clause: str


def prove(step: Step, before: RepairBefore, seen: Seen) -> Proof:
    """Return whether `step` happened between `before` and the current state."""
    return _PROOFS[step](before, seen)


def _missing(clause: str) -> Proof:
    return Proof(proven=False, clause=clause)


def _reset(before: RepairBefore, seen: Seen) -> Proof:
    if seen.stale:
        return _missing(seen.stale)
    if gone := [gpu.uuid for gpu in before.gpus if gpu.uuid not in seen.serials]:
        return _missing(f"GPU {gone[0][:64]} is missing")
    if seen.pending:
        return _missing("the driver still requests a reset")
    if seen.causes:
        return _missing("no reset closed its causes")
    accused = [gpu.uuid for gpu in before.gpus if gpu.accused]
    all_reset = bool(accused) and seen.resets.issuperset(accused)
    if not all_reset and not seen.resets.isdisjoint(accused):
        other = next(uuid for uuid in accused if uuid not in seen.resets)
        return _missing(f"no reset of GPU {other[:64]} was observed, only of others")
    how = "each accused GPU was reset" if all_reset else "no reset is pending"
    return Proof(proven=True, clause=f"{how}, its causes closed, all its GPUs are present")


def _restart_driver(before: RepairBefore, seen: Seen) -> Proof:
    if seen.stale:
        return _missing(seen.stale)
    loaded = bool(before.gpus) and seen.resets.issuperset(gpu.uuid for gpu in before.gpus)
    if not (loaded or _rebooted(before, seen)):
        return _missing("the driver was not reloaded")
    wanted = max(seen.expected_gpus, len(before.gpus))
    if len(seen.serials) < wanted:
        return _missing(f"{len(seen.serials)} of {wanted} GPUs are present")
    return Proof(
        proven=True,
        clause=f"the driver was reloaded with {printable.count(len(seen.serials), 'GPU')}",
    )


def _rebooted(before: RepairBefore, seen: Seen) -> bool:
    return bool(seen.boot_id) and bool(before.boot_id) and seen.boot_id != before.boot_id


def _restart_node(before: RepairBefore, seen: Seen) -> Proof:
    if not _rebooted(before, seen):
        return _missing("the node did not reboot")
    if seen.ready != "True":
        return _missing("the node rebooted and is not Ready")
    if seen.old_heartbeat:
        return _missing("the kubelet has not reported since")
    if seen.without_agent:
        return Proof(proven=True, clause="new boot and Ready")
    if seen.stale:
        return _missing(f"the node rebooted, but {seen.stale}")
    return Proof(proven=True, clause="new boot, Ready, and a health status of that boot")


def _replace(before: RepairBefore, seen: Seen) -> Proof:
    if seen.node_uid != before.node_uid:
        return Proof(proven=True, clause="the Node was replaced")
    if seen.stale:
        return _missing(seen.stale)
    accused = {gpu.serial for gpu in before.gpus if gpu.accused and gpu.serial}
    if not accused:
        return _missing("the Node was not replaced")
    if accused & set(seen.serials.values()):
        return _missing("the accused GPUs are still present")
    if len(seen.serials) < len(before.gpus):
        return _missing(f"{len(seen.serials)} of {len(before.gpus)} GPUs are present")
    return Proof(proven=True, clause="the accused GPUs were replaced")


_PROOFS: Final[Mapping[Step, Callable[[RepairBefore, Seen], Proof]]] = {
    Step.RESET_GPU: _reset,
    Step.RESTART_DRIVER: _restart_driver,
    Step.RESTART_NODE: _restart_node,
    Step.POWER_CYCLE: _restart_node,
    Step.REPLACE_NODE: _replace,
}
