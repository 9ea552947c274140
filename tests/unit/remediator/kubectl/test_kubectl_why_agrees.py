"""`why` predicts the next step with the rules that decide it, not with a copy of them."""

from collections.abc import Callable
from typing import Any

import pytest
import yaml

from remediator.kubectl.node_state import GPU_LABELS, NodeLook, has_gpus
from remediator.kubectl.why import why_lines as why
from rules.api.metadata import ObjectMeta
from rules.api.names import LABEL_GPUS
from rules.api.nodes import NodeStatus, NodeView
from rules.policy.policy import Policy, UnreadPolicy
from rules.policy.pools import load_policies
from rules.session.decide import decide
from tests.support.cluster.manifest_builds import REPOSITORY
from tests.support.remediator.kubectl_looks import NAME, SESSION, summary
from tests.support.remediator.kubectl_looks import look as seen_by
from tests.support.remediator.kubectl_objects import (
    NOW,
    Object,
    ago,
    condition,
    node,
    quarantined,
    session,
    sick,
)
from tests.support.scenario.session_world import policy_of

OPENS = "a session should have opened"
"""Of a fault that is a quarter of an hour old, as `sick` has it."""
NOW_OPENS = "a session opens within seconds"
TAINTS = {"reason": "VendorSaysSo", "for": "0s", "match": "taint vendor.example.com/bad"}
OTHERS = policy_of(external=[{**TAINTS, "level": "Drain"}])
OTHERS_REPORTED = policy_of(external=[{**TAINTS, "level": "Report"}])
TAINTED = {"taints": [{"key": "vendor.example.com/bad", "effect": "NoSchedule"}]}


def ended(number: int, by_operator: bool = False, **more: Any) -> Object:
    cause = {"source": "Detector", "incident": f"i-{NAME}" if by_operator else f"old-{number}"}
    spec: Object = {"causes": [cause]}
    if by_operator:
        spec["release"] = {"by": "ann", "reason": "mine"}
    phase = "Released" if by_operator else "Cancelled"
    one = session(f"{NAME}-{number}", NAME, phase, "Over.", spec=spec, **more)
    one["metadata"]["creationTimestamp"] = ago(30 - number)
    return one


def look(
    *,
    policy: Policy | None = None,
    labels: dict[str, str] | None = None,
    spec: Object | None = None,
    sessions: tuple[Object, ...] = (),
    health: Object | None = None,
    annotations: dict[str, str] | None = None,
) -> NodeLook:
    there = node(NAME, labels=labels or {}, spec=spec or {}, annotations=annotations or {})
    return seen_by(health or sick(NAME), *sessions, on=there, policy=policy or policy_of())


SILENT = sick(NAME, publisher={"heartbeat": ago(60)})
MANY = tuple(ended(number, steps=("Pending", "Joined")) for number in range(6))
QUIET: dict[str, tuple[Callable[[], NodeLook], str]] = {
    "no blocker": (look, OPENS),
    "opted out": (lambda: look(labels={"gpuward.io/opt-out": "true"}), "node is opted out"),
    "a silent agent": (lambda: look(health=SILENT), "repair the agent first"),
    "not selected": (lambda: look(policy=policy_of(nodeSelector="a=b")), "does not select it"),
    "ended by an operator": (
        lambda: look(sessions=(ended(1, by_operator=True),)),
        f"an operator ended session {NAME}-1",
    ),
    "one that goes on, however many there were": (lambda: look(sessions=MANY), OPENS),
    "others report it while the agent is silent": (
        lambda: look(policy=OTHERS, spec=TAINTED, health=SILENT),
        NOW_OPENS,
    ),
    "others say what is only reported, while the agent is silent": (
        lambda: look(policy=OTHERS_REPORTED, spec=TAINTED, health=SILENT),
        "repair the agent first",
    ),
}


@pytest.mark.parametrize("case", QUIET)
def test_why_predicts_the_opening_of_a_session_by_the_rules(case: str) -> None:
    made, expected = QUIET[case]
    seen = made()
    assert seen.node is not None
    assert seen.policy is not None
    message = " ".join(" ".join(why(seen)).split())
    assert expected in message
    decided = decide(None, seen.observed(seen.node, seen.policy), NOW, seen.policy)
    assert (decided.step in {"Open", "Reopen"}) == (OPENS in message or NOW_OPENS in message), (
        decided
    )


