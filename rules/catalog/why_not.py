"""The reasons why a session is blocked, and the refusal of a step.

Budgets, permits, pauses, pods and the API server refuse steps. The session's conditions, the
command line and the page show the refusal. Each reason has a section in `docs/blocked.md` and a
remedy in `remediator/data/remedies.json`.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class WhyNot(StrEnum):
    """The reasons of condition Blocked."""

    API_BUSY = "ApiBusy"
    APPROVAL = "Approval"
    BUDGET = "Budget"
    BUDGET_EXPECTS_NO_PODS = "BudgetExpectsNoPods"
    BUDGET_FULL = "BudgetFull"
    BUDGET_NEVER_ALLOWS = "BudgetNeverAllows"
    BUDGET_STALE = "BudgetStale"
    BUDGET_SYNC_FAILED = "BudgetSyncFailed"
    CONTROL_PLANE = "ControlPlane"
    CORRELATED_CAUSE = "CorrelatedCause"
    DO_NOT_DISRUPT = "DoNotDisrupt"
    DRAIN_TIMEOUT = "DrainTimeout"
    EVICTION_IN_PROGRESS = "EvictionInProgress"
    EVICTION_REFUSED = "EvictionRefused"
    GANG_BUDGET = "GangBudget"
    GANG_WINDOW = "GangWindow"
    HOLD = "Hold"
    KUEUE_REPLACING = "KueueReplacing"
    TAINT_REFUSED = "MarkRefused"
    MAX_NEW = "MaxNew"
    MISSING_PERMISSION = "MissingPermission"
    MULTIPLE_BUDGETS = "MultipleBudgets"
    NAMESPACE_ENDING = "NamespaceEnding"
    NO_ANSWER = "NoAnswer"
    NO_CAPACITY = "NoCapacity"
    NODE_GONE = "NodeGone"
    NO_STEP_LEFT = "NoStepLeft"
    NODE_UNREACHABLE = "NodeUnreachable"
    NODE_UNREADABLE = "NodeUnreadable"
    NODES_DRAINING = "NodesDraining"
    NOT_SELECTED = "NotSelected"
    NVLINK_DOMAIN = "NVLinkDomain"
    NVLINK_DOMAIN_INCOMPLETE = "NVLinkDomainIncomplete"
    NVLINK_WITNESS = "NVLinkWitness"
    ONLY_NODE_OF_POOL = "OnlyNodeOfPool"
    OPT_OUT = "OptOut"
    OWN_NODE_HAND_OVER = "OwnNodeHandOver"
    OWN_NODE_LAST = "OwnNodeLast"
    PAUSED = "Paused"
    PER_REASON = "PerReason"
    POD_ARRIVED = "PodArrived"
    POD_RETURNS = "PodReturns"
    POD_STUCK = "PodStuck"
    POD_UNREADABLE = "PodUnreadable"
    POD_USES_GPU = "PodUsesGPU"
    PODS_NOT_LISTED = "PodsNotListed"
    POLICY_IS_SHADOW = "PolicyIsShadow"
    POLICY_OVERLAP = "PolicyOverlap"
    POLICY_UNREAD = "PolicyUnread"
    REPAIR_LIMIT = "RepairLimit"
    REPAIR_REFUSED = "RepairRefused"
    REPLACE = "Replace"
    SESSION_REFUSED = "SessionRefused"
    SESSION_UNREADABLE = "SessionUnreadable"
    STAND_DOWN = "StandDown"
    UNDONE_AGAIN = "UndoneAgain"
    UNEXPECTED_ERROR = "UnexpectedError"
    VALIDATION_FAILED = "ValidationFailed"
    VALIDATION_UNKNOWN = "ValidationUnknown"
    HEALTH_STATUS_STALE = "VerdictStale"
    VIEW_TOO_OLD = "ViewTooOld"
    WAIT_COMPLETED = "WaitCompleted"
    WAITING = "Waiting"
    WORKLOAD_UNHEALTHY = "WorkloadUnhealthy"


FLEET_WIDE: Final = frozenset(
    {
        WhyNot.BUDGET,
        WhyNot.CORRELATED_CAUSE,
        WhyNot.MAX_NEW,
        WhyNot.NODES_DRAINING,
        WhyNot.NVLINK_DOMAIN,
        WhyNot.PER_REASON,
        WhyNot.POLICY_IS_SHADOW,
        WhyNot.POLICY_UNREAD,
        WhyNot.VIEW_TOO_OLD,
    }
)
"""Reasons that concern the fleet: the same message applies to many nodes."""


def runbook(reason: str) -> str:
    """Return the section of the documentation that explains a reason."""
    return f"docs/blocked.md#{reason.lower()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The refusal of a step: its reason, a clause that explains it, and its subject."""

    reason: WhyNot
    why: str
    subject: str = ""
    """The PDB (`namespace/name`) that refuses; empty if none is involved."""
    owner: str = ""
    """The owner of the pod: `Deployment team-a/trainer`."""
    permanent: bool = False
    """Waiting does not help: an operator must act."""
    remedy: str = ""
    until: float | None = None
    """When the refusal expires or the step is retried, in seconds since the epoch."""
    since: float | None = None
    """For a refused write: since when it is refused, as far as this process knows."""
