"""Which labels of the GPU Operator a reset pauses; the undo does not depend on the list."""

import pytest

from rules.api import names, repair_writes
from rules.api.metadata import ObjectMeta
from rules.api.nodes import NodeView
from rules.api.pods import PodClaim, PodMeta, PodSpec, PodView
from rules.drain import drain_plan
from rules.drain.drain_plan import DrainPlan
from rules.drain.memory import DrainMemory
from rules.repair import operands
from rules.repair.adapter import ADAPTERS, NewObject
from rules.repair.ladder import Step

ACTION = ADAPTERS["ResetGPUJob"].steps[Step.RESET_GPU]
CLUSTER_POLICY = {
    "driver", "gpu-feature-discovery", "container-toolkit", "device-plugin", "dcgm",
    "dcgm-exporter", "node-status-exporter", "operator-validator", "client", "mig-manager",
}  # fmt: skip
"""Labels of a node of each of the operator's two modes (version 26.7.0)."""
GPU_CLUSTER = {"driver", "dra-driver", "dra-validator", "dcgm-dra", "dcgm-exporter-dra"}


def paused(*deployed: str, **other: str) -> list[str]:
    assert isinstance(ACTION, NewObject)
    labels = {f"{names.PREFIX_GPU_DEPLOY}{name}": "true" for name in deployed}
    labels |= {f"{names.PREFIX_GPU_DEPLOY}{name}": value for name, value in other.items()}
    found = operands.to_pause(labels, ACTION.clears)
    return [key.removeprefix(names.PREFIX_GPU_DEPLOY) for key in found]


@pytest.mark.parametrize(
    ("deployed", "leaving"),
    [
        (
            CLUSTER_POLICY,
            ["client", "dcgm", "dcgm-exporter", "device-plugin", "gpu-feature-discovery",
             "node-status-exporter"],
        ),
        (GPU_CLUSTER, ["dcgm-dra", "dcgm-exporter-dra", "dra-driver"]),
        ({"of-a-later-version"}, ["of-a-later-version"]),
    ],
    ids=["ClusterPolicy", "GPUCluster", "unknown"],
)  # fmt: skip
def test_every_operand_that_may_keep_a_gpu_open_leaves(
    deployed: set[str], leaving: list[str]
) -> None:
    assert paused(*deployed) == leaving


def test_only_labels_that_deploy_a_pod_change() -> None:
    other = {"dcgm": "false", "nvsm": "", "client": "paused-for-driver-upgrade"}
    assert paused("device-plugin", **other) == ["device-plugin"]


def test_the_number_of_labels_is_bounded_and_the_last_is_among_them() -> None:
    found = paused(*(f"a{n}" for n in range(200)), "dra-driver")
    assert len(found) == repair_writes.MAX_MOVED
    assert found[-1] == "dra-driver"


def test_a_request_recorded_by_an_earlier_release_pauses_only_its_labels() -> None:
    labels = {f"{names.PREFIX_GPU_DEPLOY}{name}": "true" for name in ("dcgm", "dcgm-dra")}
    (known, _) = labels
    assert operands.to_pause(labels, (known,)) == (known,)


def test_a_recorded_label_is_restored_even_if_it_may_stay_today() -> None:
    key = operands.STAYS[0]
    node = NodeView(metadata=ObjectMeta(name="n", uid="u", labels={key: names.PAUSED_BY_US}))
    (write,) = repair_writes.restoring(node, "s", (f"{key}=true",))
    assert write.body["metadata"]["labels"] == {key: "true"}


@pytest.mark.parametrize(
    ("claims", "deleted", "label", "leaves"),
    [
        (True, False, names.PAUSED_BY_US, True),
        (True, True, "true", True),
        (True, False, "true", False),
        (False, True, names.PAUSED_BY_US, False),
    ],
    ids=["deselected", "terminating", "stays", "no claim"],
)
def test_pods_with_claims_leave_if_gpuward_paused_their_label(
    claims: bool, deleted: bool, label: str, leaves: bool
) -> None:
    key = f"{names.PREFIX_GPU_DEPLOY}dcgm-dra"
    pod = PodView(
        metadata=PodMeta(
            name="dcgm", namespace="op", uid="1",
            deletion_timestamp="2026-01-01T00:00:00Z" if deleted else None,
        ),
        spec=PodSpec(
            node_name="n",
            node_selector={key: "true"},
            resource_claims=(PodClaim(name="g", resource_claim_name="g"),) if claims else (),
        ),
    )  # fmt: skip
    plan = DrainPlan(memory=DrainMemory(), claimants=drain_plan.claimants([pod]))
    assert drain_plan.leaving_claimants(plan, {key: label}) == (("op/dcgm",) if leaves else ())
