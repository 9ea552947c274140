"""Gauges about sessions: counted by phase, open ones by node, ended ones forgotten."""

from typing import Any

import msgspec
import pytest

from remediator.metrics import Metrics, set_gauges
from rules.api.health import HealthStatus, IncidentStatus
from rules.api.metadata import ObjectMeta, TimedMeta
from rules.api.nodes import HealthView, NodeView, PauseView, QuarantineView
from rules.api.quarantine import (
    BlockedBy,
    Cause,
    Condition,
    DrainStatus,
    Mode,
    PauseScope,
    PauseSpec,
    QuarantineSpec,
    QuarantineStatus,
    ReleaseRequest,
    RepairAttempt,
)
from rules.api.timestamps import parse_time
from rules.policy.policy import Policy
from rules.policy.pools import load_policies
from rules.policy.reader import load_policy
from rules.session.observation import FleetSnapshot


def session(node: str, phase: str, **status: Any) -> QuarantineView:
    causes = (Cause(source="Detector", reason="Xid79GPUFallenOffBus", severity="Fatal"),)
    return QuarantineView(
        metadata=ObjectMeta(name=f"{node}-1"),
        spec=QuarantineSpec(node_name=node, causes=causes),
        status=QuarantineStatus(mode="Enforce", phase=phase, **status),
    )


BLOCKED = session(
    "gpu-7",
    "Draining",
    conditions=(
        Condition(type="NeedsHuman", reason="BudgetNeverAllows"),
        Condition(type="Paused", status="False", reason="Paused"),
    ),
    drain=DrainStatus(
        blocked=(
            BlockedBy(pdb="team/web", permanent=True),
            BlockedBy(pdb="team/chat"),
            BlockedBy(why="no other node has 8 free GPUs"),
        )
    ),
)


def shown(metrics: Metrics, *sessions: QuarantineView, **fleet: Any) -> None:
    """Set the gauges of a fleet with these sessions, in mode Enforce with the defaults."""
    quarantines = {one.name: one for one in sessions}
    policy = Policy(mode=Mode.ENFORCE)
    rest: dict[str, Any] = {"now": 0.0, "policy": policy, "nodes": {}, "healths": {}, **fleet}
    set_gauges(metrics, FleetSnapshot(quarantines=quarantines, **rest))


def lines(metrics: Metrics, name: str) -> list[str]:
    """Series of the metric that are not 0."""
    page = metrics.page().decode().splitlines()
    return [one for one in page if one.startswith(f"{name}{{") and not one.endswith(" 0.0")]


def test_sessions_show_in_metrics() -> None:
    step = RepairAttempt(step="RestartNode", adapter="NodeConditions", state="Failed")
    refused = Condition(type="NeedsHuman", reason="MarkRefused", message="Refused: no.")
    other = Condition(type="Replace", reason="RepeatOffender", message="Third session.")
    metrics = Metrics()
    shown(
        metrics,
        BLOCKED,
        session("gpu-8", "Repairing", repair=(step,)),
        session("gpu-1", "Released", repair=(step,)),
        # Of an ended session only a taint and cordon that cannot come off is shown.
        session("gpu-2", "Released", conditions=(refused, other)),
    )

    failed = 'adapter="NodeConditions"', 'state="Failed",step="RestartNode"'
    reason = 'reason="Xid79GPUFallenOffBus",severity="Fatal"'
    for name, expected in {
        "gpuward_sessions": [
            '{mode="Enforce",phase="Draining"} 1.0',
            '{mode="Enforce",phase="Repairing"} 1.0',
            '{mode="Enforce",phase="Released"} 2.0',
        ],
        "gpuward_open_session": [
            f'{{mode="Enforce",node="gpu-7",phase="Draining",{reason}}} 1.0',
            f'{{mode="Enforce",node="gpu-8",phase="Repairing",{reason}}} 1.0',
        ],
        "gpuward_open_session_condition": [
            '{condition="NeedsHuman",node="gpu-7",reason="BudgetNeverAllows"} 1.0',
            '{condition="NeedsHuman",node="gpu-2",reason="MarkRefused"} 1.0',
        ],
        "gpuward_blocked_pdbs": ['{permanent="true"} 1.0', '{permanent="false"} 1.0'],
        "gpuward_open_session_repair": [f'{{{failed[0]},node="gpu-8",{failed[1]}}} 1.0'],
    }.items():
        assert lines(metrics, name) == [f"{name}{series}" for series in expected]


