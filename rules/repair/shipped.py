"""The adapters that gpuward ships, as rows: one for each system that repairs nodes.

Fields follow the documentation of each system; docs/repair.md has the recipe for each. A mark for
replacement on somebody else's object is never taken back; on our own Node, and an object that we
made, it goes with the session: the node may serve again by then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rules.api.names import (
    CONDITION_NEEDS_REPLACE,
    CONDITION_NEEDS_RESET,
    CONDITION_NEEDS_RESTART,
)
from rules.repair.adapter import (
    Adapter,
    NodeReference,
    ObjectMatch,
    RepairAction,
    TakingBack,
    TargetRule,
    TargetSearch,
)
from rules.repair.ladder import Step

_WITH_SESSION: Final = TakingBack(at="Session")
_NEVER: Final = TakingBack(at="Never")

NODE_CONDITIONS: Final = Adapter(
    steps={
        Step.RESET_GPU: RepairAction(condition=CONDITION_NEEDS_RESET),
        Step.RESTART_NODE: RepairAction(condition=CONDITION_NEEDS_RESTART),
        Step.REPLACE_NODE: RepairAction(condition=CONDITION_NEEDS_REPLACE),
    }
)


def _noted(annotation: str) -> ObjectMatch:
    return ObjectMatch(annotation=annotation)


# ------------------------------------------------------------------ machines

_CAPI: Final = "cluster.x-k8s.io"
CLUSTER_API: Final = Adapter(
    steps={
        Step.REPLACE_NODE: RepairAction(
            target=TargetRule(
                api_version=f"{_CAPI}/*",
                resource="machines",
                kind="Machine",
                reference=(
                    NodeReference(annotation=f"{_CAPI}/machine"),
                    NodeReference(annotation=f"{_CAPI}/cluster-namespace", pattern="{namespace}"),
                ),
            ),
            refuse=(
                # A kubelet may write its own Node's annotations: the Machine has to agree.
                ObjectMatch(
                    field="status.nodeRef.name", value="{node}", negated=True, then="Climb"
                ),
                ObjectMatch(label=f"{_CAPI}/control-plane"),
                _noted(f"{_CAPI}/paused"),
                _noted(f"{_CAPI}/skip-remediation"),
                _noted(f"{_CAPI}/delete-machine"),
            ),
            patch={"metadata": {"annotations": {f"{_CAPI}/remediate-machine": "gpuward"}}},
            withdraw=_NEVER,
        )
    }
)
"""Acts only where a MachineHealthCheck selects the Machine."""

_METAL3: Final = "baremetalhost.metal3.io"
_HOST: Final = TargetRule(
    api_version="metal3.io/v1alpha1",
    resource="baremetalhosts",
    kind="BareMetalHost",
    reference=(NodeReference(provider_id=True, pattern="metal3://{namespace}/{name}/{}"),),
)
_HOST_REFUSES: Final = (
    _noted(f"{_METAL3}/paused"),
    _noted(f"{_METAL3}/detached"),
    ObjectMatch(field="spec.online", value=False),
    ObjectMatch(field="status.operationalStatus", value="error"),
)
_HOST_FAILED: Final = (ObjectMatch(field="status.operationalStatus", value="error"),)
METAL3: Final = Adapter(
    steps={
        Step.RESTART_NODE: RepairAction(
            target=_HOST,
            refuse=_HOST_REFUSES,
            patch={"metadata": {"annotations": {"reboot.metal3.io": '{"mode":"soft"}'}}},
            failed=_HOST_FAILED,
        ),
        # With a name behind it the host stays off until the annotation goes: power is seen off
        # before it comes on again.
        Step.POWER_CYCLE: RepairAction(
            target=_HOST,
            refuse=_HOST_REFUSES,
            patch={"metadata": {"annotations": {"reboot.metal3.io/gpuward": '{"mode":"hard"}'}}},
            failed=_HOST_FAILED,
            withdraw=TakingBack(when=(ObjectMatch(field="status.poweredOn", value=False),)),
        ),
    }
)

KARPENTER: Final = Adapter(
    steps={
        Step.REPLACE_NODE: RepairAction(
            target=TargetRule(
                api_version="karpenter.sh/v1",
                resource="nodeclaims",
                kind="NodeClaim",
                search=TargetSearch(match={"status.nodeName": "{node}"}),
            ),
            delete=True,
            withdraw=_NEVER,
        )
    }
)

_GARDENER: Final = "node.machine.sapcloud.io"
GARDENER: Final = Adapter(
    steps={
        Step.REPLACE_NODE: RepairAction(
            refuse=(
                ObjectMatch(on="Node", annotation=f"{_GARDENER}/preserve", value="now"),
                ObjectMatch(on="Node", annotation=f"{_GARDENER}/not-managed-by-mcm"),
            ),
            patch={"metadata": {"annotations": {f"{_GARDENER}/trigger-deletion-by-mcm": "true"}}},
            withdraw=_WITH_SESSION,
        )
    }
)

# ------------------------------------------------------------------ medik8s

_EXCLUDED: Final = ObjectMatch(
    on="Node", label="remediation.medik8s.io/exclude-from-remediation", value="true"
)
_GAVE_UP: Final = (ObjectMatch(condition="Succeeded", value="False"),)


def _remediation(
    group: str,
    kind: str,
    *,
    refuse: tuple[ObjectMatch, ...] = (),
    at_session: bool = False,
) -> RepairAction:
    """A remediation that is called like its node and takes its spec from a template."""
    return RepairAction(
        target=TargetRule(
            api_version=f"{group}.medik8s.io/v1alpha1",
            resource=f"{kind.lower()}s",
            kind=kind,
            name="{node}",
        ),
        refuse=(_EXCLUDED, *refuse),
        create={"metadata": {"annotations": {"remediation.medik8s.io/node-name": "{node}"}}},
        copies=f"{kind.lower()}templates",
        failed=_GAVE_UP,
        withdraw=_WITH_SESSION if at_session else TakingBack(),
    )


SELF_NODE_REMEDIATION: Final = Adapter(
    steps={
        Step.RESTART_NODE: _remediation(
            "self-node-remediation",
            "SelfNodeRemediation",
            refuse=(
                ObjectMatch(
                    on="Node",
                    annotation="is-reboot-capable.self-node-remediation.medik8s.io",
                    value="true",
                    negated=True,
                    then="Climb",
                ),
            ),
        )
    }
)
FENCE_AGENTS: Final = Adapter(
    steps={
        Step.POWER_CYCLE: _remediation("fence-agents-remediation", "FenceAgentsRemediation"),
    }
)
MACHINE_DELETION: Final = Adapter(
    steps={
        Step.REPLACE_NODE: _remediation(
            "machine-deletion-remediation",
            "MachineDeletionRemediation",
            refuse=(
                ObjectMatch(
                    on="Node",
                    annotation="machine.openshift.io/machine",
                    negated=True,
                    then="Climb",
                ),
            ),
            at_session=True,
        )
    }
)

# ------------------------------------------------------------------ NVIDIA


def _janitor(kind: str, spec: dict[str, Any], *, at_session: bool = False) -> RepairAction:
    return RepairAction(
        target=TargetRule(
            api_version="janitor.dgxc.nvidia.com/v1alpha1",
            resource=f"{kind.lower()}s",
            kind=kind,
        ),
        create={"spec": {"nodeName": "{node}", **spec}},
        withdraw=_WITH_SESSION if at_session else TakingBack(),
    )


NVSENTINEL: Final = Adapter(
    steps={
        Step.RESET_GPU: _janitor("GPUReset", {"selector": {"uuids": "{gpuUUIDs}"}}),
        Step.RESTART_NODE: _janitor("RebootNode", {}),
        Step.REPLACE_NODE: _janitor("TerminateNode", {}, at_session=True),
    }
)
"""NVSentinel's janitor. Its conditions say what it sent, not that it helped: none is believed."""

