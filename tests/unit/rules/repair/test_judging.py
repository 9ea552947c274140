"""Whether a request may go, stands already, or was given up: by the object as it was read."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules.repair.adapter import ObjectMatch, RepairAction
from rules.repair.judging import given_up, judged, merged, taken_back
from rules.repair.matching import holds
from rules.repair.shipped import ADAPTERS

REQUEST = "s-restartnode-1"
OURS = {"gpuward.io/repair": f"{REQUEST} RestartNode X"}
PATCH = {"metadata": {"annotations": {"do": "it"}}}
MARKS = RepairAction(
    refuse=(ObjectMatch(annotation="paused"), ObjectMatch(label="cp", then="Climb")), patch=PATCH
)
MAKES = RepairAction(create={"spec": {}})
DELETES = RepairAction(delete=True)


def obj(uid: str = "u", **meta: Any) -> dict[str, Any]:
    return {"metadata": {"uid": uid, "resourceVersion": "1", **meta}}


GOES, ASKED = "goes", "asked"


@pytest.mark.parametrize(
    ("action", "json", "uid", "want"),
    [
        (MARKS, obj(), "u", GOES),
        (MARKS, obj(annotations=OURS), "u", ASKED),
        (MARKS, obj(annotations={"do": "it"}), "u", ASKED),
        (MARKS, obj(annotations={"do": "that"}), "u", "waits: X has do from somebody else"),
        (MARKS, obj(annotations={"paused": ""}), "u", "waits: X has annotation paused"),
        (MARKS, obj(labels={"cp": ""}), "u", "cannot: X has label cp"),
        (MARKS, obj(deletionTimestamp="t"), "u", "waits: X is being deleted"),
        (MARKS, obj("v"), "u", "cannot: X is another one than when the step was planned"),
        (MARKS, None, "u", "cannot: there is no X"),
        (MAKES, None, "", GOES),
        (MAKES, obj(annotations=OURS), "", ASKED),
        (MAKES, obj(), "", "waits: X is there and was not made for this step"),
        (DELETES, obj(), "u", GOES),
        (DELETES, None, "u", ASKED),
        (DELETES, obj("v"), "u", ASKED),
        (DELETES, obj(deletionTimestamp="t"), "u", ASKED),
        (DELETES, None, "", "cannot: there is no X"),
        (DELETES, obj(deletionTimestamp="t"), "", "waits: X is being deleted"),
    ],
)
def test_the_table_of_verdicts(action: RepairAction, json: Any, uid: str, want: str) -> None:
    found = judged(action, REQUEST, "X", json, {}, uid=uid, patch=action.patch)
    said = {"asked": found.asked, "waits": found.waits, "cannot": found.cannot}
    spoken = [
        f"{key}: {value}" if value is not True else key for key, value in said.items() if value
    ]
    assert (spoken or [GOES]) == [want]


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
def test_no_shape_of_an_object_is_a_crash(json: dict[str, Any], on_record: bool) -> None:
    for adapter in ADAPTERS.values():
        for action in adapter.steps.values():
            uid = "u" if on_record else ""
            judged(action, REQUEST, "X", json, json, uid=uid, patch=action.patch or {})
            assert given_up(action, "X", json, json) is not None
            taken_back(action, REQUEST, json, action.patch or {})


@pytest.mark.parametrize(
    ("match", "want"),
    [
        (ObjectMatch(condition="Succeeded", value="False"), True),
        (ObjectMatch(condition="Succeeded"), False),
        (ObjectMatch(condition="Other", value="False"), False),
        (ObjectMatch(field="spec.online", value=False), True),
        (ObjectMatch(field="spec.online", value="false"), True),
        (ObjectMatch(field="spec.count", value=3), True),
        (ObjectMatch(field="spec.gone"), False),
        (ObjectMatch(field="spec.gone", negated=True), True),
        (ObjectMatch(annotation="a.b/c", value="x"), True),
        (ObjectMatch(annotation="a.b/c", value="y"), False),
    ],
)
def test_what_a_match_sees(match: ObjectMatch, want: bool) -> None:
    json = {
        "metadata": {"annotations": {"a.b/c": "x"}},
        "spec": {"online": False, "count": 3},
        "status": {"conditions": [{"type": "Succeeded", "status": "False"}]},
    }
    assert holds(match, json) is want


def test_only_what_is_still_ours_is_taken_back() -> None:
    two = {"metadata": {"annotations": {"a": "1", "b": "2"}}}
    action = RepairAction(patch=two)
    json = obj(annotations={"a": "1", "b": "theirs", **OURS})
    assert taken_back(action, REQUEST, json, two) == {
        "metadata": {"annotations": {"a": None, "gpuward.io/repair": None}}
    }
    assert taken_back(action, REQUEST, obj(annotations={"b": "theirs"}), two) == {}


@given(st.dictionaries(st.text(max_size=2), JSON), st.dictionaries(st.text(max_size=2), JSON))
def test_merging_never_changes_its_input(one: dict[str, Any], two: dict[str, Any]) -> None:
    before = repr(one), repr(two)
    merged(one, two)
    assert (repr(one), repr(two)) == before
