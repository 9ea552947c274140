"""What would end each kind of waiting: one line per Blocked reason of the rules.

`kubectl gpuward why` prints it under what blocks a session. The long form of each line is the
page of the same name in `docs/runbooks/blocked/`; a test compares both with the rules.
"""

from __future__ import annotations

from typing import Final

_CONFIRM: Final = 'kubectl gpuward quarantine {node} --reason "..."'
_RELEASE: Final = 'kubectl gpuward release {node} --reason "..."'

_REMEDIES: Final = {
    "ApiBusy": "time: the API server limits the remediator; it is tried again by itself",
    "Approval": f"a person's decision: {_RELEASE}",
    "Budget": "a node that comes back (repair, release or uncordon one), or a larger "
    f"budget.maxUnavailable; this node first: {_CONFIRM}",
    "BudgetExpectsNoPods": "an integer minAvailable in that PDB, or no PDB for such pods",
    "BudgetFull": "one more healthy pod of that workload; it clears by itself, and often "
    "why its replacement is not Ready is the question",
    "BudgetNeverAllows": "one more replica, a PDB that allows one to be away, or the owner "
    "stopping the workload",
    "BudgetStale": "a minute; if it stays, the disruption controller does not run",
    "BudgetSyncFailed": "a PDB with an integer minAvailable, or a workload that has a scale",
    "ControlPlane": f"a person's decision: {_CONFIRM}",
    "CorrelatedCause": "repairing what the nodes share, then the breaker closes by itself; "
    f"this node anyway: {_CONFIRM}",
    "DoNotDisrupt": "time (see the limit), or the owner taking the annotation off the pod",
    "DrainTimeout": "the owners deleting the pods named here; evictions go on being tried",
    "EvictionInProgress": "time; if it stays, an admission webhook does not answer",
    "EvictionRefused": "the owner of the admission webhook that refuses",
    "GangBudget": "room for the whole gang in the budget, or the owner stopping the job",
    "GangWindow": "seconds: its gang mates are given a chance to be drained with it",
    "Hold": "kubectl gpuward unhold {node}",
    "KueueReplacing": "Kueue finding a replacement for the gang's last bad node",
    "MarkRefused": "whoever runs the admission policy or webhook named above letting "
    "gpuward-remediator patch nodes; it is tried again every 2 minutes at the latest",
    "MaxNew": f"time (budget.maxNew); one that is certain: {_CONFIRM}",
    "MissingPermission": "applying daemonset/base/remediator-rbac.yaml again",
    "MultipleBudgets": "all but one of these PDBs no longer selecting the pod",
    "NamespaceEnding": "the namespace's own end; a finalizer may hold it",
    "NoAnswer": "the API server answering; the eviction is tried again",
    "NoCapacity": "a free node that fits its pods",
    "NodeGone": "nothing: the node is gone",
    "NodeUnreachable": "the node's kubelet answering again, or the node leaving the cluster",
    "NodeUnreadable": "correcting the field of the Node named above, or updating gpuward",
    "NodesDraining": "another drain ending, or a larger limits.nodesDraining",
    "NotSelected": f"the policy's nodeSelector selecting it, or a person: {_CONFIRM}",
    "OnlyNodeOfPool": f"a second selected node in its pool, or a person: {_CONFIRM}",
    "OptOut": "the label taken off: kubectl label node {node} gpuward.io/opt-out-",
    "OwnNodeHandOver": "seconds: another replica takes over first",
    "OwnNodeLast": "the other drains ending: the remediator's own node goes last",
    "Paused": "kubectl gpuward resume",
    "PerReason": f"a person's word that the fault is real: {_CONFIRM}",
    "PodArrived": "a person deleting the pods named above, or their owner respecting the cordon",
    "PodReturns": "its owner respecting the cordon (no nodeName, no blanket toleration)",
    "PodStuck": "a reboot of the node where a process hangs, or a restart of its kubelet",
    "PodUnreadable": "moving the pod named above by hand, or updating gpuward",
    "PodsNotListed": "the API server listing the pods of the node again",
    "PolicyIsShadow": f"mode Enforce in the policy, or {_RELEASE}",
    "Replace": f"the hardware being replaced, then a person: {_RELEASE}",
    "SessionRefused": "whoever runs the admission policy or webhook named above, or applying daemonset/crds again",
    "SessionUnreadable": "correcting the field named above, or deleting the GPUQuarantine",
    "StandDown": "the other owner finishing its work on the node",
    "UnexpectedError": "a correction of gpuward, or of the object at fault: report it with a support "
    "bundle",
    "VerdictStale": "the agent seeing the GPUs again: see the health line above",
    "ViewTooOld": "the API server answering the list or watch named above; /readyz and the log of "
    "the remediator say the same",
    "WaitCompleted": "the job's own end, or the policy's maxWait",
    "Waiting": "whatever is named above",
    "WorkloadUnhealthy": "the workload becoming healthy, or unhealthyPodEvictionPolicy: "
    "AlwaysAllow in its PDB",
}


def ends_when(reason: str, node: str) -> str:
    """What would change it, for a person; "" for a word of a newer remediator."""
    return _REMEDIES.get(reason, "").format(node=node)


def known() -> frozenset[str]:
    """Every reason that has a line."""
    return frozenset(_REMEDIES)
