"""The names gpuward writes on Kubernetes objects, spelled once.

Agent and remediator exchange nothing but Kubernetes objects, so these strings are the contract
between them and with every operator and tool that selects on them. Changing one is a breaking
change.
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

# Autoscaler annotations inside the taint and cordon; their prior values travel in
# ANNOTATION_SESSION.
ANNOTATION_SCALE_DOWN_DISABLED = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
ANNOTATION_DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"

# What the remediator writes on a drained node to ask others for its repair.
CONDITION_NEEDS_RESET = "GPUNeedsReset"
CONDITION_NEEDS_RESTART = "GPUNeedsRestart"
CONDITION_NEEDS_REPLACE = "GPUNeedsReplace"
# What its last test under load came to; a gate for new nodes may wait for it.
CONDITION_VALIDATED = "GPUValidated"
# On every object through which a repair is asked for: which request it is.
ANNOTATION_REPAIR = f"{PREFIX}/repair"

# Kubernetes' own: whoever sets it says that the node is off, and its pods end without it.
# Beside the labels by which the remediator moved others off the GPUs: which, and their values.
ANNOTATION_MOVED = f"{PREFIX}/moved"

# What the remediator that leads says of itself on its Lease, for whoever waits for it.
ANNOTATION_UNABLE = f"{PREFIX}/unable"
ANNOTATION_POLICY_UNREAD = f"{PREFIX}/policy-unread"
ANNOTATION_POLICY_LAST_GOOD = f"{PREFIX}/policy-last-good"

# What people write.
ANNOTATION_HOLD = f"{PREFIX}/hold"
ANNOTATION_REPAIRED = f"{PREFIX}/repaired"
ANNOTATION_EXPECTED_GPUS = f"{PREFIX}/expected-gpus"
ANNOTATION_RELEASE_GPU = f"{PREFIX}/release-gpu"
ANNOTATION_FABRIC_MODE = f"{PREFIX}/fabric-mode"
FABRIC_SHARED = "shared"
LABEL_OPT_OUT = f"{PREFIX}/opt-out"

# What the GPU Operator writes on nodes while it works on them.
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
"""States of the driver upgrade from cordon to uncordon. `upgrade-required` only announces one,
`upgrade-done` and `upgrade-failed` are over. Source: GPU Operator."""
LABEL_MIG_STATE = "nvidia.com/mig.config.state"
MIG_CHANGING = frozenset({"pending", "rebooting"})
PREFIX_GPU_DEPLOY = "nvidia.com/gpu.deploy."
PAUSED = "paused-for-"
DEPLOYED = "true"
"""The value of such a label under which the operator's pods run on the node."""
PAUSED_BY_US = f"{PAUSED}gpuward"
"""Its value while the remediator has a GPU reset: only `true` is ever changed to it, and back."""

# Who reports it in events, managedFields and user agents.
COMPONENT_AGENT = "gpuward-agent"
COMPONENT_REMEDIATOR = "gpuward-remediator"

# Of `app.kubernetes.io/component`: the pods that test a node under load, and those that repair it.
COMPONENT_VALIDATE = "validate"
COMPONENT_RESET_GPU = "reset-gpu"
COMPONENT_RESTART_NODE = "restart-node"
