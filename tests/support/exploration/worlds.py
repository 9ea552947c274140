"""The worlds that are explored: who acts in them, and how they begin."""

from __future__ import annotations

from typing import Any

from rules.policy.policy import Policy
from rules.policy.reader import load_policy
from tests.support.exploration.acts import FOR_ALL, PER_NODE
from tests.support.exploration.invariants import PRIOR_ANNOTATION
from tests.support.exploration.search import Exploration
from tests.support.exploration.sight import Setting
from tests.support.exploration.state import Bundle, HealthState, NodeState, PodState, State

EVERYBODY = frozenset({*PER_NODE, *FOR_ALL})


def policy_of(at_most: int, **more: Any) -> Policy:
    loaded = load_policy(
        {
            "mode": "Enforce",
            "budget": {
                "maxUnavailable": {"percent": 50 * at_most, "atMost": at_most},
                "maxNew": {"count": 3, "window": "1m"},
                "perReason": {"count": 6, "window": "2m"},
                "cooldown": "1m",
            },
            "release": {
                "healthyFor": "30s",
                "cancelExpiry": "200s",
                "replaceAfter": 3,
            },
            "drain": {"settle": "5s", "gangWindow": "30s", "fatalTimeout": "2m"},
            **more,
        }
    )
    assert isinstance(loaded, Policy), loaded
    return loaded


def setting_of(*, gang: bool = False, at_most: int = 1, **more: Any) -> Setting:
    return Setting(
        policy=policy_of(at_most),
        skipping=policy_of(at_most, pods=[{"strategy": "Skip"}]),
        gang=gang,
        **more,
    )


def start_of(acts: int, *, faults: tuple[int, ...] = (1, 1), pdb_minimum: int = 1) -> State:
    """Two healthy or faulty nodes with one pod each; ``acts`` foreign acts may follow."""
    node = NodeState(annotations=(PRIOR_ANNOTATION,))
    first, second = (
        Bundle(node=node, health=HealthState(active=(0,) if fault else ())) for fault in faults
    )
    pods = (PodState(node=0), PodState(node=1))
    return State(bundles=(first, second), pods=pods, pdb_minimum=pdb_minimum, left=acts)


def exploration(
    actors: frozenset[str],
    acts: int,
    *,
    most_states: int = 1_000_000,
    faults: tuple[int, ...] = (1, 1),
    pdb_minimum: int = 1,
    **setting: Any,
) -> Exploration:
    return Exploration(
        setting=setting_of(**setting),
        actors=actors,
        start=start_of(acts, faults=faults, pdb_minimum=pdb_minimum),
        most_states=most_states,
    )


FOREIGN = frozenset(
    {
        "reboot",
        "driver manager",
        "karpenter",
        "node deleted",
        "namesake",
        "autoscaler",
        "kured",
        "person uncordons",
        "leader",
    }
)
"""Controllers of others, and the person whose doing theirs could be taken for."""
PEOPLE = frozenset({name for name in EVERYBODY if name.startswith(("person", "tenant"))}) | {
    "faults",
    "pause",
    "operator",
    "leader",
}
