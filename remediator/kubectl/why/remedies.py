"""What would end each kind of waiting: one line per reason of `rules.catalog.why_not`.

`kubectl gpuward why` prints it under what blocks a session. The long form of each line is the
page of the same name in `docs/runbooks/blocked/`; a test compares both with the reasons.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from rules.catalog.why_not import WhyNot


class Remedy(NamedTuple):
    """What ends a wait, and the command that does, with `{node}` for the node; either may be
    "".
    """

    words: str
    command: str = ""


_CONFIRM: Final = 'kubectl gpuward quarantine {node} --reason "..."'
_RELEASE: Final = 'kubectl gpuward release {node} --reason "..."'

REMEDIES: Final = {
    WhyNot.API_BUSY: Remedy(
        "time: the API server limits the remediator; it is tried again by itself"
    ),
    WhyNot.APPROVAL: Remedy("a person's decision", _RELEASE),
    WhyNot.BUDGET: Remedy(
        "a node that comes back (repair, release or uncordon one), or a larger "
        "budget.maxUnavailable; this node first",
        _CONFIRM,
    ),
    WhyNot.BUDGET_EXPECTS_NO_PODS: Remedy(
        "an integer minAvailable in that PDB, or no PDB for such pods"
    ),
    WhyNot.BUDGET_FULL: Remedy(
        "one more healthy pod of that workload; it clears by itself, and often why its "
        "replacement is not Ready is the question"
    ),
    WhyNot.BUDGET_NEVER_ALLOWS: Remedy(
        "one more replica, a PDB that allows one to be away, or the owner stopping the workload"
    ),
    WhyNot.BUDGET_STALE: Remedy("a minute; if it stays, the disruption controller does not run"),
    WhyNot.BUDGET_SYNC_FAILED: Remedy(
        "a PDB with an integer minAvailable, or a workload that has a scale"
    ),
    WhyNot.CONTROL_PLANE: Remedy("a person's decision", _CONFIRM),
    WhyNot.CORRELATED_CAUSE: Remedy(
        "repairing what the nodes share, then the breaker closes by itself; this node anyway",
        _CONFIRM,
    ),
    WhyNot.DO_NOT_DISRUPT: Remedy(
        "time (see the limit), or the owner taking the annotation off the pod"
    ),
    WhyNot.DRAIN_TIMEOUT: Remedy(
        "the owners deleting the pods named here; evictions go on being tried"
    ),
    WhyNot.EVICTION_IN_PROGRESS: Remedy("time; if it stays, an admission webhook does not answer"),
    WhyNot.EVICTION_REFUSED: Remedy("the owner of the admission webhook that refuses"),
    WhyNot.GANG_BUDGET: Remedy(
        "room for the whole gang in the budget, or the owner stopping the job"
    ),
    WhyNot.GANG_WINDOW: Remedy("seconds: its gang mates are given a chance to be drained with it"),
    WhyNot.HOLD: Remedy("", "kubectl gpuward unhold {node}"),
    WhyNot.KUEUE_REPLACING: Remedy("Kueue finding a replacement for the gang's last bad node"),
    WhyNot.MARK_REFUSED: Remedy(
        "whoever runs the admission policy or webhook named above letting gpuward-remediator "
        "patch nodes; it is tried again every 2 minutes at the latest"
    ),
    WhyNot.MAX_NEW: Remedy("time (budget.maxNew); one that is certain", _CONFIRM),
    WhyNot.MISSING_PERMISSION: Remedy("applying daemonset/base/remediator-rbac.yaml again"),
    WhyNot.MULTIPLE_BUDGETS: Remedy("all but one of these PDBs no longer selecting the pod"),
    WhyNot.NAMESPACE_ENDING: Remedy("the namespace's own end; a finalizer may hold it"),
    WhyNot.NO_ANSWER: Remedy("the API server answering; the eviction is tried again"),
    WhyNot.NO_CAPACITY: Remedy("a free node that fits its pods"),
    WhyNot.NO_STEP_LEFT: Remedy(
        "a person repairing it", 'kubectl gpuward repaired {node} --reason "..."'
    ),
    WhyNot.NODE_GONE: Remedy("nothing: the node is gone"),
    WhyNot.NODE_UNREACHABLE: Remedy(
        "the node's kubelet answering again, or the node leaving the cluster"
    ),
    WhyNot.NODE_UNREADABLE: Remedy(
        "correcting the field of the Node named above, or updating gpuward"
    ),
    WhyNot.NODES_DRAINING: Remedy("another drain ending, or a larger limits.nodesDraining"),
    WhyNot.NOT_SELECTED: Remedy("the policy's nodeSelector selecting it, or a person", _CONFIRM),
    WhyNot.ONLY_NODE_OF_POOL: Remedy("a second selected node in its pool, or a person", _CONFIRM),
    WhyNot.OPT_OUT: Remedy("the label taken off", "kubectl label node {node} gpuward.io/opt-out-"),
    WhyNot.OWN_NODE_HAND_OVER: Remedy("seconds: another replica takes over first"),
    WhyNot.OWN_NODE_LAST: Remedy("the other drains ending: the remediator's own node goes last"),
    WhyNot.PAUSED: Remedy("", "kubectl gpuward resume"),
    WhyNot.PER_REASON: Remedy("a person's word that the fault is real", _CONFIRM),
    WhyNot.POD_ARRIVED: Remedy(
        "a person deleting the pods named above, or their owner respecting the cordon"
    ),
    WhyNot.POD_RETURNS: Remedy(
        "its owner respecting the cordon (no nodeName, no blanket toleration)"
    ),
    WhyNot.POD_STUCK: Remedy(
        "a reboot of the node where a process hangs, or a restart of its kubelet"
    ),
    WhyNot.POD_UNREADABLE: Remedy("moving the pod named above by hand, or updating gpuward"),
    WhyNot.POD_USES_GPU: Remedy("the pods named above leaving the node"),
    WhyNot.PODS_NOT_LISTED: Remedy("the API server listing the pods of the node again"),
    WhyNot.POLICY_IS_SHADOW: Remedy("mode Enforce in the policy, or", _RELEASE),
    WhyNot.REPAIR_LIMIT: Remedy("another repair ending, or a larger repair.concurrent"),
    WhyNot.REPAIR_REFUSED: Remedy(
        "what the adapter of the step needs, named above; or another step, let go by a person",
        "kubectl gpuward repair {node} --step STEP",
    ),
    WhyNot.REPLACE: Remedy("the hardware being replaced, then a person", _RELEASE),
    WhyNot.SESSION_REFUSED: Remedy(
        "whoever runs the admission policy or webhook named above, or applying daemonset/crds "
        "again"
    ),
    WhyNot.SESSION_UNREADABLE: Remedy(
        "correcting the field named above, or deleting the GPUQuarantine"
    ),
    WhyNot.STAND_DOWN: Remedy("the other owner finishing its work on the node"),
    WhyNot.UNEXPECTED_ERROR: Remedy(
        "a correction of gpuward, or of the object at fault: report it with a support bundle"
    ),
    WhyNot.VALIDATION_FAILED: Remedy(
        "a repair by hand: after its next boot the node is tested again; as it is", _RELEASE
    ),
    WhyNot.VALIDATION_UNKNOWN: Remedy(
        "a person who repairs what kept the test from running and reboots the node, or, untested",
        _RELEASE,
    ),
    WhyNot.VERDICT_STALE: Remedy("the agent seeing the GPUs again: see the health line above"),
    WhyNot.VIEW_TOO_OLD: Remedy(
        "the API server answering the list or watch named above; /readyz and the log of the "
        "remediator say the same"
    ),
    WhyNot.WAIT_COMPLETED: Remedy("the job's own end, or the policy's maxWait"),
    WhyNot.WAITING: Remedy("whatever is named above"),
    WhyNot.WORKLOAD_UNHEALTHY: Remedy(
        "the workload becoming healthy, or unhealthyPodEvictionPolicy: AlwaysAllow in its PDB"
    ),
}
