"""Fleets and sessions for the tests of the review page: values only, any size."""

from collections.abc import Iterable
from typing import Any

import msgspec

from remediator.page.rendering import render_page
from remediator.view.fleet_view import fleet_page, history_page
from remediator.view.node_view import node_page
from remediator.view.shapes import FleetFilter, NodePage, ReplicaShown
from remediator.view.state import LiveSource, PageState, sessions_by_node
from rules.api.health import (
    GpuReadings,
    GpuStatus,
    HealthStatus,
    IncidentStatus,
    PublisherPod,
    SourceStatus,
)
from rules.api.metadata import ObjectMeta, TimedMeta
from rules.api.nodes import HealthView, NodeView, PauseView, QuarantineView
from rules.api.quarantine import (
    BlockedBy,
    Cause,
    Condition,
    DrainStatus,
    Mode,
    PodNote,
    QuarantineSpec,
    QuarantineStatus,
    TimelineEntry,
    pods_of,
)
from rules.api.timestamps import format_time, parse_time
from rules.fleet.common_cause import common_causes
from rules.fleet.memory import FleetMemory
from rules.fleet.turns import judge_fleet
from rules.policy.policy import Policy
from rules.session.observation import FleetSnapshot

NOW = parse_time("2026-03-05T12:00:00Z") or 0.0
XID_79 = "NVRM: Xid (PCI:0000:61:00): 79, pid=1, name=a, GPU has fallen off the bus."


def ago(seconds: float) -> str:
    return format_time(NOW - seconds)


def node(name: str, *, rack: str = "r0", pool: str = "train", **changes: Any) -> NodeView:
    labels = {
        "pool": pool,
        "topology.example.com/rack": rack,
        "gpuward.io/gpus": "8",
        "gpuward.io/gpus-healthy": "8",
        "gpuward.io/health": "healthy",
        **changes.pop("labels", {}),
    }
    raw = {
        "metadata": {
            "name": name, "uid": f"uid-{name}", "labels": labels,
            "creationTimestamp": ago(90 * 86_400), **changes.pop("metadata", {}),
        },
        "spec": changes.pop("spec", {}),
        "status": {"conditions": [{"type": "Ready", "status": changes.pop("ready", "True")}]},
    }  # fmt: skip
    assert not changes
    return msgspec.convert(raw, NodeView)


def sick(name: str, **changes: Any) -> NodeView:
    labels = {"gpuward.io/health": "unhealthy", "gpuward.io/gpus-healthy": "7"}
    return node(name, labels=labels, **changes)


def health_of(name: str, *, line: str = XID_79, **changes: Any) -> HealthView:
    gpus = tuple(
        GpuStatus(
            uuid=f"GPU-{name}-{i}", index=i, serial=f"S{i}", product="H100",
            health="Unhealthy" if i == 3 else "Healthy",
            reason="Xid79GPUFallenOffBus" if i == 3 else "",
            readings=GpuReadings(
                read_at=ago(75), temperature_celsius=71, memory_temperature_celsius=84,
                power_watts=412, power_limit_watts=700, ecc_correctable=3, ecc_uncorrectable=0,
                clock_event_reasons=("software power cap",), remap_pending=True,
            ) if i == 3 else None,
        )
        for i in range(8)
    )  # fmt: skip
    status = HealthStatus(
        health="Unhealthy",
        message="GPU 3 fell off the bus.",
        observed_at=ago(30),
        publisher=PublisherPod(heartbeat=ago(30)),
        gpus_healthy="7/8",
        gpus=gpus,
        sources=(SourceStatus(name="kernel-log", state="Up", since=ago(900)),),
        incidents=(
            IncidentStatus(
                id="i-1", reason="Xid79GPUFallenOffBus", severity="Fatal", level="Drain",
                active=True, first_seen=ago(60), gpus=(f"GPU-{name}-3",), evidence=(line,),
            ),
        ),
    )  # fmt: skip
    return HealthView(
        metadata=TimedMeta(name=name), status=msgspec.structs.replace(status, **changes)
    )


BLOCK = BlockedBy(
    pdb="serving/solo",
    pods=pods_of([PodNote(name="serving/solo-0")]),
    owner="Deployment serving/solo",
    why="minAvailable 1 keeps 1 of 1 expected",
    permanent=True,
    remedy="add a replica or relax the PDB",
)


