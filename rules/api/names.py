"""Names of labels, annotations, conditions and taints that gpuward uses.

Agent and remediator exchange only Kubernetes objects, and operators and tools select on these
names. Changing one is a breaking change.
"""

PREFIX = "gpuward.io"
GROUP = "gpuward.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

# Labels the agent writes on its own node.
LABEL_HEALTH = f"{PREFIX}/health"
LABEL_GPUS = f"{PREFIX}/gpus"
LABEL_GPUS_HEALTHY = f"{PREFIX}/gpus-healthy"
LABEL_INTERCONNECT = f"{PREFIX}/interconnect"
LABEL_NVLINK_DOMAIN = f"{PREFIX}/nvlink-domain"
LABEL_NUMA = f"{PREFIX}/numa"
LABEL_MIG = f"{PREFIX}/mig"
LABEL_PRODUCT = f"{PREFIX}/product"
LABEL_DRIVER = f"{PREFIX}/driver"
AGENT_LABELS = (
    LABEL_HEALTH,
    LABEL_GPUS,
    LABEL_GPUS_HEALTHY,
    LABEL_INTERCONNECT,
    LABEL_NVLINK_DOMAIN,
    LABEL_NUMA,
    LABEL_MIG,
    LABEL_PRODUCT,
    LABEL_DRIVER,
)

# Conditions the agent owns on its own node.
CONDITION_HEALTHY = "GPUHealthy"
CONDITION_DEGRADED = "GPUDegraded"

# The remediator's quarantine: taint, label and annotation set in one patch.
TAINT_QUARANTINE = f"{PREFIX}/quarantine"
LABEL_QUARANTINE = f"{PREFIX}/quarantine"
ANNOTATION_SESSION = f"{PREFIX}/session"

# Autoscaler annotations that a quarantine sets; ANNOTATION_SESSION has their prior values.
ANNOTATION_SCALE_DOWN_DISABLED = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
ANNOTATION_DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"

# Conditions by which the remediator requests the repair of a drained node.
CONDITION_NEEDS_RESET = "GPUNeedsReset"
CONDITION_NEEDS_RESTART = "GPUNeedsRestart"
CONDITION_NEEDS_REPLACE = "GPUNeedsReplace"
# The result of the last load test; a gate for new nodes may wait for it.
CONDITION_VALIDATED = "GPUValidated"
# The repair request, on every object that requests a repair.
ANNOTATION_REPAIR = f"{PREFIX}/repair"

# On a pod that a drain will evict: the earliest time, and the condition with the reason.
ANNOTATION_DRAIN_AT = f"{PREFIX}/drain-at"
CONDITION_DRAIN_PLANNED = f"{PREFIX}/DrainPlanned"

# Node conditions of Kubernetes that report a drain, and the reason with which gpuward sets them.
CONDITION_MAINTENANCE_PLANNED = "MaintenancePlanned"
CONDITION_DRAIN_IN_PROGRESS = "DrainInProgress"
CONDITION_DRAINED = "Drained"
DRAIN_CONDITIONS = (
    CONDITION_MAINTENANCE_PLANNED,
    CONDITION_DRAIN_IN_PROGRESS,
    CONDITION_DRAINED,
)
REASON_QUARANTINE = "GPUNodeQuarantine"
REASON_WITHDRAWN = "GPUNodeQuarantineOver"

# The labels that the remediator changed to free the GPUs, with their prior values.
ANNOTATION_MOVED = f"{PREFIX}/moved"

# The leader's own problems, on its Lease.
ANNOTATION_UNABLE = f"{PREFIX}/unable"
ANNOTATION_POLICY_UNREAD = f"{PREFIX}/policy-unread"
ANNOTATION_POLICY_LAST_GOOD = f"{PREFIX}/policy-last-good"

# Set by operators.
ANNOTATION_HOLD = f"{PREFIX}/hold"
ANNOTATION_REPAIRED = f"{PREFIX}/repaired"
ANNOTATION_EXPECTED_GPUS = f"{PREFIX}/expected-gpus"
ANNOTATION_RELEASE_GPU = f"{PREFIX}/release-gpu"
ANNOTATION_FABRIC_MODE = f"{PREFIX}/fabric-mode"
FABRIC_SHARED = "shared"
LABEL_OPT_OUT = f"{PREFIX}/opt-out"

# Set by the GPU Operator while it works on a node.
LABEL_DRIVER_UPGRADE = "nvidia.com/gpu-driver-upgrade-state"
DRIVER_UPGRADE_FAILED = "upgrade-failed"
DRIVER_UPGRADING = frozenset(
    {
        "cordon-required",
        "wait-for-jobs-required",
        "pod-deletion-required",
        "drain-required",
        "node-maintenance-required",
        "post-maintenance-required",
        "pod-restart-required",
        "validation-required",
        "uncordon-required",
    }
)
"""States of a driver upgrade between cordon and uncordon. `upgrade-required` comes before them,
`upgrade-done` and `upgrade-failed` after them. Source: GPU Operator."""
LABEL_MIG_STATE = "nvidia.com/mig.config.state"
MIG_CHANGING = frozenset({"pending", "rebooting"})
PREFIX_GPU_DEPLOY = "nvidia.com/gpu.deploy."
PAUSED = "paused-for-"
DEPLOYED = "true"
"""The value of such a label under which the operator's pods run on the node."""
PAUSED_BY_US = f"{PAUSED}gpuward"
"""Its value during a GPU reset by the remediator, which replaces only the value `true`."""

# Component names in Events, managedFields and user agents.
COMPONENT_AGENT = "gpuward-agent"
COMPONENT_REMEDIATOR = "gpuward-remediator"

# Values of `app.kubernetes.io/component`: pods that test a node under load, and that repair it.
COMPONENT_VALIDATE = "validate"
COMPONENT_RESET_GPU = "reset-gpu"
COMPONENT_RESTART_NODE = "restart-node"
