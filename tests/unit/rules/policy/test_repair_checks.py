"""Adapters of a policy: every mistake with its place and the remedy, and the shipped ones have
none.
"""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from rules.policy.policy import Policy, effective_view
from rules.policy.reader import load_policy
from rules.policy.repair_checks import action_problems
from rules.policy.repair_rights import repair_needs
from rules.policy.schema import policy_schema
from rules.repair.component import actions_of, folder_of, needs_component
from rules.repair.shipped import ADAPTERS

GOOD: dict[str, Any] = {
    "target": {"apiVersion": "example.io/v1", "resource": "reboots", "kind": "Reboot"},
    "create": {"spec": {"node": "{node}"}},
    "failed": [{"condition": "Failed"}],
}
FOUND: dict[str, Any] = {
    "target": {
        "apiVersion": "example.io/*",
        "resource": "machines",
        "reference": [{"annotation": "example.io/machine"}],
    },
    "patch": {"metadata": {"annotations": {"example.io/reboot": "{session}"}}},
}

SEEN: dict[str, Any] = {
    **FOUND,
    "witness": {
        "target": {**FOUND["target"], "resource": "owners"},
        "shows": [{"field": "status.node", "value": "{node}"}],
        "agrees": {"spec.owner": "metadata.name"},
    },
}
OWN_JOB: dict[str, Any] = {
    "target": {
        "apiVersion": "batch/v1", "resource": "jobs", "kind": "Job", "namespace": "{namespace}",
    },
    "pod": "reset",
    "create": {"spec": {"template": {"spec": {"nodeName": "{node}"}}}},
    "clears": ["example.io/plugin"],
    "done": [{"condition": "Complete"}],
}  # fmt: skip
MARK: dict[str, Any] = {"metadata": {"annotations": {"example.io/reboot": "done"}}}
WHEN = [{"field": "status.poweredOn", "value": False}]
CONDITION: dict[str, Any] = {"condition": "GPUNeedsRestart"}
ON_NODE: dict[str, Any] = {"patch": FOUND["patch"]}
DELETED: dict[str, Any] = {"target": FOUND["target"], "delete": True}


def said(step: Any, name: str = "Mine", **repair: Any) -> list[str]:
    document = {"repair": {"adapters": {name: {"steps": {"RestartNode": step}}}, **repair}}
    loaded = load_policy(document)
    if isinstance(loaded, Policy):
        return []
    return [problem.sentence("p") for problem in loaded]


