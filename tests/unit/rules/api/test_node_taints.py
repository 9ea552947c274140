"""Taints of devices in the ResourceSlices of a node: pools, generations and hostile objects."""

from typing import Any

import msgspec
import pytest

from rules.api import resource_slices
from rules.api.metadata import ObjectMeta
from rules.api.nodes import NodeView
from rules.api.resource_slices import NodeTaints, ResourceSliceView, node_taints
from rules.policy.policy import Policy
from rules.policy.reader import load_policy
from rules.session import external
from rules.text import tolerant
from tests.support.cluster.slices import neuron_slice, taint


def device(name: str, *taints: Any) -> dict[str, Any]:
    return {"name": name, "taints": list(taints)}


def taints_of(*specs: Any) -> NodeTaints:
    bodies = [msgspec.json.encode({"spec": spec}) for spec in specs]
    views = [tolerant.understand(body, ResourceSliceView).value for body in bodies]
    return node_taints([view for view in views if view is not None])


TAINTED = device("d", taint("a"))
OTHER_POOL = {"name": "q", "generation": 9, "resourceSliceCount": 1}
CROWDED = [device(f"d{n}") for n in range(resource_slices.MAX_DEVICES + 1)]


@pytest.mark.parametrize(
    ("slices", "found", "complete"),
    [
        pytest.param([], [], False, id="no slice"),
        pytest.param([neuron_slice("n", device("d"))], [], True, id="none"),
        pytest.param(
            [neuron_slice("n", device("e", taint("b"), taint("a")), device("d", taint("c")))],
            [("d", "c"), ("e", "a"), ("e", "b")], True, id="in order",
        ),
        pytest.param(
            [neuron_slice("n", {"name": "d", "basic": {"taints": [taint("a")]}})],
            [("d", "a")], True, id="v1beta1",
        ),
        pytest.param(
            [neuron_slice("n", device("d", taint("gpuward.io/quarantine"), taint("a")))],
            [("d", "a")], True, id="gpuward's own",
        ),
        pytest.param(
            [neuron_slice("n", TAINTED), neuron_slice("n", device("d"), generation=2)],
            [], True, id="an older generation",
        ),
        pytest.param(
            [neuron_slice("n", TAINTED, count=2)], [("d", "a")], False, id="half of a pool",
        ),
        pytest.param(
            [neuron_slice("n", TAINTED), neuron_slice("n", device("e"), pool=OTHER_POOL)],
            [("d", "a")], True, id="two pools",
        ),
        pytest.param(
            [neuron_slice("n", device("d", 7, taint("a"), {"key": 3, "effect": "NoExecute"}))],
            [("d", ""), ("d", "a")], False, id="taints of wrong types",
        ),
        pytest.param([neuron_slice("n", devices="all")], [], False, id="devices are a string"),
        pytest.param([neuron_slice("n", None, 5, [])], [], False, id="devices are no objects"),
        pytest.param([neuron_slice("n", pool=[])], [], False, id="a pool that is a list"),
        pytest.param([1], [], False, id="no spec"),
        pytest.param([neuron_slice("n", *CROWDED)], [], False, id="too many devices"),
    ],
)  # fmt: skip
def test_the_taints_of_a_node(slices: list[Any], found: list[Any], complete: bool) -> None:
    taints = taints_of(*slices)
    assert [(each.device, each.taint.key) for each in taints.tainted] == found
    assert taints.complete is complete


@pytest.mark.parametrize(
    ("match", "given", "matches"),
    [
        ("k", taint("k"), True),
        ("k", taint("k2"), False),
        ("k", taint("k", "NoSchedule"), True),
        ("k", taint("k", "None"), False),
        ("k", taint("k", "Sudden"), False),
        ("k", taint("k", ""), False),
        ("k:None", taint("k", "None"), True),
        ("k:NoExecute", taint("k", "NoSchedule"), False),
        ("k=v", taint("k", value="v"), True),
        ("k=v", taint("k", value="w"), False),
        ("k=", taint("k", value="v"), False),
        ("HealthIssues-*", taint("HealthIssues-memorytemperature"), True),
        ("HealthIssues-*", taint("Unbound"), False),
        ("*", taint("\x1b[2J" + "x" * 100_000, value="\n"), True),
        ("*", taint("gpuward.io/quarantine", "NoSchedule"), False),
    ],
)
def test_a_trigger_matches_key_value_and_effect(
    match: str, given: dict[str, Any], matches: bool
) -> None:
    trigger = {"match": f"deviceTaint d.io {match}", "reason": "R", "for": "0s"}
    policy = load_policy({"external": [trigger]})
    assert isinstance(policy, Policy), policy
    taints = {"d.io": taints_of(neuron_slice("n", device("d", given)))}
    found = external.external_of(
        NodeView(metadata=ObjectMeta()), policy, 1000.0, {}, taints
    ).incidents
    assert bool(found) is matches
    for incident in found:
        (evidence,) = incident.evidence
        assert evidence.startswith("Node device d of d.io has taint ")
        assert evidence.isprintable()
        assert len(evidence) <= 512
