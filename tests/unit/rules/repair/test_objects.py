"""Templates with names put in; which object is asked, whether it may be, and what is on record."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules.api.nodes import NodeView
from rules.repair.adapter import (
    ADAPTERS,
    NAMES,
    ConditionIs,
    NewObject,
    NodeLabel,
    Replacement,
    RequestFacts,
    filled,
    on_record,
    recorded,
    template_problems,
)
from rules.repair.ladder import Step
from rules.repair.objects import (
    AskAssessment,
    given_up,
    is_over,
    merged,
    new_address,
    of_label,
    of_new_object,
    of_replacement,
    the_one,
)

HOSTILE = st.text(max_size=200) | st.sampled_from(
    ['"}', '","force":true,"x":"', "{node}", "{gpuUUIDs}", "\x00", "a\nb", "../../x", "\ud800"]
)


def facts(**changes: Any) -> RequestFacts:
    known: dict[str, Any] = {
        "node": "gpu-1", "node_uid": "u-1", "session": "gpu-1-0badcafe", "boot_id": "b-1",
        "gpu_uuids": ("GPU-a", "GPU-b"), "reason": "Xid79GPUFallenOffBus", "step": "RestartNode",
    }  # fmt: skip
    return RequestFacts(**known | changes)


def test_every_name_is_put_in() -> None:
    template = {
        "a": " ".join(f"{{{name}}}" for name in NAMES),
        "uuids": "{gpuUUIDs}",
        "n": [3, None],
    }
    assert filled(template, facts()) == {
        "a": "gpu-1 u-1 gpu-1-0badcafe b-1 GPU-a,GPU-b Xid79GPUFallenOffBus RestartNode",
        "uuids": ["GPU-a", "GPU-b"],
        "n": [3, None],
    }


def test_annotations_and_labels_hold_text_alone() -> None:
    meta = {"annotations": {"gpus": "{gpuUUIDs}"}, "labels": {"n": "{node}"}}
    assert filled({"metadata": meta, "gpus": "{gpuUUIDs}"}, facts()) == {
        "metadata": {"annotations": {"gpus": "GPU-a,GPU-b"}, "labels": {"n": "gpu-1"}},
        "gpus": ["GPU-a", "GPU-b"],
    }


def test_braces_that_are_no_name_stay_and_keys_are_never_filled() -> None:
    template = {"{node}": '{"mode":"hard"}', "b": "{ node }", "c": "{}"}
    assert filled(template, facts()) == template


@given(HOSTILE, HOSTILE, HOSTILE, st.lists(HOSTILE, max_size=4))
def test_nothing_hostile_gets_out_of_its_place(
    boot: str, uid: str, reason: str, gpus: list[str]
) -> None:
    """Not out of a value, and not out of JSON inside a value."""
    template = {
        "spec": {
            "nodeName": "{node}",
            "note": '{"boot":"{bootID}","why":"{reason}","gpus":"{gpuUUIDs}"}',
        },
        "metadata": {"labels": {"uid": "{nodeUID}"}},
        "uuids": "{gpuUUIDs}",
    }
    got = filled(template, facts(boot_id=boot, node_uid=uid, reason=reason, gpu_uuids=tuple(gpus)))
    assert set(got) == set(template)
    assert set(got["spec"]) == {"nodeName", "note"}
    inner = json.loads(got["spec"]["note"])
    assert set(inner) == {"boot", "why", "gpus"}
    assert "{" not in json.dumps(inner).strip("{}").replace("{}", "")
    assert all(isinstance(uuid, str) for uuid in got["uuids"])
    json.dumps(got).encode()


@pytest.mark.parametrize(
    ("template", "where", "why"),
    [
        (
            {"a": "{nodename}"},
            "t.a",
            "names {nodename}, an unknown placeholder; known are {node},",
        ),
        ({"a": ["x", "{}"]}, "t.a[1]", "names {}, an unknown placeholder"),
        ({1: "x"}, "t", "has the key 1; write it in quotes"),
        ({"a": float("nan")}, "t.a", "is no valid JSON number"),
        ({"a": {1, 2}}, "t.a", "is a set for YAML; write it in quotes"),
        ({"a": [0] * 600}, "t", "is too large"),
    ],
)
def test_a_bad_template_is_named_with_its_place(template: Any, where: str, why: str) -> None:
    problems = list(template_problems(template, "t"))
    assert any(path.startswith(where) and why in reported for path, reported in problems), problems


def test_a_deep_template_is_no_crash() -> None:
    template: Any = "x"
    for _ in range(5000):
        template = {"a": template}
    assert any("too large" in reported for _, reported in template_problems(template, "t"))


REQUEST = "s-restartnode-1"
OURS = {"gpuward.io/repair": f"{REQUEST} RestartNode X"}
LABEL = NodeLabel(label="example.io/do", value="it")


def shipped(name: str) -> Replacement:
    action = ADAPTERS[name].steps[Step.REPLACE_NODE]
    assert isinstance(action, Replacement)
    return action


CAPI, CLAIM = shipped("ClusterAPI"), shipped("Karpenter")


def obj(uid: str = "u", node: str = "gpu-1", **meta: Any) -> dict[str, Any]:
    status = {"nodeRef": {"name": node}, "nodeName": node}
    return {"metadata": {"uid": uid, "resourceVersion": "1", **meta}, "status": status}


GOES, ASKED = "goes", "asked"


def events(found: AskAssessment) -> str:
    reported = {"waits": found.waits, "cannot": found.cannot}
    spoken = [f"{key}: {value}" for key, value in reported.items() if value]
    return ASKED if found.asked else (spoken or [GOES])[0]


@pytest.mark.parametrize(
    ("action", "json", "uid", "want"),
    [
        (CAPI, obj(), "u", GOES),
        (CAPI, obj(annotations=OURS), "u", ASKED),
        (CAPI, obj(annotations={"cluster.x-k8s.io/remediate-machine": ""}), "u", ASKED),
        (CAPI, obj(annotations={"cluster.x-k8s.io/paused": ""}), "u",
         "waits: X has annotation cluster.x-k8s.io/paused"),
        (CAPI, obj(labels={"cluster.x-k8s.io/control-plane": ""}), "u",
         "waits: X has label cluster.x-k8s.io/control-plane"),
        (CAPI, obj(deletionTimestamp="t"), "u", "waits: X is being deleted"),
        (CAPI, obj("v"), "u", "cannot: X was replaced after the step was planned"),
        (CAPI, obj(node="gpu-2"), "u", "cannot: X lacks field status.nodeRef.name=gpu-1"),
        (CAPI, None, "u", "cannot: there is no X"),
        (CLAIM, obj(), "u", GOES),
        (CLAIM, None, "u", ASKED),
        (CLAIM, obj("v"), "u", ASKED),
        (CLAIM, obj(deletionTimestamp="t"), "u", ASKED),
        (CLAIM, None, "", "cannot: there is no X"),
        (CLAIM, obj(deletionTimestamp="t"), "", "waits: X is being deleted"),
    ],
)  # fmt: skip
def test_whether_a_machine_may_be_asked(
    action: Replacement, json: Any, uid: str, want: str
) -> None:
    found = of_replacement(action, REQUEST, "X", json, node="gpu-1", uid=uid)
    assert events(found) == want


@pytest.mark.parametrize(
    ("json", "want"),
    [
        (None, GOES),
        (obj(annotations=OURS), ASKED),
        (obj(), "waits: X exists and was not created for this step"),
    ],
)
def test_whether_an_object_may_be_made(json: Any, want: str) -> None:
    assert events(of_new_object(REQUEST, "X", json)) == want


@pytest.mark.parametrize(
    ("meta", "want"),
    [
        ({}, GOES),
        ({"annotations": OURS}, ASKED),
        ({"labels": {"example.io/do": "it"}}, ASKED),
        ({"labels": {"example.io/do": "that"}},
         "waits: the Node has example.io/do from another program"),
        ({"deletionTimestamp": "2026-01-01T00:00:00Z"}, "waits: the Node is being deleted"),
    ],
)  # fmt: skip
def test_whether_a_label_may_be_set(meta: dict[str, Any], want: str) -> None:
    node = msgspec.convert({"metadata": {"name": "gpu-1", **meta}}, NodeView)
    assert events(of_label(LABEL, REQUEST, node)) == want


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["metadata", "annotations", "labels", "status", "conditions", "type",
                         "spec", "uid", "name", "online"]) | st.text(max_size=4),
        inner, max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip


@given(st.dictionaries(st.sampled_from(["metadata", "status", "spec"]), JSON), st.booleans())
def test_no_shape_of_an_object_is_a_crash(json: dict[str, Any], known: bool) -> None:
    for adapter in ADAPTERS.values():
        for action in adapter.steps.values():
            if isinstance(action, Replacement):
                uid = "u" if known else ""
                of_replacement(action, REQUEST, "X", json, node="gpu-1", uid=uid)
                the_one(action, "gpu-1", (json,))
            if isinstance(action, NewObject):
                of_new_object(REQUEST, "X", json)
                assert given_up(action, "X", json) is not None
                assert is_over(action, json) in {True, False}


def made(**changes: Any) -> NewObject:
    known: dict[str, Any] = {
        "object": {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "{node}"}},
        "resource": "jobs",
    }
    return NewObject(**known | changes)


@pytest.mark.parametrize(
    ("failed", "want"),
    [
        (ConditionIs(type="Succeeded", status="False"), "X has condition Succeeded=False (Off)"),
        (ConditionIs(type="Succeeded", status="False", reason="Off"),
         "X has condition Succeeded=False (Off)"),
        (ConditionIs(type="Succeeded", status="False", reason="Other"), ""),
        (ConditionIs(type="Succeeded"), ""),
        (ConditionIs(type="Other"), ""),
        (None, ""),
    ],
)  # fmt: skip
def test_a_failed_object_is_reported(failed: ConditionIs | None, want: str) -> None:
    shown = {"type": "Succeeded", "status": "False", "reason": "Off"}
    assert given_up(made(failed=failed), "X", {"status": {"conditions": [shown]}}) == want


@pytest.mark.parametrize(
    ("meta", "want"),
    [
        ({}, "/apis/batch/v1/jobs/request-1"),
        ({"namespace": "{namespace}"}, "/apis/batch/v1/namespaces/gpuward/jobs/request-1"),
        ({"name": "r-{node}", "namespace": "a"}, "/apis/batch/v1/namespaces/a/jobs/r-gpu-1"),
        ({"name": "A/b"}, "its name is not a valid object name"),
    ],
)
def test_where_a_new_object_is_made(meta: dict[str, Any], want: str) -> None:
    action = made(object={"apiVersion": "batch/v1", "kind": "Job", "metadata": meta})
    found = new_address(action, "request-1", facts(), "gpuward")
    assert (found if isinstance(found, str) else found.path) == want


def claims(*names: Any) -> tuple[dict[str, Any], ...]:
    return tuple(
        {"metadata": {"name": f"c-{i}", "uid": f"u{i}"}, "status": {"nodeName": name}}
        for i, name in enumerate(names)
    )


@pytest.mark.parametrize(
    ("found", "want"),
    [
        (claims("gpu-2", "gpu-1"), "c-1"),
        (claims("gpu-2"), "none of the nodeclaims belongs to the node"),
        (claims("gpu-1", "gpu-1"), "2 of the nodeclaims belong to the node"),
        (claims(None, ["gpu-1"], {"gpu-1": 1}), "none of the nodeclaims belongs to the node"),
        (({"metadata": "x", "status": 3},), "none of the nodeclaims belongs to the node"),
        (({"metadata": {"name": "a/b", "uid": "u"}, "status": {"nodeName": "gpu-1"}},),
         "the object of the node among the nodeclaims has no valid name"),
    ],
)  # fmt: skip
def test_of_a_list_exactly_one_belongs(found: tuple[dict[str, Any], ...], want: str) -> None:
    one = the_one(CLAIM, "gpu-1", found)
    assert (one if isinstance(one, str) else one["metadata"]["name"]) == want


@given(st.dictionaries(st.text(max_size=2), JSON), st.dictionaries(st.text(max_size=2), JSON))
def test_merging_never_changes_its_input(one: dict[str, Any], two: dict[str, Any]) -> None:
    before = repr(one), repr(two)
    merged(one, two)
    assert (repr(one), repr(two)) == before


# ------------------------------------------------------------------ what is on record


@pytest.mark.parametrize("name", ADAPTERS)
def test_what_is_recorded_is_read_back(name: str) -> None:
    for action in ADAPTERS[name].steps.values():
        assert recorded(on_record(action, facts())) == action


def test_a_label_is_recorded_with_its_names_put_in() -> None:
    action = NodeLabel(label="example.io/do", value="{session}")
    found = recorded(on_record(action, facts()))
    assert found == NodeLabel(label="example.io/do", value="gpu-1-0badcafe")


@given(JSON)
def test_no_shape_of_a_record_is_a_crash(record: Any) -> None:
    if isinstance(record, dict):
        recorded(record)
        recorded({**record, "way": "NewObject"})
