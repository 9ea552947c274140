"""Adapters of a policy: every mistake with its place and the remedy, and the shipped ones have
none.
"""

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from rules.policy.components import repair_needs
from rules.policy.policy import Policy, effective_view
from rules.policy.reader import load_policy, policy_schema
from rules.repair.adapter import ADAPTERS
from rules.repair.component import actions_of, folder_of, needs_component

OBJECT: dict[str, Any] = {
    "object": {
        "apiVersion": "example.io/v1",
        "kind": "Reboot",
        "metadata": {"name": "{node}", "namespace": "metal"},
        "spec": {"node": "{node}"},
    },
    "resource": "reboots",
    "done": "Succeeded",
    "failed": "Succeeded=False",
}
LABEL: dict[str, Any] = {"label": "example.io/reboot=yes"}


def problems_of(adapter: Any, name: str = "Mine", **repair: Any) -> list[str]:
    loaded = load_policy({"repair": {"adapters": {name: adapter}, **repair}})
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


def test_good_adapters_are_taken_and_used() -> None:
    assert problems_of(OBJECT, steps={"RestartNode": {"adapter": "Mine"}}) == []
    assert problems_of(LABEL, steps={"ReplaceNode": {"adapter": "Mine"}}) == []
    assert problems_of({"object": {"apiVersion": "v1", "kind": "Pod"}, "resource": "pods"}) == []
    assert problems_of(changed(OBJECT, "object.metadata.namespace", "{namespace}")) == []


AT = "p: repair.adapters.Mine"


@pytest.mark.parametrize(
    ("adapter", "sentence"),
    [
        ({}, f"{AT} is a label of the Node or a new object; write exactly one"),
        ({**OBJECT, **LABEL}, f"{AT} is a label of the Node or a new object; write exactly one"),
        ({"label": "example.io/reboot"}, f"{AT}.label 'example.io/reboot' is no label"),
        ({"label": "a b=c"}, f"{AT}.label 'a b=c' is no label; write KEY=VALUE"),
        ({"label": "gpuward.io/x=y"}, f"{AT}.label is gpuward's own"),
        ({"label": "example.io/x={host}"}, f"{AT}.label names {{host}}, an unknown placeholder"),
        ({**LABEL, "done": "Succeeded"}, f"{AT}.done is of an object; leave it out"),
        (changed(OBJECT, "object.spec.node", "{host}"),
         f"{AT}.object.spec.node names {{host}}, an unknown placeholder"),
        (changed(OBJECT, "object.metadata.name", "{host}"), f"{AT}.object.metadata.name names"),
        (changed(OBJECT, "object.metadata.name", 7), f"{AT}.object.metadata.name is no name"),
        (changed(OBJECT, "object.metadata.finalizers", []),
         f"{AT}.object.metadata.finalizers cannot be set"),
        (changed(OBJECT, "object.metadata", "x"), f"{AT}.object.metadata is no mapping"),
        (changed(OBJECT, "object.metadata.namespace", "A/b"),
         f"{AT}.object.metadata.namespace is no namespace"),
        (changed(OBJECT, "object.status", {}), f"{AT}.object.status is set by the provider"),
        (changed(OBJECT, "object.kind", "reboot"),
         f"{AT}.object.kind is needed to create an object"),
        (changed(OBJECT, "object.kind", None), f"{AT}.object.kind is needed"),
        (changed(OBJECT, "object.apiVersion", "example.io/*"), f"{AT}.object.apiVersion"),
        (changed(OBJECT, "object.apiVersion", None), f"{AT}.object.apiVersion None is none"),
        (changed(OBJECT, "object.apiVersion", "gpuward.io/v1alpha1"),
         f"{AT}.object.apiVersion is gpu"),
        (changed(OBJECT, "resource", "Reboots"), f"{AT}.resource must be the plural"),
        (changed(OBJECT, "resource", None), f"{AT}.resource must be the plural"),
        (changed(OBJECT, "failed", "Succeeded=Off"), f"{AT}.failed 'Succeeded=Off' is no cond"),
        (changed(OBJECT, "done", "a b"), f"{AT}.done 'a b' is no condition"),
        (changed(OBJECT, "resourse", "x"),
         "p: repair.adapters[...].resourse is not a known key; did you mean resource?"),
        ({"steps": {"RestartNode": {"delete": True}}},
         "p: repair.adapters[...].steps is not a known key"),
        (["object"], "is wrong"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_place(adapter: Any, sentence: str) -> None:
    assert any(sentence in one for one in problems_of(adapter)), problems_of(adapter)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("mine", "CamelCase"),
        ("ClusterAPI", "gpuward ships"),
        ("A" * 64, "63"),
        ("A b", "CamelCase"),
    ],
)
def test_a_name_of_its_own(name: str, why: str) -> None:
    assert any(why in one for one in problems_of(OBJECT, name))


def test_a_shown_policy_can_be_read_back_and_has_a_schema() -> None:
    loaded = load_policy({"repair": {"adapters": {"Mine": OBJECT, "Other": LABEL}}})
    assert isinstance(loaded, Policy)
    shown = yaml.safe_load(yaml.safe_dump(effective_view(loaded)))
    assert load_policy(shown) == loaded
    schema = policy_schema()["properties"]["repair"]["properties"]["adapters"]
    assert set(schema["additionalProperties"]["properties"]) == {*OBJECT, *LABEL}


def needs(adapters: dict[str, Any], **steps: Any) -> Any:
    loaded = load_policy({"repair": {"adapters": adapters, "steps": steps}})
    assert isinstance(loaded, Policy), loaded
    return repair_needs(loaded.repair)


def test_jobs_of_own_adapters_get_a_role_and_a_slot() -> None:
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"namespace": "{namespace}"}}
    found = needs({"A": {"object": job, "resource": "jobs"}}, ResetGPU={"adapter": "A"})
    assert set(found.own) == {"kustomization.yaml", "rbac.yaml"}
    assert (
        'apiGroups: ["batch"], resources: [jobs], verbs: [get, create, delete]'
        in (found.own["rbac.yaml"])
    )
    text = found.own["kustomization.yaml"]
    assert "value: \"['unnamed']\"" in text
    assert "ClusterRole" not in text


