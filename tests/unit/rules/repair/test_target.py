"""From the Node to the one object that is asked through, or why there is none."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

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
def test_issue13_02_what_the_node_says_becomes_one_path_or_a_clause(
    action: RepairAction, of: NodeView, want: str
) -> None:
    assert asked(action, of) == want


def test_issue13_02_a_pattern_is_words_and_no_expression() -> None:
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
def test_issue13_02_of_a_list_exactly_one_belongs(
    found: tuple[dict[str, Any], ...], want: str
) -> None:
    rule = TargetRule(
        api_version="karpenter.sh/v1", resource="nodeclaims",
        search=TargetSearch(match={"status.nodeName": "{node}"}),
    )  # fmt: skip
    one = the_one(rule, facts(), found)
    assert (one if isinstance(one, str) else one["metadata"]["name"]) == want