@pytest.mark.parametrize(("minutes", "doubts"), [(0.5, False), (15, True)])
def test_a_session_that_should_have_opened_long_ago_is_not_promised_without_a_doubt(
    minutes: float, doubts: bool
) -> None:
    """Without its rights the remediator cannot report that it lacks them."""
    health = sick(NAME)
    health["status"]["incidents"][0]["firstSeen"] = ago(minutes)
    message = " ".join(summary(look(health=health)).split())
    assert ("a session opens within seconds" in message) != doubts
    since = f"{OPENS} 15m ago"
    assert (since in message) == doubts
    assert ("the remediator does not act: check its permissions with" in message) == doubts


@pytest.mark.parametrize("mode", ["Shadow", "Enforce"])
def test_why_sends_nobody_to_a_mode_where_no_policy_could_be_read(mode: str) -> None:
    paused = [condition("Paused", "PolicyUnread", "No policy could be read.")]
    phase, holds = ("Draining", paused) if mode == "Enforce" else ("Marked", [])
    opened = session(SESSION, NAME, phase, "So it stands.", mode=mode, conditions=holds)
    there = quarantined(NAME, SESSION) if mode == "Enforce" else node(NAME)
    message = summary(seen_by(sick(NAME), opened, on=there, policy=UnreadPolicy()))
    assert "mode Enforce" not in message
    assert "switched" not in message
    if mode == "Enforce":
        assert "correct the policy; to see its errors: kubectl gpuward pre" in message
    else:
        assert "nothing in Shadow mode: the remediator has read no valid policy since" in message
        assert "a valid policy ends it" in message


@pytest.mark.parametrize(
    ("labels", "resources", "gpus"),
    [
        ({}, {"nvidia.com/gpu": "8"}, True),
        ({}, {"nvidia.com/gpu": "0", "nvidia.com/mig-1g.10gb": "56"}, True),
        ({}, {"nvidia.com/gpu.shared": "32"}, True),
        ({}, {"nvidia.com/gpu-h100": "8"}, True),
        ({"nvidia.com/gpu.present": "true"}, {"cpu": "64"}, True),
        ({"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"}, {}, True),
        ({"nvidia.com/gpu.present": "false"}, {"cpu": "64"}, False),
        ({"accelerator": "amd"}, {"amd.com/gpu": "8"}, False),
        ({}, {"nvidia.com/hostdev": "8", "amd.com/gpu": "8"}, False),
    ],
)
def test_gpu_nodes_are_found_by_label_or_resource(
    labels: dict[str, str], resources: dict[str, str], gpus: bool
) -> None:
    meta = ObjectMeta(name="n", labels=labels)
    assert has_gpus(NodeView(metadata=meta, status=NodeStatus(allocatable=resources))) == gpus


def test_the_agent_runs_where_a_label_shows_gpus() -> None:
    text = (REPOSITORY / "daemonset" / "base" / "agent-daemonset.yaml").read_text()
    affinity = yaml.safe_load(text)["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    terms = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    rules = [rule for term in terms for rule in term["matchExpressions"]]
    asked = {rule["key"]: "".join(rule.get("values", ())) for rule in rules}
    assert asked == {**GPU_LABELS, LABEL_GPUS: ""}


@pytest.mark.parametrize(
    ("labels", "line", "reason"),
    [
        pytest.param({}, "policy   default, mode Enforce", OPENS, id="fleet"),
        pytest.param({"team": "t"}, "policy   trial, mode Shadow", "in Shadow mode; ", id="pool"),
        pytest.param(
            {"team": "t", "zone": "z"},
            "policy   trial and zone, mode Shadow",
            "in Shadow mode: pools trial and zone select the node with equally many requirements",
            id="overlap",
        ),
    ],
)
def test_why_names_the_policy_of_the_node(labels: dict[str, str], line: str, reason: str) -> None:
    pools = load_policies(
        [
            {"mode": "Enforce"},
            {"metadata": {"name": "trial"}, "nodeSelector": "team=t", "mode": "Shadow"},
            {"metadata": {"name": "zone"}, "nodeSelector": "zone=z"},
        ]
    )
    assert isinstance(pools, Policy)
    seen = look(policy=pools.of({LABEL_GPUS: "8", **labels}), labels=labels)
    assert line in why(seen)
    assert reason in summary(seen)
    assert not any(one.startswith("policy ") for one in why(look()))