GPU_OPERATOR: Final = Adapter(
    steps={
        Step.RESTART_DRIVER: RepairAction(
            target=TargetRule(
                api_version="v1",
                resource="pods",
                kind="Pod",
                search=TargetSearch(
                    selector="app.kubernetes.io/component=nvidia-driver",
                    fields={"spec.nodeName": "{node}"},
                    match={"spec.nodeName": "{node}"},
                ),
            ),
            delete=True,
            withdraw=_NEVER,
        )
    }
)
"""The driver's pod on the node, which its DaemonSet makes anew and which loads the driver anew."""

# ------------------------------------------------------------------ clouds


def _label(key: str, value: str, **more: Any) -> RepairAction:
    return RepairAction(patch={"metadata": {"labels": {key: value}}}, **more)


GKE: Final = Adapter(
    steps={
        Step.REPLACE_NODE: _label(
            "cloud.google.com/fault-behavior", "unspecified", withdraw=_WITH_SESSION
        )
    }
)
GKE_MAINTENANCE: Final = Adapter(
    steps={
        Step.REPLACE_NODE: _label(
            "cloud.google.com/perform-maintenance", "true", withdraw=_WITH_SESSION
        )
    }
)
OKE: Final = Adapter(
    steps={Step.RESTART_NODE: _label("oke.oraclecloud.com/node_operation", "gpuward-reboot")}
)
_HYPERPOD: Final = "sagemaker.amazonaws.com/node-health-status"
_SCHEDULABLE: Final = {"metadata": {"labels": {_HYPERPOD: "Schedulable"}}}
HYPERPOD: Final = Adapter(
    steps={
        Step.RESTART_NODE: _label(
            _HYPERPOD,
            "UnschedulablePendingReboot",
            overwrites=("Schedulable",),
            withdraw=TakingBack(patch=_SCHEDULABLE),
        ),
        Step.REPLACE_NODE: _label(
            _HYPERPOD,
            "UnschedulablePendingReplacement",
            overwrites=("Schedulable", "UnschedulablePendingReboot"),
            withdraw=TakingBack(at="Session", patch=_SCHEDULABLE),
        ),
    }
)

ADAPTERS: Final[Mapping[str, Adapter]] = {
    "NodeConditions": NODE_CONDITIONS,
    "ClusterAPI": CLUSTER_API,
    "Metal3": METAL3,
    "Karpenter": KARPENTER,
    "Gardener": GARDENER,
    "SelfNodeRemediation": SELF_NODE_REMEDIATION,
    "FenceAgentsRemediation": FENCE_AGENTS,
    "MachineDeletionRemediation": MACHINE_DELETION,
    "NVSentinel": NVSENTINEL,
    "GPUOperator": GPU_OPERATOR,
    "GKE": GKE,
    "GKEMaintenance": GKE_MAINTENANCE,
    "OKE": OKE,
    "HyperPod": HYPERPOD,
}
"""By the name that a policy uses."""
