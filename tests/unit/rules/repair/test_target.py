"""From the Node to the one object that is asked through, or why there is none."""

from __future__ import annotations

import re
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules.api.nodes import NodeView
from rules.repair.adapter import NodeReference, RepairAction, TargetRule, TargetSearch
from rules.repair.shipped import ADAPTERS
from rules.repair.target import query_of, the_one
from tests.unit.rules.repair.test_template import facts


def node(provider: str = "", **annotations: str) -> NodeView:
    named = {f"cluster.x-k8s.io/{key.replace('_', '-')}": v for key, v in annotations.items()}
    return msgspec.convert(
        {"metadata": {"name": "gpu-1", "annotations": named}, "spec": {"providerID": provider}},
        NodeView,
    )


def asked(action: RepairAction, of: NodeView) -> str:
    """The path that is read, or the clause."""
    found = query_of(action, "request-1", facts(), of, own_namespace="gpuward")
    return found if isinstance(found, str) else found.address.path


(CAPI,) = ADAPTERS["ClusterAPI"].steps.values()
HOST = next(iter(ADAPTERS["Metal3"].steps.values()))


@pytest.mark.parametrize(
    ("action", "of", "want"),
    [
        (CAPI, node(machine="m-1", cluster_namespace="capi"),
         "/apis/cluster.x-k8s.io/%2A/namespaces/capi/machines/m-1"),
        (CAPI, node(machine="m-1"),
         "the Node has no annotation cluster.x-k8s.io/cluster-namespace"),
        (CAPI, node(machine="../../nodes/x", cluster_namespace="capi"),
         "the Node's annotation cluster.x-k8s.io/machine does not read {name}"),
        (CAPI, node(machine="..", cluster_namespace="capi"),
         "what the Node says of its machines is no name that an object can have"),
        (CAPI, node(machine="M?x=y", cluster_namespace="capi"),
         "what the Node says of its machines is no name that an object can have"),
        (HOST, node("metal3://metal/host-1/m3m-1"),
         "/apis/metal3.io/v1alpha1/namespaces/metal/baremetalhosts/host-1"),
        (HOST, node("metal3://7a1f"),
         "the Node's providerID does not read metal3://{namespace}/{name}/{}"),
        (HOST, node("aws:///eu/i-1/x"),
         "the Node's providerID does not read metal3://{namespace}/{name}/{}"),
        (HOST, node("metal3://a/b/c/d"),
         "the Node's providerID does not read metal3://{namespace}/{name}/{}"),
        (HOST, node(), "the Node has no providerID"),
        (RepairAction(target=TargetRule(api_version="batch/v1", resource="jobs", kind="Job",
                                        namespace="{namespace}"), create={}),
         node(), "/apis/batch/v1/namespaces/gpuward/jobs/request-1"),
    ],
)  # fmt: skip
def test_what_the_node_says_becomes_one_path_or_a_clause(
    action: RepairAction, of: NodeView, want: str
) -> None:
    assert asked(action, of) == want


def test_a_pattern_is_words_and_no_expression() -> None:
    rule = TargetRule(
        api_version="v1", resource="things",
        reference=(NodeReference(provider_id=True, pattern="a.*b://{name}"),),
    )  # fmt: skip
    action = RepairAction(target=rule, delete=True)
    assert asked(action, node("a.*b://x")) == "/api/v1/things/x"
    assert "does not read" in asked(action, node("aXXb://x"))


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
         "the one of the nodeclaims that belongs to the node has no usable name"),
    ],
)  # fmt: skip
def test_of_a_list_exactly_one_belongs(found: tuple[dict[str, Any], ...], want: str) -> None:
    rule = TargetRule(
        api_version="karpenter.sh/v1", resource="nodeclaims",
        search=TargetSearch(match={"status.nodeName": "{node}"}),
    )  # fmt: skip
    one = the_one(rule, facts(), found)
    assert (one if isinstance(one, str) else one["metadata"]["name"]) == want


def referred(pattern: str, text: str) -> str:
    rule = TargetRule(
        api_version="v1", resource="things",
        reference=(NodeReference(provider_id=True, pattern=pattern),),
    )  # fmt: skip
    return asked(RepairAction(target=rule, delete=True), node(text))


@given(
    st.lists(st.sampled_from(["", "a", "b", "ab", "/", "a/"]), min_size=2, max_size=5),
    st.integers(0, 4),
    st.text("ab/", min_size=1, max_size=12),
)
def test_parts_of_a_pattern_are_as_long_as_possible(
    literals: list[str], place: int, text: str
) -> None:
    """As the regular expression that says the same: one part is {name}, the others are {}."""
    inner = [literal or "a" for literal in literals[1:-1]]
    literals = [literals[0], *inner, literals[-1]]
    at = place % (len(literals) - 1)
    parts = ["{name}" if i == at else "{}" for i in range(len(literals) - 1)]
    pattern = literals[0] + "".join(map("".join, zip(parts, literals[1:], strict=True)))
    same = re.fullmatch("([^/]+)".join(map(re.escape, literals)), text)
    found = referred(pattern, text)
    if same is None:
        assert "does not read" in found
    else:
        assert found == f"/api/v1/things/{same[at + 1]}"


def test_a_long_value_of_a_node_costs_time_in_proportion_to_its_length() -> None:
    """A pattern of four parts took 15 times as long for twice the length."""

    def seconds(length: int) -> float:
        began = time.process_time()
        for _ in range(100):
            assert "does not read" in referred("{}a{}a{}a{name}!", "a" * length)
        return time.process_time() - began

    seconds(40)
    assert min(seconds(80) for _ in range(3)) < 6 * min(seconds(40) for _ in range(3))
