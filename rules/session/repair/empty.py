"""Whether a drained node is certainly empty of work on its GPUs, as the last lists show.

Asked before a repair step and before a test under load: either would end or spoil what runs there.
"""

from __future__ import annotations

from typing import Final

from rules.api.timestamps import parse_time
from rules.catalog.why_not import Refusal, WhyNot
from rules.session.case import Case

LISTS_FRESH_S: Final = 30.0
"""What ends or disturbs work rests on lists of pods no older than this."""


OWN_ENDS_S: Final = 120.0
"""How long after the end of a step or a test the pod of its Job may take to go before it is called
in the way: the grace of kubelet and Job controller, twice."""


def pods_in_the_way(case: Case, *, lost: bool = False) -> Refusal | None:
    """Pods that a list shows on the node, and that have to go first.

    Those of our own Jobs end by themselves: what is left of a step or test that ended a moment ago
    is waited for with a close look (`is_certain`), and on a node that is `lost`, that is with a
    silent kubelet after a step in vain, nobody could ever say that they ended.
    """
    plan = case.seen.plan
    if plan is None:
        return None
    ending = frozenset(plan.own_jobs if lost or _ended_lately(case) else ())
    using = [name for name in plan.using_gpus if name not in ending]
    if using:
        why = f"{', '.join(using[:3])} still uses a GPU of it"
        return Refusal(reason=WhyNot.POD_USES_GPU, why=why)
    if plan.arrived:
        why = f"{', '.join(plan.arrived[:3])} came past the scheduler"
        return Refusal(reason=WhyNot.POD_ARRIVED, why=why)
    return None


def is_certain(case: Case, *, lost: bool = False) -> bool:
    """Whether two fresh lists, `drain.settle` apart, show no such pod."""
    plan, settle_s = case.seen.plan, case.policy.drain.settle_s
    if plan is None or plan.listed_at is None:
        return False
    since = plan.others_clear_since if lost else plan.clear_since
    return (
        since is not None
        and plan.listed_at - since >= settle_s
        and case.now - plan.listed_at <= LISTS_FRESH_S
    )


def emptied_clause(case: Case) -> str:
    """What has to be seen before the node is certainly empty."""
    own = case.seen.plan.own_jobs if case.seen.plan is not None else ()
    return f"{own[0]} has ended" if own else "two lists show it empty"


def _ended_lately(case: Case) -> bool:
    repaired = [attempt.ended_at for attempt in case.status.repair]
    tested = [test.ended_at for test in case.status.validation]
    last = max((parse_time(at) or 0.0 for at in (*repaired, *tested)), default=0.0)
    return case.now - last <= OWN_ENDS_S
