"""What of a fence has the right type and makes no sense: in the policy, and in an adapter.

Called by `rules.policy.repair_checks`. A power cycle fences only where its object says that the
power is off, and where it is known what ends the pods of the node then.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rules.policy.policy import Repair
from rules.repair.adapter import RepairAction
from rules.repair.ladder import Step
from rules.repair.shipped import ADAPTERS

Problem = tuple[str, str]
SHORTEST_S: Final = 60
"""Kubernetes itself calls a node unknown after 40 to 50 s without a word of its kubelet."""


def fence_problems(repair: Repair) -> Iterator[Problem]:
    """What is wrong with `repair.fence` beside the steps of the policy."""
    fence, wanted = repair.fence, repair.steps.get(Step.POWER_CYCLE)
    if fence is None:
        return
    if fence.after_s < SHORTEST_S:
        yield "repair.fence.after", f"must be at least {SHORTEST_S}s"
    action = repair.action(wanted.adapter, Step.POWER_CYCLE) if wanted is not None else None
    if action is None or action.fence is None:
        can = sorted(
            name
            for name, adapter in {**ADAPTERS, **repair.adapters}.items()
            if any(each.fence is not None for each in adapter.steps.values())
        )
        message = (
            "needs repair.steps.PowerCycle with an adapter whose object confirms that the power "
            f"is off: {', '.join(can)}"
        )
        yield "repair.fence", message
    elif action.fence.ends_pods is not None and not fence.out_of_service:
        adapter = wanted.adapter if wanted is not None else ""
        yield (
            "repair.fence.outOfService",
            f"must be true with {adapter}, which ends the pods of a node that it fenced",
        )


def fencing_problems(step: Step, action: RepairAction, path: str) -> Iterator[Problem]:
    """What is wrong with the fence of one action of an adapter."""
    fence = action.fence
    if fence is None:
        return
    if step is not Step.POWER_CYCLE:
        yield path, "is for PowerCycle only: nothing else makes sure that a node is off"
    if not fence.powered_off:
        yield f"{path}.poweredOff", "says nowhere what on the object tells that the power is off"
    if action.target is None or (action.patch is None and action.create is None):
        yield path, "needs a target that is patched or created, which says that the power is off"
    elif action.create is not None and fence.ends_pods is None:
        yield f"{path}.endsPods", "says nowhere how the new object ends the pods of the node"
    elif action.patch is not None and fence.ends_pods is not None:
        yield f"{path}.endsPods", "is for create only"
    elif action.patch is not None and action.withdraw.at != "Step":
        message = "keeps the power off for good; a fence is taken back with its step (at: Step)"
        yield path, message
