"""Policies of pools: what a document sets, which pool has a node, and errors with the name."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from rules.api.quarantine import Mode
from rules.catalog.why_not import WhyNot
from rules.policy.policy import (
    Policy,
    by_accident,
    effective_view,
    shadow_of,
    with_installed,
    with_mode,
)
from rules.policy.pools import MAX_POOLS, load_policies

REPOSITORY = Path(__file__).parents[4]
FLEET = {
    "mode": "Enforce",
    "budget": {"maxUnavailable": {"percent": 5}},
    "drain": {"settle": "9s"},
    "reasons": {"ThermalSlowdown": {"level": "Report"}},
    "pods": [{"namespaces": ["jobs"], "strategy": "Skip"}],
}


def pool(name: str, selector: str, **sections: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "nodeSelector": selector, **sections}


def loaded(*documents: object) -> Policy:
    found = load_policies(documents)
    assert isinstance(found, Policy), found
    return found


def problems(*documents: object) -> list[str]:
    found = load_policies(documents)
    assert isinstance(found, tuple), "it was accepted"
    return [problem.sentence("p") for problem in found]


def test_one_document_is_the_policy_of_every_node() -> None:
    policy = loaded(FLEET)
    assert policy.of({"team": "a"}) is policy
    assert policy.policies == (policy,)
    assert load_policies([]) == Policy()


def test_a_pool_has_what_its_document_sets_and_the_rest_of_the_fleet() -> None:
    own = pool(
        "trial",
        "team=a",
        mode="Shadow",
        reasons={"XidRepeats": {"level": "Drain"}, "ThermalSlowdown": None},
        drain={"unmanaged": "Evict"},
        pods=[],
    )
    trial = loaded(own, FLEET).of({"gpuward.io/gpus": "8", "team": "a"})
    assert (trial.name, trial.mode, trial.node_selector) == (
        "trial", Mode.SHADOW, "gpuward.io/gpus,team=a",
    )  # fmt: skip
    assert trial.reasons.keys() == {"XidRepeats"}
    assert (trial.drain.settle_s, trial.drain.unmanaged, trial.pods) == (9, "Evict", ())
    assert trial.budget.max_unavailable.percent == 5


def test_a_pool_has_only_nodes_that_the_fleet_policy_selects() -> None:
    policy = loaded(FLEET, pool("trial", "team=a"))
    assert policy.of({"team": "a"}).name == "default"


def test_the_pool_with_the_most_requirements_has_the_node() -> None:
    policy = loaded(
        FLEET, pool("team", "team in (a)"), pool("racks", "team=a,rack,!old", mode="Shadow")
    )
    labels = {"gpuward.io/gpus": "8", "team": "a"}
    assert policy.of(labels).name == "team"
    assert policy.of({**labels, "rack": "1"}).name == "racks"
    assert policy.of({**labels, "rack": "1", "old": ""}).name == "team"
    assert policy.modes == (Mode.ENFORCE, Mode.SHADOW)


def test_a_node_of_two_pools_is_in_shadow_by_accident_and_both_are_named() -> None:
    policy = loaded(FLEET, pool("zone", "zone=z"), pool("team", "team=a"))
    both = policy.of({"gpuward.io/gpus": "8", "team": "a", "zone": "z"})
    assert (both.name, both.mode, by_accident(both)) == ("team and zone", Mode.SHADOW, True)
    texts = shadow_of(both)
    assert texts is not None
    assert texts.reason is WhyNot.POLICY_OVERLAP
    assert "pools team and zone select the node" in texts.state


def test_the_example_has_a_pool_in_shadow_and_one_that_is_released_by_hand() -> None:
    path = REPOSITORY / "docs" / "examples" / "policies" / "pools.yaml"
    policy = loaded(*yaml.safe_load_all(path.read_text()))
    new, inference = (
        policy.of({"gpuward.io/gpus": "8", "example.com/pool": name})
        for name in ("new", "inference")
    )
    assert (policy.mode, new.mode, inference.mode) == ("Enforce", "Shadow", "Enforce")
    assert (inference.release.approval, new.release.approval) == ("Manual", "Auto")


def test_what_changes_the_policy_changes_its_pools() -> None:
    policy = loaded(FLEET, pool("trial", "team=a", validate={"template": "other"}))
    changed = with_installed(with_mode(policy, Mode.SHADOW), validate=True)
    assert [(p.mode, p.validate.provider) for p in changed.policies] == [("Shadow", "Job")] * 2
    assert [p.name for p in changed.policies] == ["default", "trial"]


def test_the_effective_views_read_back_as_themselves() -> None:
    policy = loaded(FLEET, pool("trial", "team=a", repair={"attempts": 1}))
    views = [effective_view(one) for one in policy.policies]
    assert "budget" not in views[1]
    assert views[1]["repair"].keys() == views[0]["repair"].keys() - {"concurrent", "per"}
    assert loaded(*map(_lists, views)) == policy


def _lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _lists(inner) for key, inner in value.items()}
    return [_lists(inner) for inner in value] if isinstance(value, tuple | list) else value


@pytest.mark.parametrize(
    ("documents", "sentence"),
    [
        pytest.param(
            [{}, {"mode": "Shadow"}],
            "p: holds 2 policies without metadata.name; the fleet has exactly one",
            id="two fleets",
        ),
        pytest.param(
            [pool("a", "team=a")],
            "p: holds 0 policies without metadata.name; the fleet has exactly one",
            id="no fleet",
        ),
        pytest.param(
            [{"mode": "Enforced"}, pool("a", "team=a")],
            "p: policy default: mode is wrong: invalid enum value 'Enforced'; did you mean "
            "Enforce?",
            id="the fleet's own",
        ),
        pytest.param(
            [{}, pool("a", "team=a", drain={"fatalTimout": "1m"})],
            "p: policy a: drain.fatalTimout is not a known key; did you mean fatalTimeout?",
            id="misspelt",
        ),
        pytest.param(
            [{}, pool("a", "team=a", repair={"mode": "Off", "per": ["rack"]})],
            "p: policy a: repair.per limits the fleet; only its policy can set it",
            id="a limit",
        ),
        pytest.param(
            [{}, pool("a", "team=a", budget={})],
            "p: policy a: budget limits the fleet; only its policy can set it",
            id="a budget",
        ),
        pytest.param(
            [{}, {"metadata": {"name": "a"}}],
            "p: policy a: nodeSelector is missing; write the labels of the pool's nodes",
            id="no selector",
        ),
        pytest.param(
            [{}, pool("a", "gpuward.io/gpus")],
            "p: policy a: nodeSelector selects every node of the fleet; write the labels of the "
            "pool's",
            id="all nodes",
        ),
        pytest.param(
            [{}, pool("a", "team=a,rack"), pool("b", "rack, team in (a)")],
            "p: policy b: nodeSelector is that of pool a; no node can be in both",
            id="the same nodes",
        ),
        pytest.param(
            [{}, pool("a", "team=a"), pool("a", "team=b")],
            "p: policy a: metadata.name is the name of an earlier pool",
            id="the same name",
        ),
        pytest.param(
            [{}, pool("A b", "team=a")],
            "p: policy A b: metadata.name is wrong: 'A b' is no name in lower case",
            id="no name",
        ),
        pytest.param(
            [{}, pool("a", "team=a", metadata={"name": "a", "labels": {}})],
            "p: policy a: metadata.labels is not a known key; known are name",
            id="more metadata",
        ),
        pytest.param(
            [{}, *(pool(f"p{i}", f"team=t{i}") for i in range(MAX_POOLS + 1))],
            f"p: holds {MAX_POOLS + 1} pools; {MAX_POOLS} are the most",
            id="too many",
        ),
    ],
)
def test_a_problem_names_document_and_path(documents: list[object], sentence: str) -> None:
    assert problems(*documents) == [sentence]
