"""A plan for people: what holds a thousand nodes is said once, each is found."""

from __future__ import annotations

from typing import Any

from remediator.kubectl.planning.node_plan import NodePlan
from remediator.kubectl.planning.shown import plan_lines

STORM = "Xid79GPUFallenOffBus on 1000 nodes that share rack=r1 (n-0000, n-0001 and 998 more)"
REPAIR = "repair: ResetGPU would be asked of NodeConditions once it is drained"


def one(node: str, **more: Any) -> NodePlan:
    known: dict[str, Any] = {"would": "wait", "reason": "Xid79GPUFallenOffBus"}
    return NodePlan(node=node, **(known | more))


def lines(*planned: NodePlan, wide: bool = False) -> list[str]:
    return "\n".join(plan_lines(planned, wide=wide)).split("\n")


def test_a_reason_of_a_thousand_nodes_is_said_once_with_their_number() -> None:
    held = [one(f"n-{i:04}", because=STORM, blocked_by="CorrelatedCause") for i in range(1000)]
    found = lines(*held)
    assert len(found) < 1000 + 16
    assert sum("share rack=r1" in line for line in found) == 1
    assert any("1000 nodes: Xid79" in line for line in found)
    # A row is short, and what holds the node back can be searched for.
    rows = [line for line in found if "CorrelatedCause" in line]
    assert len(rows) == 1000
    assert max(map(len, rows)) < 100


def test_all_nodes_of_a_reason_are_named_when_asked_for() -> None:
    held = [one(f"n-{i:02}", because=STORM, blocked_by="CorrelatedCause") for i in range(12)]
    assert "and 9 more" in "\n".join(lines(*held))
    assert "n-11" in "\n".join(lines(*held, wide=True)).partition("12 nodes")[2]


def test_what_names_the_node_itself_is_said_once_too() -> None:
    why = 'a person confirms with kubectl gpuward quarantine {} --reason "..."'
    found = lines(*(one(n, because=why.format(n), blocked_by="PerReason") for n in ("a", "a-1")))
    assert "".join(found).count("a person confirms") == 1
    assert any("kubectl gpuward quarantine NODE" in line for line in found)


def test_what_several_nodes_answer_alike_is_said_once_and_the_rest_by_node() -> None:
    drained = [one(n, would="drain", repair=REPAIR) for n in ("a", "b")]
    text = "\n".join(lines(*drained, one("c", because="standing down, kured is at work")))
    assert text.count(REPAIR) == 1
    assert "2 nodes: repair" in text
    assert "\n\nc\n" in text


def test_a_column_is_there_where_it_says_something() -> None:
    calm, busy = (
        lines(one("a", would="drain")),
        lines(one("a", blocked_by="Budget", now="release")),
    )
    assert "WHY" not in calm[0]
    assert "NOW" not in calm[0]
    assert "WHY" in busy[0]
    assert busy[0].endswith("NOW")