def test_a_budget_that_a_dry_run_of_shadow_met_keeps_no_drain_waiting() -> None:
    metrics = Metrics()
    shadow = msgspec.structs.replace(BLOCKED.status, mode="Shadow", phase="Marked")

    shown(metrics, msgspec.structs.replace(BLOCKED, status=shadow))

    assert lines(metrics, "gpuward_blocked_pdbs") == []


def test_an_ended_session_takes_its_series_along() -> None:
    metrics = Metrics()

    shown(metrics, BLOCKED)
    shown(metrics, session("gpu-7", "Released"))

    assert lines(metrics, "gpuward_open_session") == []
    assert lines(metrics, "gpuward_open_session_condition") == []
    assert lines(metrics, "gpuward_blocked_pdbs") == []


def test_pauses_in_force_and_held_nodes_are_series() -> None:
    now = 1_800_000_000.0
    made = "2027-01-14T07:00:00Z"
    pauses = {
        "drill": PauseView(metadata=ObjectMeta(name="drill", creation_timestamp=made)),
        "over": PauseView(
            metadata=ObjectMeta(name="over", creation_timestamp=made),
            spec=PauseSpec(until="2027-01-14T07:30:00Z"),
        ),
    }
    by_annotation = NodeView(
        metadata=ObjectMeta(name="gpu-1", annotations={"gpuward.io/hold": "vendor"})
    )
    kept = session("gpu-2", "Validating")
    kept = msgspec.structs.replace(kept, spec=msgspec.structs.replace(kept.spec, hold=True))
    metrics = Metrics()

    shown(metrics, kept, pauses=pauses, nodes={"gpu-1": by_annotation}, now=now)

    (in_force,) = lines(metrics, "gpuward_pause_created_timestamp_seconds")
    series, _, value = in_force.rpartition(" ")
    assert series == 'gpuward_pause_created_timestamp_seconds{pause="drill"}'
    assert float(value) == parse_time(made)
    assert sorted(lines(metrics, "gpuward_node_held")) == [
        'gpuward_node_held{node="gpu-1"} 1.0',
        'gpuward_node_held{node="gpu-2"} 1.0',
    ]

    shown(metrics, now=now)

    assert lines(metrics, "gpuward_node_held") == []


LOST = IncidentStatus(
    id="i-1", reason="Xid79GPUFallenOffBus", severity="Fatal", level="Drain", active=True
)
REPORTED = {"reasons": {LOST.reason: {"level": "Report"}}}


@pytest.mark.parametrize(
    ("labels", "policy", "released", "why"),
    [
        pytest.param({}, {}, False, [], id="to be quarantined"),
        pytest.param({"gpuward.io/opt-out": "true"}, {}, False, ["OptOut"], id="opted out"),
        pytest.param({}, {"mode": "Shadow"}, False, ["PolicyIsShadow"], id="policy in Shadow"),
        pytest.param({}, REPORTED, False, ["Report"], id="only reported by policy"),
        pytest.param({}, {}, True, ["Released"], id="returned to service by an operator"),
    ],
)
def test_sick_nodes_that_are_left_alone_by_a_decision_are_a_series(
    labels: dict[str, str], policy: dict[str, Any], released: bool, why: list[str]
) -> None:
    node = NodeView(metadata=ObjectMeta(name="gpu-7", labels=labels))
    health = HealthView(metadata=TimedMeta(name="gpu-7"), status=HealthStatus(incidents=(LOST,)))
    made = parse_time("2027-01-14T07:00:00Z") or 0.0
    ended = session("gpu-7", "Released", phase_since="2027-01-14T07:00:00Z")
    causes = (Cause(source="Detector", incident="i-1"),)
    ended = msgspec.structs.replace(
        ended,
        spec=msgspec.structs.replace(
            ended.spec, causes=causes, release=ReleaseRequest(by="ann", reason="tested")
        ),
    )
    loaded = load_policy({"mode": "Enforce", **policy})
    assert isinstance(loaded, Policy)
    metrics = Metrics()
    nodes, healths = {"gpu-7": node}, {"gpu-7": health}
    past = [ended] if released else []
    shown(metrics, *past, nodes=nodes, healths=healths, policy=loaded, now=made + 60)
    assert lines(metrics, "gpuward_node_left_alone") == [
        f'gpuward_node_left_alone{{node="gpu-7",why="{one}"}} 1.0' for one in why
    ]


