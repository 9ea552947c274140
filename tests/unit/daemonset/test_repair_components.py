"""The component of each repair adapter allows exactly what the adapter uses."""

import copy
from typing import Any

import pytest
import yaml

pytest.importorskip("celpy", reason="cel-python is not installed")

from hack.repair_components import FOLDER, rendered
from rules.api import names
from rules.api.repair_writes import SetRepairCondition
from rules.api.requests import request
from rules.repair.adapter import ADAPTERS, REPAIR_CONDITIONS, Replacement
from rules.repair.component import (
    QUARANTINE_POLICY,
    actions_of,
    component,
    folder_of,
    needed,
    node_keys,
    to_grant,
)
from tests.support.cluster.admission_cel import Write, policies, refusals
from tests.support.cluster.admission_nodes import REMEDIATOR, node
from tests.support.cluster.manifest_builds import REPAIR_COMPONENTS, build, one

QUARANTINED = {**node()["metadata"]["annotations"], names.ANNOTATION_SESSION: "{}"}


def asked(kind: str, *, asks: bool = True, annotations: dict[str, str] | None = None) -> Write:
    sent = request(
        SetRepairCondition(
            node="gpu-1", node_uid="u", session="s", step="RestartNode", kind=kind, asks=asks,
            message="m", at=0.0,
        )
    )  # fmt: skip
    assert sent.body is not None
    old = node(metadata__annotations=QUARANTINED if annotations is None else annotations)
    known = old["status"]["conditions"]
    new: dict[str, Any] = {
        **old,
        "status": {**old["status"], "conditions": [*known, *sent.body["status"]["conditions"]]},
    }
    return Write(user=REMEDIATOR, resource="nodes/status", new=new, old=old)


def patched(folder: str = "repair-node-conditions") -> list[dict[str, Any]]:
    """The shipped policies with the component's patches of policies applied, and its own."""
    found = copy.deepcopy(policies())
    built = yaml.safe_load(rendered()[f"{folder}/kustomization.yaml"])
    for patch in built["patches"]:
        if patch["target"]["kind"] != "ValidatingAdmissionPolicy":
            continue
        test, replace = yaml.safe_load(patch["patch"])
        (policy,) = [p for p in found if p["metadata"]["name"] == patch["target"]["name"]]
        index = int(test["path"].split("/")[3])
        variable = policy["spec"]["variables"][index]
        assert variable["name"] == test["value"]
        assert replace["path"] == f"/spec/variables/{index}/expression"
        variable["expression"] = replace["value"]
    for name in built.get("resources", ()):
        documents = yaml.safe_load_all((FOLDER / folder / name).read_text())
        found += [o for o in documents if o["kind"] == "ValidatingAdmissionPolicy"]
    return found


@pytest.mark.parametrize("kind", REPAIR_CONDITIONS)
def test_a_request_needs_the_component(kind: str) -> None:
    (denial,) = refusals(asked(kind))
    assert "component repair-node-conditions" in denial
    assert refusals(asked(kind), patched()) == []


def test_a_repair_request_needs_the_taint() -> None:
    (denial,) = refusals(asked("GPUNeedsRestart", annotations={}), patched())
    assert "only for a node with its taint and cordon" in denial
    assert refusals(asked("GPUNeedsRestart", asks=False, annotations={}), patched()) == []


def test_other_conditions_stay_forbidden() -> None:
    assert refusals(asked("Ready"), patched())


def labelled(
    keys: tuple[str, ...], *, annotations: dict[str, str], before: dict[str, str] | None = None
) -> Write:
    """A Node whose labels and annotations of these keys are set."""
    old = node(metadata__annotations=annotations)
    old["metadata"]["labels"] = {**old["metadata"]["labels"], **(before or {})}
    new = copy.deepcopy(old)
    for key in keys:
        notes = {
            names.ANNOTATION_REPAIR, names.ANNOTATION_RELEASE_GPU, names.ANNOTATION_MOVED,
        }  # fmt: skip
        kind = "annotations" if key in notes else "labels"
        new["metadata"][kind][key] = "v"
    return Write(user=REMEDIATOR, resource="nodes", new=new, old=old)


