"""`kubectl gpuward why`: short, bounded, nothing twice, and a reason for every silence.

What it prints for whole clusters is in tests/golden/kubectl; here are its rules and corners.
"""

from __future__ import annotations

import re

import msgspec
import pytest

from remediator.kubectl.node_look import NodeLook
from remediator.kubectl.why import why_lines as why
from rules.policy.policy import Policy
from rules.policy.reader import load_policy
from tests.support.remediator.kubectl_cluster import REPOSITORY
from tests.support.remediator.kubectl_looks import ENFORCE, NAME, look
from tests.support.remediator.kubectl_objects import (
    ago,
    condition,
    marked,
    node,
    session,
    sick,
    verdict,
)

GOLDEN = REPOSITORY / "tests" / "golden" / "kubectl"


def transcripts() -> list[str]:
    found = []
    for name in ("why", "why-other-states", "why-wide"):
        text = (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")
        found += [part for part in text.split("$ kubectl gpuward ") if part]
    return found


@pytest.mark.parametrize("text", transcripts(), ids=lambda text: text.split("\n")[0])
def test_lines_are_short_and_none_comes_twice(text: str) -> None:
    """Evidence and commands stay whole, to be copied; everything else fits a small terminal."""
    _, *lines = text.rstrip().split("\n")
    assert [line for line in lines if len(line) > 100 and not re.search("> |kubectl ", line)] == []
    assert len(lines) == len(set(lines))
    assert len(lines) < 40


def test_a_healthy_node_says_so_in_two_lines() -> None:
    assert why(look(verdict(NAME))) == [
        "gpu-7: in service",
        (
            "health   Healthy, 8/8 GPUs usable, driver 580.95.05; last changed 60m ago, "
            "its agent is alive"
        ),
    ]


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        pytest.param(look(sick(NAME)), "a session should have opened within seconds",
                     id="remediator away"),
        pytest.param(look(sick(NAME), policy=Policy()), "nothing is touched in Shadow",
                     id="Shadow"),
        pytest.param(
            look(sick(NAME, publisher={"heartbeat": ago(60)})),
            "nothing while its verdict cannot be believed",
            id="agent silent",
        ),
        pytest.param(
            look(sick(NAME), on=node(NAME, labels={"gpuward.io/opt-out": "true"})),
            "nothing while it is opted out",
            id="opted out",
        ),
        pytest.param(
            look(sick(NAME), policy=msgspec.structs.replace(ENFORCE, node_selector="pool=a")),
            "nodeSelector 'pool=a' does not select it",
            id="not selected",
        ),
        pytest.param(
            look(sick(NAME), policy=load_policy({
                "mode": "Enforce",
                "reasons": {"Xid95UncontainedMemoryError": {"level": "Report"}},
            })),
            "is only reported (level Report)",
            id="level Report",
        ),
        pytest.param(
            look(sick(NAME), session("s", NAME, "Released", "m", spec={"release": {"by": "ann"}})),
            "a person ended session s",
            id="released by a person",
        ),
        pytest.param(look(None), "missing data is never treated as a failure", id="no verdict"),
    ],
)  # fmt: skip
def test_a_node_without_a_session_says_why_nothing_is_done(seen: NodeLook, said: str) -> None:
    assert said in " ".join(" ".join(why(seen)).split())


def reported(severity: str, *, cordoned: bool = False) -> str:
    """`why` of a node in service with an incident that the policy only reports."""
    health = sick(NAME)
    one = health["status"]["incidents"][0]
    one |= {"reason": "ThermalSlowdown", "severity": severity, "level": "Report"}
    return "\n".join(why(look(health, on=node(NAME, spec={"unschedulable": cordoned}))))


def test_walk_what_is_only_reported_leaves_the_node_to_a_person() -> None:
    """Who finds that too little learns how to take it out; a program's fault is no ground."""
    taken = f'you can  kubectl gpuward quarantine {NAME} --reason "..."   take it out of service'
    assert taken in reported("Degraded")
    assert "you can" not in reported("Info")
    assert "the node stays in service" in reported("Info")
    assert "the node stays as it is" in reported("Info", cordoned=True)


def test_an_agent_that_is_not_there_says_where_to_look() -> None:
    unlabelled = node(NAME)
    del unlabelled["metadata"]["labels"]["gpuward.io/gpus"]
    text = "\n".join(why(look(None, on=unlabelled)))
    assert "no agent has ever published a verdict" in text
    assert "kubectl get daemonset -A -l app.kubernetes.io/name=gpuward" in text


def test_what_may_not_be_read_is_named_and_the_rest_is_told() -> None:
    lines = why(look(sick(NAME), session("s", NAME, "Draining", "m"), node=None, agents=None,
                     unseen=("the node (get nodes)",)))  # fmt: skip
    text = "\n".join(lines)
    assert lines[0] == "gpu-7: Draining for 14m (session s)"
    assert "unseen   the node (get nodes)" in text
    assert "agent is alive" not in text
    assert "NVRM: Xid" in text


def test_a_flood_of_incidents_gpus_and_steps_stays_readable() -> None:
    flood = sick(NAME)
    incident = flood["status"]["incidents"][0]
    many = [
        {**incident, "id": f"i-{n}", "gpus": [f"GPU-{m}" for m in range(16)]} for n in range(64)
    ]
    flood["status"]["incidents"] = many
    blocked = [
        {"pdb": f"a/{n}", "why": "w", "pods": {"named": [{"name": "a/b"}] * 50}} for n in range(50)
    ]
    one = session("s", NAME, "Draining", "m", steps=("Draining",) * 100,
                  drain={"evicted": 1, "blocked": blocked})  # fmt: skip
    lines = why(look(flood, one))
    assert "and 59 more active incidents: -o wide" in "\n".join(lines)
    assert len(lines) < 100
    assert len(why(look(flood, one), wide=True)) > 1000


def test_a_mark_that_cannot_come_off_says_who_refuses_and_what_to_do() -> None:
    """The session has ended, so nothing else would tell why the node is still out of service."""
    clause = (
        "the API server does not let the remediator take its mark off the node (403 no), ask who"
    )
    ended = session(
        "s", NAME, "Released", f"Released: healthy for 10m; refused: {clause}.",
        conditions=[condition("Blocked", "MarkRefused", f"Refused: {clause}.")],
    )  # fmt: skip
    text = " ".join(" ".join(why(look(verdict(NAME), ended, on=marked(NAME, "s")))).split())
    assert "carries a mark of gpuward without an open session" in text
    assert f"refused: {clause}." in text
    assert "blocked MarkRefused" in text
    assert "ends with: whoever runs the admission policy or webhook" in text