@pytest.mark.parametrize(
    ("scope", "why"),
    [
        pytest.param(PauseScope(nodes=("gpu-7",)), ["Paused"], id="by name"),
        pytest.param(
            PauseScope(node_selector={"matchLabels": {"rack": "a17"}}), ["Paused"], id="by label"
        ),
        pytest.param(PauseScope(nodes=("gpu-8",)), [], id="another node"),
        pytest.param(PauseScope(all=True), [], id="everything"),
        pytest.param(PauseScope(all=True, nodes=("gpu-7",)), [], id="everything, and it by name"),
        pytest.param(
            PauseScope(node_selector={"matchLabels": {}}), [], id="everything, by no label at all"
        ),
        pytest.param(PauseScope(), [], id="nobody knows what"),
    ],
)
def test_walk_a_pause_of_a_node_is_a_decision_about_it_one_of_everything_is_none(
    scope: PauseScope, why: list[str]
) -> None:
    labels = {"rack": "a17"}
    node = NodeView(metadata=ObjectMeta(name="gpu-7", labels=labels))
    health = HealthView(metadata=TimedMeta(name="gpu-7"), status=HealthStatus(incidents=(LOST,)))
    until = "2027-01-14T08:00:00Z"
    pause = PauseView(
        metadata=ObjectMeta(name="p"), spec=PauseSpec(scope=scope, reason="tests", until=until)
    )
    end = parse_time(until) or 0.0
    for now, arguments in ((end - 1, why), (end, [])):
        metrics = Metrics()
        nodes, healths = {"gpu-7": node}, {"gpu-7": health}
        shown(metrics, nodes=nodes, healths=healths, pauses={"p": pause}, now=now)
        assert lines(metrics, "gpuward_node_left_alone") == [
            f'gpuward_node_left_alone{{node="gpu-7",why="{one}"}} 1.0' for one in arguments
        ]


def test_nodes_show_their_policy_and_pools_that_overlap_are_counted() -> None:
    pools = [
        {"metadata": {"name": name}, "nodeSelector": selector, "mode": mode}
        for name, selector, mode in (("zone", "zone=z", "Enforce"), ("trial", "team=t", "Shadow"))
    ]
    policy = load_policies([{"mode": "Enforce"}, *pools])
    assert isinstance(policy, Policy)
    trial, zone = {"team": "t"}, {"zone": "z"}
    found = {"gpu-1": {}, "gpu-2": trial, "gpu-3": trial | zone, "gpu-4": trial | zone}
    nodes = {
        name: NodeView(metadata=ObjectMeta(name=name, labels={"gpuward.io/gpus": "8", **labels}))
        for name, labels in found.items()
    }
    healths = {
        name: HealthView(metadata=TimedMeta(name=name), status=HealthStatus(incidents=(LOST,)))
        for name in nodes
    }
    metrics = Metrics()
    for _ in range(2):
        shown(metrics, policy=policy, nodes=nodes, healths=healths)
    assert sorted(lines(metrics, "gpuward_node_policy")) == [
        'gpuward_node_policy{mode="Enforce",node="gpu-1",policy="default"} 1.0',
        'gpuward_node_policy{mode="Shadow",node="gpu-2",policy="trial"} 1.0',
        'gpuward_node_policy{mode="Shadow",node="gpu-3",policy="trial and zone"} 1.0',
        'gpuward_node_policy{mode="Shadow",node="gpu-4",policy="trial and zone"} 1.0',
    ]
    assert lines(metrics, "gpuward_policy_overlap_nodes") == [
        'gpuward_policy_overlap_nodes{policy="trial and zone"} 2.0'
    ]
    assert lines(metrics, "gpuward_node_left_alone") == [
        'gpuward_node_left_alone{node="gpu-2",why="PolicyIsShadow"} 1.0'
    ]
    shown(metrics, nodes=nodes)
    assert lines(metrics, "gpuward_node_policy") == []
    assert lines(metrics, "gpuward_policy_overlap_nodes") == []
