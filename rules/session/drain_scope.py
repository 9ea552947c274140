"""Decide which pods of a node a session evicts: holders of the accused GPUs, GPU pods, all pods.

A session records its scope when the drain begins. From then on the scope only widens: for a new
cause, a changed policy, or a repair step that stops more than the accused GPUs.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from rules.api.nodes import HealthView, QuarantineView
from rules.api.quarantine import Cause, DrainStatus
from rules.catalog.reason import Action, DrainScope
from rules.policy.policy import Policy
from rules.repair.adapter import RepairAction
from rules.repair.ladder import Step
from rules.session.repair import ladder

_FOR_THE_NODE: Final = frozenset(
    {
        Action.RESTART_NODE,
        Action.POWER_CYCLE,
        Action.REPLACE_NODE,
        Action.CHECK_MECHANICALS,
        Action.UPDATE_FIRMWARE,
    }
)
"""Recommended actions that stop every pod of the node."""
_RESETS_TOGETHER: Final = re.compile(r"\b(V100|A100|A800)\b")
"""Products before Hopper: behind NVSwitches they are reset together only. Source: nvidia-smi(1),
--gpu-reset."""
_NVSWITCH: Final = "nvswitch"
_GPU: Final = "GPU"


@dataclass(frozen=True, slots=True)
class ScopeChoice:
    """A scope; `why` is a clause, "" if the policy or its default asks for exactly this scope."""

    scope: DrainScope
    why: str = ""


def in_effect(
    session: QuarantineView, causes: Iterable[Cause], health: HealthView | None, policy: Policy
) -> ScopeChoice:
    """Return the scope of the session's drain: the recorded one, or a wider one of its causes.

    A session that isolates devices evicts their holders only.
    """
    causes = tuple(causes)
    wanted = max(
        (_of_cause(session, cause, health, policy) for cause in causes),
        key=lambda scope: scope.rank,
        default=DrainScope.HOLDERS,
    )
    choice = ScopeChoice(DrainScope.HOLDERS if session.status.devices else wanted)
    if choice.scope is DrainScope.HOLDERS and (why := no_single_gpu(session, causes, health)):
        choice = ScopeChoice(DrainScope.GPU_PODS, why)
    before = recorded(session.status.drain)
    return before if before is not None and before.scope >= choice.scope else choice


def accused_gpus(session: QuarantineView, health: HealthView | None) -> frozenset[str]:
    """Return the UUIDs of the GPUs that the session's causes name."""
    return frozenset(ladder.accused_by(session, health))


def repaired_part(
    session: QuarantineView, drain: DrainStatus | None, health: HealthView | None
) -> frozenset[str] | None:
    """Return the accused GPUs that are present if pods may use the node's other GPUs; None if the
    drain evicted all pods with GPUs.
    """
    drained = recorded(drain)
    if drained is None or drained.scope is not DrainScope.HOLDERS:
        return None
    present = {gpu.uuid for gpu in health.status.gpus} if health is not None else set()
    return accused_gpus(session, health) & present


def recorded(drain: DrainStatus | None) -> ScopeChoice | None:
    """Return the scope of a drain that has begun; None before. Older releases recorded none and
    emptied the node, and an unknown scope counts as the widest.
    """
    if drain is None or not (drain.started_at or drain.scope):
        return None
    known = drain.scope in list(DrainScope)
    return ScopeChoice(DrainScope(drain.scope) if known else DrainScope.NODE, drain.scope_reason)


def needed_by(step: Step, action: RepairAction | None) -> DrainScope:
    """Return the least scope that must be drained before the step."""
    if step is Step.RESET_GPU:
        by_name = action is not None and ladder.must_name(step, action)
        return DrainScope.HOLDERS if by_name else DrainScope.GPU_PODS
    return DrainScope.GPU_PODS if step is Step.RESTART_DRIVER else DrainScope.NODE


def _of_cause(
    session: QuarantineView, cause: Cause, health: HealthView | None, policy: Policy
) -> DrainScope:
    if cause.source == "Human":
        return DrainScope.NODE
    override = policy.reasons.get(cause.reason)
    chosen = override.drain_scope if override is not None else None
    if (chosen or policy.drain.scope) is not None:
        return chosen or policy.drain.scope or DrainScope.NODE
    asked = ladder.asked_for(session, (cause,), health, policy)
    return DrainScope.GPU_PODS if _FOR_THE_NODE.isdisjoint(asked) else DrainScope.NODE


def no_single_gpu(
    session: QuarantineView, causes: Iterable[Cause], health: HealthView | None
) -> str:
    """Return why the accused GPUs cannot be repaired while others are in use; "" if they can."""
    if health is None or not ladder.accused_by(session, health):
        return "no cause names a GPU that is present"
    ids = {cause.incident for cause in causes}
    mine = [incident for incident in health.status.incidents if incident.id in ids]
    if wide := next((each for each in mine if each.scope != _GPU), None):
        return f"{wide.reason[:63]} concerns more than one GPU"
    products = " ".join(gpu.product for gpu in health.status.gpus)
    switched = health.status.topology.interconnect == _NVSWITCH
    if switched and _RESETS_TOGETHER.search(products):
        return "GPUs of this generation behind NVSwitches can only be reset together"
    return ""
