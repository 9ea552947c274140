"""The ladder of repairs: its steps, where a recommended action begins, and which step is next.

Called by `rules.session.repair` for a node that is drained. A step is taken at most once per
session and at most so often per node in a window, counted from the session objects there are:
nothing is remembered elsewhere, so neither a restart nor a day forgets that it was tried.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from rules.catalog.reason import Action


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
    # These name no repair of one node that a machine could do: a person decides.
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
class Climb:
    """Where the ladder leads now. `rung` None: nowhere, and `passed` says why, step by step."""

    begins: Step | None = None
    """None: no cause recommends a repair that the ladder knows."""
    rung: Rung | None = None
    passed: tuple[tuple[Step, str], ...] = ()
    in_vain: bool = False
    """No rung is left because what could be tried has failed on this part before."""

    @property
    def clause(self) -> str:
        """Why there is no rung, for a sentence."""
        if self.begins is None:
            return "its causes recommend no repair that the ladder knows"
        return ", ".join(f"{step} {why}" for step, why in self.passed)


def begins_at(actions: Iterable[str]) -> Step | None:
    """The step that the gravest of the recommended actions asks for; unknown words ask for
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


def climb(
    begins: Step | None,
    *,
    adapters: Mapping[Step, str],
    taken: Collection[str],
    tried: Mapping[str, int],
    attempts: int,
    chosen: str = "",
    failed: Collection[str] = (),
    named: Mapping[str, int] = MappingProxyType({}),
    unfit: Mapping[str, str] = MappingProxyType({}),
) -> Climb:
    """The lowest step from `begins` on that may be taken, or the one that a person chose.

    What a person chose needs an adapter and is taken once, however often it was tried before.

    `adapters` names who takes a step; `taken` are the steps of this session, `tried` counts each
    step of this node in the window, this session's included, `attempts` bounds them. `failed` are
    steps that did not hold on this very part before: the ladder begins above them. `named` are
    the highest numbers that requests of this session have, so that no name comes twice.
    `unfit` says of steps why nobody can be asked for them here, whoever chose them.
    """

    def rung_of(step: Step) -> Rung:
        number = max(tried.get(step, 0), named.get(step, 0)) + 1
        return Rung(step=step, adapter=adapters[step], attempt=number)

    mine = (step for step in adapters if step == chosen and step not in taken)
    if (wanted := next((step for step in mine if step not in unfit), None)) is not None:
        return Climb(begins=wanted, rung=rung_of(wanted))
    if begins is None:
        return Climb()
    passed: list[tuple[Step, str]] = []
    for step in LADDER[begins.rank :]:
        if step in taken:
            passed.append((step, "was tried in this session"))
        elif step not in adapters:
            passed.append((step, "has no adapter"))
        elif step in unfit:
            passed.append((step, unfit[step]))
        elif step in failed:
            passed.append((step, "did not hold before"))
        elif tried.get(step, 0) >= attempts:
            times = "once" if attempts == 1 else f"{attempts} times"
            passed.append((step, f"was tried {times} lately"))
        else:
            return Climb(begins=begins, rung=rung_of(step), passed=tuple(passed))
    vain = any(step in failed and step in adapters for step, _ in passed)
    return Climb(begins=begins, passed=tuple(passed), in_vain=vain)
