"""Component devices: admission allows the device taints of the remediator and nothing else."""

import copy
from typing import Any

import pytest
import yaml

pytest.importorskip("celpy", reason="cel-python is not installed")

from hack.sim.manifests import read_manifests
from rules.api.device_taints import TaintDevice
from rules.api.quarantine import IsolatedDevice
from rules.api.requests import request
from tests.support.cluster.admission_cel import Write, refusals
from tests.support.cluster.admission_nodes import REMEDIATOR
from tests.support.cluster.manifest_builds import DAEMONSET

FOLDER = DAEMONSET / "components" / "devices"
SHIPPED = [o for o in read_manifests(FOLDER) if o["kind"] == "ValidatingAdmissionPolicy"]
DEVICE = IsolatedDevice(
    uuid="GPU-1", driver="gpu.nvidia.com", pool="gpu-1", device="gpu-3", rule="gpuward-0123"
)


def rule(effect: str = "NoSchedule") -> dict[str, Any]:
    write = TaintDevice(
        node="gpu-1",
        node_uid="u",
        session="s",
        session_uid="su",
        api_version="resource.k8s.io/v1",
        device=DEVICE,
        reason="Xid79",
        effect=effect,
    )
    return copy.deepcopy(request(write).body or {})


def refused(operation: str, made: dict[str, Any], user: str = REMEDIATOR) -> list[str]:
    deletes = operation == "DELETE"
    write = Write(
        user=user,
        resource="devicetaintrules",
        group="resource.k8s.io",
        operation=operation,
        new={} if deletes else made,
        old=made if deletes else None,
    )
    return refusals(write, SHIPPED)


@pytest.mark.parametrize("effect", ["NoSchedule", "None"])
def test_rules_of_the_remediator_are_admitted(effect: str) -> None:
    assert not refused("CREATE", rule(effect))
    assert not refused("DELETE", rule(effect))


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("metadata.name", "somebody-else"),
        ("spec.taint.effect", "NoExecute"),
        ("spec.taint.key", "gpu.nvidia.com/xid"),
        ("spec.deviceSelector.driver", "nic.example.com"),
        ("spec.deviceSelector.device", None),
        ("spec.deviceSelector.pool", None),
        ("spec.deviceSelector", None),
    ],
)
def test_other_rules_are_refused(place: str, value: str | None) -> None:
    made = rule()
    *above, last = place.split(".")
    part = made
    for key in above:
        part = part[key]
    if value is None:
        del part[last]
    else:
        part[last] = value
    assert refused("CREATE", made)
    assert refused("UPDATE", made)
    assert not refused("CREATE", made, user="ada")


def test_rules_of_others_are_not_deleted() -> None:
    made = rule()
    made["metadata"]["name"] = "somebody-else"
    assert refused("DELETE", made)


def test_the_component_grants_what_device_taints_need() -> None:
    (patch,) = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["patches"]
    (added,) = yaml.safe_load(patch["patch"])
    assert added["value"] == {
        "apiGroups": ["resource.k8s.io"],
        "resources": ["devicetaintrules"],
        "verbs": ["list", "create", "delete"],
    }
