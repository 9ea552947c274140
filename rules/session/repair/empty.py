"""Whether a drained node is certainly empty of work on its GPUs, as the last lists show.

Asked before a repair step and before a test under load: either would end or spoil what runs there.
"""

from __future__ import annotations

from typing import Final

from rules.catalog.why_not import Refusal, WhyNot
from rules.session.case import Case

LISTS_FRESH_S: Final = 30.0
"""What ends or disturbs work rests on lists of pods no older than this."""


def pods_in_the_way(case: Case) -> Refusal | None:
    """Pods that a list shows on the node, and that have to go first."""
    plan = case.seen.plan
    if plan is not None and plan.using_gpus:
        why = f"{', '.join(plan.using_gpus[:3])} still uses a GPU of it"
        return Refusal(reason=WhyNot.POD_USES_GPU, why=why)
    if plan is not None and plan.arrived:
        why = f"{', '.join(plan.arrived[:3])} came past the scheduler"
        return Refusal(reason=WhyNot.POD_ARRIVED, why=why)
    return None


def is_certain(case: Case) -> bool:
    """Whether two fresh lists, `drain.settle` apart, show no such pod."""
    plan, settle_s = case.seen.plan, case.policy.drain.settle_s
    return (
        plan is not None
        and plan.clear_since is not None
        and plan.listed_at is not None
        and plan.listed_at - plan.clear_since >= settle_s
        and case.now - plan.listed_at <= LISTS_FRESH_S
    )