def changed(base: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    made = copy.deepcopy(base)
    *inner, last = path.split(".")
    at: Any = made
    for name in inner:
        at = at[int(name)] if name.isdigit() else at.setdefault(name, {})
    if value is None:
        del at[last]
    else:
        at[last] = value
    return made


@pytest.mark.parametrize("name", ADAPTERS)
def test_what_is_shipped_is_right(name: str) -> None:
    for action in ADAPTERS[name].steps.values():
        assert list(action_problems(action, name)) == []


def test_good_adapters_are_taken_and_used() -> None:
    assert said(GOOD, steps={"RestartNode": {"adapter": "Mine"}}) == []
    assert said(FOUND) == []
    assert said(SEEN) == []
    assert said(CONDITION) == []
    assert said(ON_NODE) == []
    assert said(DELETED) == []
    assert said(changed(FOUND, "withdraw", {"when": WHEN, "at": "Never"})) == []


AT = "p: repair.adapters.Mine.steps.RestartNode"


@pytest.mark.parametrize(
    ("step", "sentence"),
    [
        (changed(GOOD, "create", None), f"{AT} says none; write exactly one of condition, create"),
        (changed(GOOD, "delete", True), f"{AT} says all of create, delete; write exactly one"),
        (changed(GOOD, "create.spec.node", "{host}"),
         f"{AT}.create.spec.node names {{host}}, which"),
        (changed(GOOD, "create.metadata", {"name": "x"}),
         f"{AT}.create.metadata.name cannot be set"),
        (changed(GOOD, "create.kind", "X"),
         f"{AT}.create.kind stands in the target; leave it out"),
        (changed(GOOD, "create.status", {}), f"{AT}.create.status is the provider's word"),
        (changed(GOOD, "target.kind", "reboot"),
         f"{AT}.target.kind is needed to create an object"),
        (changed(GOOD, "target.resource", "Reboots"), f"{AT}.target.resource must be the plural"),
        (changed(GOOD, "target.apiVersion", "example.io/*"), f"{AT}.target.apiVersion must name"),
        (changed(GOOD, "target.apiVersion", "x//y"), f"{AT}.target.apiVersion 'x//y' is none"),
        (changed(GOOD, "target.apiVersion", "gpuward.io/v1alpha1"),
         f"{AT}.target.apiVersion is gpu"),
        (changed(GOOD, "target.namespace", "A/b"), f"{AT}.target.namespace is no namespace"),
        (changed(GOOD, "target.search", {"match": {"a": "b"}}), f"{AT}.target says of which kind"),
        (changed(GOOD, "failed", [{}]), f"{AT}.failed[0] names exactly one of annotation, label"),
        (changed(GOOD, "failed", [{"field": "a[0]"}]),
         f"{AT}.failed[0].field is no path with dots"),
        (changed(GOOD, "tarqet", {}),
         "p: repair.adapters[...].steps[...].tarqet is not a known key; did you mean target?"),
        (changed(GOOD, "failed", [{"conditon": "x"}]),
         "p: repair.adapters[...].steps[...].failed[0].conditon is not a known key"),
        (changed(FOUND, "target.reference", []), f"{AT}.target says by reference or search which"),
        (changed(FOUND, "target.reference.0.pattern", "x"),
         f"{AT}.target.reference[0].pattern must"),
        (changed(FOUND, "target.reference.0.label", "x"),
         f"{AT}.target.reference[0] names exactly"),
        (changed(FOUND, "patch.spec", {"off": True}),
         f"{AT}.withdraw must say how spec.off is taken"),
        (changed(FOUND, "patch", {}), f"{AT}.patch is empty"),
        (changed(FOUND, "withdraw", {"at": "Later"}), "at is wrong"),
        (changed(CONDITION, "withdraw", {"at": "Session"}),
         f"{AT}.withdraw is fixed for a condition"),
        (changed(CONDITION, "withdraw", {"when": WHEN}),
         f"{AT}.withdraw is fixed for a condition"),
        (changed(ON_NODE, "withdraw", {"when": WHEN}),
         f"{AT}.withdraw.when is followed on a target"),
        (changed(GOOD, "withdraw", {"patch": MARK}), f"{AT}.withdraw.patch is for patch only"),
        (changed(FOUND, "withdraw", {"at": "Never", "patch": MARK}),
         f"{AT}.withdraw.patch does noth"),
        (changed(DELETED, "withdraw", {"at": "Session"}),
         f"{AT}.withdraw does nothing after a dele"),
        (changed(DELETED, "withdraw", {"when": WHEN}), f"{AT}.withdraw does nothing after a dele"),
        ({"delete": True}, f"{AT}.delete never deletes the Node itself; name a target"),
        ({"condition": "Ready"}, f"{AT}.condition is none of GPUNeedsReplace"),
        ({"condition": "GPUNeedsReset", "target": GOOD["target"]}, f"{AT}.target is the Node"),
        (changed(GOOD, "pod", "reset"), f"{AT}.pod is for a new Job (batch/v1, jobs)"),
        (changed(OWN_JOB, "target.namespace", "other"), f"{AT}.pod is for a new Job"),
        (changed(OWN_JOB, "pod", "A/b"), f"{AT}.pod 'A/b' is no name of a PodTemplate"),
        (changed(OWN_JOB, "copies", "jobtemplates"), f"{AT}.pod and copies name two templates"),
        (changed(OWN_JOB, "clears", ["a b"]), f"{AT}.clears[0] 'a b' is no key of a label"),
        (changed(OWN_JOB, "clears", [f"example.io/x{n}" for n in range(17)]),
         f"{AT}.clears has more labels than the 16"),
        (changed(OWN_JOB, "done", []), f"{AT}.done must say when who was moved off comes back"),
        (changed(FOUND, "clears", ["example.io/x"]), f"{AT}.clears is for create only"),
        (changed(OWN_JOB, "failed", [{"field": "a", "reason": "X"}]),
         f"{AT}.failed[0].reason is of a condition"),
        (changed(SEEN, "witness.shows", []), f"{AT}.witness.shows says nowhere that its node"),
        (changed(SEEN, "witness.shows.0.value", "yes"), f"{AT}.witness.shows says nowhere that"),
        (changed(SEEN, "witness.shows.0.not", True), f"{AT}.witness.shows says nowhere that"),
        (changed(SEEN, "witness.shows.0.on", "Node"), f"{AT}.witness.shows says nowhere that"),
        (changed(changed(SEEN, "witness.shows", []), "witness.target",
                 {"apiVersion": "example.io/v1", "resource": "owners",
                  "search": {"match": {"status.phase": "Running"}}}),
         f"{AT}.witness.shows says nowhere that"),
        (changed(SEEN, "witness.agrees", {}), f"{AT}.witness.agrees says nowhere that the target"),
        (changed(SEEN, "witness.agrees", {"a[0]": "b"}), f"{AT}.witness.agrees 'a[0]' is no path"),
        (changed(SEEN, "witness.target.reference", []), f"{AT}.witness.target says by reference"),
        (changed(ON_NODE, "witness", SEEN["witness"]), f"{AT}.witness is about a target"),
        (changed(GOOD, "witness", SEEN["witness"]), f"{AT}.witness.agrees compares with"),
        (["create"], "is wrong"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_place(step: Any, sentence: str) -> None:
    assert any(sentence in one for one in said(step)), said(step)


@pytest.mark.parametrize(
    ("name", "why"),
    [("mine", "CamelCase"), ("Metal3", "gpuward ships"), ("A" * 64, "63"), ("A b", "CamelCase")],
)
def test_a_name_of_its_own(name: str, why: str) -> None:
    assert any(why in one for one in said(GOOD, name))


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("", "names the selfnoderemediationtemplates to copy"),
        ("a", "namespace/name"),
        ("A/b", "names"),
    ],
)
def test_a_template_is_named_as_namespace_and_name(template: str, why: str) -> None:
    wanted = {"adapter": "SelfNodeRemediation", "template": template}
    loaded = load_policy({"repair": {"steps": {"RestartNode": wanted}}})
    assert isinstance(loaded, tuple)
    assert why in loaded[0].sentence("p")


def test_a_shown_policy_can_be_read_back_and_has_a_schema() -> None:
    document = {"repair": {"adapters": {"Mine": {"steps": {"RestartNode": GOOD}}}}}
    loaded = load_policy(document)
    assert isinstance(loaded, Policy)
    shown = yaml.safe_load(yaml.safe_dump(effective_view(loaded)))
    assert load_policy(shown) == loaded
    schema = policy_schema()["properties"]["repair"]["properties"]["adapters"]
    step = schema["additionalProperties"]["properties"]["steps"]["additionalProperties"]
    assert set(GOOD) <= set(step["properties"])


def needs(adapters: dict[str, Any], **steps: Any) -> Any:
    document = {"repair": {"adapters": adapters, "steps": steps}}
    loaded = load_policy(document)
    assert isinstance(loaded, Policy), loaded
    return repair_needs(loaded.repair)


def test_jobs_of_own_adapters_get_a_role_a_slot_and_their_labels() -> None:
    found = needs({"A": {"steps": {"ResetGPU": OWN_JOB}}}, ResetGPU={"adapter": "A"})
    assert set(found.own) == {"kustomization.yaml", "rbac.yaml"}
    assert (
        'apiGroups: ["batch"], resources: [jobs], verbs: [get, create, delete]'
        in (found.own["rbac.yaml"])
    )
    text = found.own["kustomization.yaml"]
    assert "value: \"['unnamed']\"" in text
    ours = "'gpuward.io/moved', 'gpuward.io/release-gpu', 'gpuward.io/repair'"
    assert f"'example.io/plugin', {ours}" in text
    assert "ClusterRole" not in text


def test_the_component_of_own_adapters_is_what_they_need() -> None:
    node = {"patch": {"metadata": {"labels": {"example.io/do": "it"}}}}
    found = needs(
        {"A": {"steps": {"RestartNode": GOOD}}, "B": {"steps": {"RestartNode": node}}},
        RestartNode={"adapter": "A"}, ReplaceNode={"adapter": "ClusterAPI"},
        RestartDriver={"adapter": "GPUOperator"},
    )  # fmt: skip
    assert found.components == ("repair-cluster-api",)
    text = found.own["kustomization.yaml"]
    assert "resources: [reboots], verbs: [get, create, delete]" in text
    assert "'example.io/do', 'gpuward.io/repair'" in text
    assert "machines" not in text
    assert set(found.own) == {"kustomization.yaml"}


def test_two_policies_about_one_kind_do_not_refuse_each_other() -> None:
    nico = changed(FOUND, "target.apiVersion", "cluster.x-k8s.io/*")
    alone = needs({"N": {"steps": {"RestartNode": nico}}})
    assert "gpuward-remediator-repair-own-machines" in alone.own["admission.yaml"]
    beside = needs({"N": {"steps": {"RestartNode": nico}}}, ReplaceNode={"adapter": "ClusterAPI"})
    assert "admission.yaml" not in beside.own
    text = beside.own["kustomization.yaml"]
    assert "name: gpuward-remediator-repair-cluster-api-machines" in text
    assert "'cluster.x-k8s.io/remediate-machine', 'example.io/reboot', 'gpuward.io/repair'" in text


PAGE = (Path(__file__).parents[4] / "docs" / "repair.md").read_text()
SHOWN = [
    block
    for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    if "repair" in (yaml.safe_load(block) or {})
]


@pytest.mark.parametrize("block", SHOWN, ids=range(len(SHOWN)))
def test_every_policy_on_the_page_is_valid(block: str) -> None:
    assert isinstance(load_policy(yaml.safe_load(block)), Policy)


def test_the_page_names_every_adapter_with_its_steps_and_component() -> None:
    for name, adapter in ADAPTERS.items():
        rows = [line for line in PAGE.splitlines() if line.startswith(f"| `{name}` |")]
        assert rows, name
        steps = {step for step in adapter.steps if any(f"`{step}`" in row for row in rows)}
        assert steps == set(adapter.steps), name
        component = folder_of(name) if needs_component(actions_of(adapter)) else "none"
        assert all(component in row for row in rows), name
