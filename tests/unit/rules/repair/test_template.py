"""Templates: a closed set of names, put into values, with nothing that could get out of them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules.repair.adapter import NAMES, RequestFacts, filled, template_problems

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
            "names {nodename}, which nothing fills in; known are {node},",
        ),
        ({"a": ["x", "{}"]}, "t.a[1]", "names {}, which"),
        ({1: "x"}, "t", "has the key 1; write it in quotes"),
        ({"a": float("nan")}, "t.a", "is no number that JSON knows"),
        ({"a": {1, 2}}, "t.a", "is a set for YAML; write it in quotes"),
        ({"a": [0] * 600}, "t", "is too large"),
    ],
)
def test_a_bad_template_is_named_with_its_place(template: Any, where: str, why: str) -> None:
    problems = list(template_problems(template, "t"))
    assert any(path.startswith(where) and why in said for path, said in problems), problems


def test_a_deep_template_is_no_crash() -> None:
    template: Any = "x"
    for _ in range(5000):
        template = {"a": template}
    assert any("too large" in said for _, said in template_problems(template, "t"))