ON_NODES = [
    (folder_of(name), (*keys, names.ANNOTATION_REPAIR))
    for name, adapter in ADAPTERS.items()
    if (keys := node_keys(actions_of(adapter)))
]


@pytest.mark.parametrize(("folder", "keys"), ON_NODES)
def test_a_repair_label_needs_its_component_and_the_taint(
    folder: str, keys: tuple[str, ...]
) -> None:
    assert refusals(labelled(keys, annotations=QUARANTINED))
    assert refusals(labelled(keys, annotations=QUARANTINED), patched(folder)) == []
    (denial,) = refusals(labelled(keys, annotations={}), patched(folder))
    assert "only for a node with its taint and cordon" in denial
    assert refusals(labelled(("example.com/other",), annotations=QUARANTINED), patched(folder))


@pytest.mark.parametrize("name", ADAPTERS)
def test_writes_to_other_objects_have_an_admission_policy(name: str) -> None:
    for action in actions_of(ADAPTERS[name]):
        if isinstance(action, Replacement) and action.annotation:
            policy = (FOLDER / folder_of(name) / "admission.yaml").read_text()
            assert f"['{action.annotation}', '{names.ANNOTATION_REPAIR}']" in policy
            assert f"resources: [{action.resource}]" in policy


def test_only_the_remediation_annotation_of_a_machine_is_written() -> None:
    folder, group, resource = "repair-cluster-api", "cluster.x-k8s.io", "machines"
    key = "cluster.x-k8s.io/remediate-machine"
    old: dict[str, dict[str, Any]] = {
        "metadata": {"name": "m", "annotations": {"theirs": "1"}, "labels": {"pool": "gpu"}},
        "spec": {"online": True},
    }

    def denials(**changes: Any) -> list[str]:
        new = {**copy.deepcopy(old), **changes}
        write = Write(user=REMEDIATOR, resource=resource, group=group, new=new, old=old)
        return refusals(write, patched(folder))

    meta = old["metadata"]
    note = {key: "x", names.ANNOTATION_REPAIR: "r RestartNode A"}
    assert denials(metadata={**meta, "annotations": {"theirs": "1", **note}}) == []
    assert denials(metadata={**meta, "annotations": {"theirs": "2"}})
    assert denials(metadata={**meta, "annotations": {}})
    assert denials(metadata={**meta, "labels": {}})
    assert denials(spec={"online": False})
    assert denials(metadata={**meta, "finalizers": ["x"]})
    assert denials(metadata={**meta, "ownerReferences": [{"name": "x"}]})


@pytest.mark.parametrize("name", ADAPTERS)
def test_the_component_grants_exactly_what_the_adapter_uses(name: str) -> None:
    """Compare the requests of the adapter with the RBAC rules of its component."""
    actions = actions_of(ADAPTERS[name])
    files = component(name, actions)
    built = yaml.safe_load(files["kustomization.yaml"])
    rules = [
        (False, operation["value"])
        for patch in built["patches"] or ()
        if patch["target"]["kind"] == "ClusterRole"
        for operation in yaml.safe_load(patch["patch"])
    ]
    for made in yaml.safe_load_all(files.get("rbac.yaml", "")):
        rules += [(True, rule) for rule in made.get("rules", ())]
    granted = {
        (own, rule["apiGroups"][0], rule["resources"][0], verb)
        for own, rule in rules
        for verb in rule["verbs"]
    }
    assert granted == {(r.own, r.group, r.resource, v) for r in to_grant(actions) for v in r.verbs}
    assert granted <= {(r.own, r.group, r.resource, v) for r in needed(actions) for v in r.verbs}
    assert not any("*" in "".join(each[1:]) for each in granted)


@pytest.mark.parametrize("folder", REPAIR_COMPONENTS)
def test_every_component_builds(folder: str) -> None:
    assert build(folder, root="daemonset/base")  # no component changes a CRD


def test_all_components_together_keep_each_others_slots() -> None:
    policy = one(build(*REPAIR_COMPONENTS), "ValidatingAdmissionPolicy", QUARANTINE_POLICY)
    for variable, (_, keys) in zip(policy["spec"]["variables"], ON_NODES, strict=False):
        assert all(f"'{key}'" in variable["expression"] for key in keys)