def test_the_component_of_own_adapters_is_what_they_need() -> None:
    found = needs(
        {"A": OBJECT, "B": {"label": "example.io/do=it"}},
        RestartNode={"adapter": "A"}, ReplaceNode={"adapter": "ClusterAPI"},
        RestartDriver={"adapter": "B"},
    )  # fmt: skip
    assert found.components == ("repair-cluster-api",)
    text = found.own["kustomization.yaml"]
    assert "resources: [reboots], verbs: [get, create, delete]" in text
    assert "'example.io/do', 'gpuward.io/repair'" in text
    assert "machines" not in text
    assert set(found.own) == {"kustomization.yaml"}


DOCS = Path(__file__).parents[4] / "docs"
PAGE = (DOCS / "repair.md").read_text()
SHOWN = [
    block
    for page in ("repair.md", "interop/machines.md", "interop/workloads.md")
    for block in re.findall(r"```yaml\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    if "\n---" not in block and {"repair", "external"} & (yaml.safe_load(block) or {}).keys()
]


@pytest.mark.parametrize("block", SHOWN, ids=range(len(SHOWN)))
def test_every_policy_on_these_pages_is_valid(block: str) -> None:
    assert isinstance(load_policy(yaml.safe_load(block)), Policy)


def test_the_page_names_every_adapter_with_its_steps_and_component() -> None:
    for name, adapter in ADAPTERS.items():
        rows = [line for line in PAGE.splitlines() if line.startswith(f"| `{name}` |")]
        assert rows, name
        steps = {step for step in adapter.steps if any(f"`{step}`" in row for row in rows)}
        assert steps == set(adapter.steps), name
        component = folder_of(name) if needs_component(actions_of(adapter)) else "none"
        assert all(component in row for row in rows), name