def session(
    name: str, on: str, phase: str = "Draining", *, opened_s: float = 600.0, **changes: Any
) -> QuarantineView:
    reason = changes.pop("reason", "Xid79GPUFallenOffBus")
    line = changes.pop("line", XID_79)
    timeline = [TimelineEntry(at=ago(opened_s), step="Marked", message="marked", by="gpuward")]
    status = QuarantineStatus(
        mode="Enforce",
        phase=phase,
        phase_since=ago(opened_s),
        message=f"{phase} for one cause.",
        until=ago(-1200.0),
        drain=DrainStatus(evicted=3, started_at=ago(opened_s)),
        timeline=tuple(timeline),
        evidence={
            "gpus": changes.pop("gpus", [f"GPU-{on}-3"]),
            "incidents": [
                {"id": "i-1", "reason": reason, "severity": "Fatal", "firstSeen": ago(opened_s),
                 "recommendedAction": "ResetGPU", "evidence": [line]}
            ],
        },
    )  # fmt: skip
    cause = Cause(source="Detector", incident="i-1", reason=reason, severity="Fatal", message=line)
    return QuarantineView(
        metadata=ObjectMeta(name=name, uid=f"uid-{name}", creation_timestamp=ago(opened_s)),
        spec=QuarantineSpec(
            node_name=on, causes=(cause,), level="Drain", hold=changes.pop("hold", False)
        ),
        status=msgspec.structs.replace(status, **changes),
    )


def blocked_session(name: str, on: str, **changes: Any) -> QuarantineView:
    return session(
        name, on,
        conditions=(
            Condition(type="Blocked", reason="BudgetNeverAllows", message="a budget blocks it"),
            Condition(type="NeedsHuman", reason="BudgetNeverAllows", message="ask the owner"),
        ),
        drain=DrainStatus(
            evicted=3, recent=("a/b", "a/c", "a/d"), blocked=(BLOCK,),
            waiting=pods_of([PodNote(name="a/b")]),
            started_at=ago(600),
        ),
        **changes,
    )  # fmt: skip


def state(
    nodes: Iterable[NodeView] = (),
    sessions: Iterable[QuarantineView] = (),
    healths: Iterable[HealthView] = (),
    pauses: Iterable[PauseView] = (),
    *,
    policy: Policy | None = None,
    problem: str = "",
    leader_problem: str = "",
    policy_problem: str = "",
    **changes: Any,
) -> PageState:
    quarantines = {one.name: one for one in sessions}
    snapshot = FleetSnapshot(
        now=NOW,
        policy=policy or Policy(mode=Mode.ENFORCE),
        nodes={one.name: one for one in nodes},
        healths={one.metadata.name: one for one in healths},
        quarantines=quarantines,
        pauses={one.metadata.name: one for one in pauses},
    )
    memory = FleetMemory()
    return PageState(
        snapshot=snapshot,
        assessment=judge_fleet(snapshot, memory),
        common=common_causes(memory.census.labels, snapshot.healths),
        replica=ReplicaShown(
            identity="replica-a",
            leading=True,
            mode=str(snapshot.policy.mode),
            problem=problem,
            leader_problem="" if problem else leader_problem,
            policy_problem=policy_problem,
            at=format_time(NOW),
        ),
        by_node=sessions_by_node(quarantines),
        **changes,
    )


class FixedSource(LiveSource):
    """A source that never changes and keeps what was asked of it."""

    def __init__(self, of: PageState) -> None:
        self.of = of
        self.asked: list[str] = []

    async def state(self) -> PageState:
        return self.of

    async def health(self, node: str) -> HealthView | None:
        self.asked.append(node)
        return health_of(node, message="Read just now.")


def fleet_html(of: PageState, **wanted: str) -> str:
    """The fleet page under a filter."""
    return render_page(fleet_page(of, FleetFilter(**wanted)))


def node_of(of: PageState, name: str) -> NodePage:
    """What the page of a node shows."""
    page = node_page(name, of)
    assert page is not None
    return page


def node_html(of: PageState, name: str) -> str:
    """The page of a node."""
    return render_page(node_of(of, name))


def history_html(of: PageState) -> str:
    """The page of the history."""
    return render_page(history_page(of))


def big_state(nodes: int = 5000, sessions: int = 500) -> PageState:
    """A fleet in a bad hour: every tenth node is sick and has a session."""
    names = [f"train-{number:04d}" for number in range(nodes)]
    ill = names[:: max(1, nodes // max(1, sessions))][:sessions]
    sick_ones = set(ill)
    return state(
        [
            (sick if name in sick_ones else node)(
                name, rack=f"rack-{number // 8:03d}", pool=f"pool-{number // 1000}"
            )
            for number, name in enumerate(names)
        ],
        [session(f"{name}-0badcafe", name) for name in ill],
        [health_of(name) for name in ill],
    )
