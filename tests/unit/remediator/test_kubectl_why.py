"""`kubectl gpuward why`: what a person reads about a node, in every state it can be in."""

import msgspec

from remediator.kubectl.why import why
from rules.health_object import HealthStatus, Incident, SourceStatus
from rules.quarantine_object import (
    BlockedBy,
    Cause,
    Condition,
    DrainStatus,
    QuarantineSpec,
    QuarantineStatus,
    TimelineEntry,
)
from rules.session_time import parse_time
from rules.snapshot import FreshNode, HealthView, PauseView, QuarantineView

NOW = parse_time("2026-01-01T12:14:00Z") or 0.0


def node(**changes: object) -> FreshNode:
    raw = {
        "metadata": {"name": "gpu-7", "uid": "u-7", "resourceVersion": "5", **changes},
        "spec": {},
        "status": {},
    }
    return msgspec.convert(raw, FreshNode)


def marked_node() -> FreshNode:
    note = '{"session": "gpu-7-0badcafe", "priorUnschedulable": true}'
    raw = {
        "metadata": {
            "name": "gpu-7", "uid": "u-7", "resourceVersion": "5",
            "annotations": {"gpuward.io/session": note},
        },
        "spec": {
            "unschedulable": True,
            "taints": [
                {"key": "gpuward.io/quarantine", "value": "Xid79", "effect": "NoSchedule"},
                {"key": "example.com/mine", "value": "x", "effect": "NoExecute"},
            ],
        },
        "status": {},
    }  # fmt: skip
    return msgspec.convert(raw, FreshNode)


def health(**changes: object) -> HealthView:
    status = HealthStatus(health="Healthy", gpus_healthy="8/8", observed_at="2026-01-01T12:13:00Z")
    meta = msgspec.convert({"name": "gpu-7"}, type(node().metadata))
    return HealthView(metadata=meta, status=msgspec.structs.replace(status, **changes))


def session(**changes: object) -> QuarantineView:
    meta = msgspec.convert(
        {"name": "gpu-7-0badcafe", "creationTimestamp": "2026-01-01T12:00:00Z"},
        type(node().metadata),
    )
    status = QuarantineStatus(
        mode="Enforce",
        phase="Draining",
        phase_since="2026-01-01T12:00:00Z",
        message="Evicted 11 of 14; a budget blocks the rest.",
        conditions=(
            Condition(type="NeedsHuman", reason="PermanentBlock", message="ask the owner"),
        ),
        drain=DrainStatus(
            evicted=11,
            blocked=(
                BlockedBy(
                    pdb="team-a/trainer",
                    owner="Job team-a/llm",
                    why="minAvailable 8 of 8",
                    permanent=True,
                    remedy="lower minAvailable",
                ),
            ),
        ),
        timeline=(TimelineEntry(at="2026-01-01T12:00:00Z", step="Marked", by="gpuward"),),
    )
    spec = QuarantineSpec(
        node_name="gpu-7",
        causes=(
            Cause(source="Detector", reason="Xid79", severity="Fatal", message="off the bus"),
        ),
    )
    return QuarantineView(
        metadata=meta, spec=spec, status=msgspec.structs.replace(status, **changes)
    )


def test_a_healthy_node_says_so_in_two_lines() -> None:
    """No noise when all is well."""
    assert why(node(), health(), [], [], NOW) == [
        "gpu-7: in service",
        "  health: Healthy, 8/8 GPUs, seen 60s ago",
    ]


def test_a_blocked_drain_names_budget_owner_remedy_and_owner_of_each_mark() -> None:
    """The heart of it: what was done, what blocks, whose marks, what one can do."""
    lines = why(marked_node(), health(), [session()], [], NOW)

    assert lines[:2] == [
        "gpu-7: Draining for 14m",
        "  Evicted 11 of 14; a budget blocks the rest.",
    ]
    assert (
        "blocked: team-a/trainer, owner Job team-a/llm (waiting cannot help): minAvailable 8 of 8"
        in lines
    )
    assert "  remedy: lower minAvailable" in lines
    assert "mark: taint example.com/mine=x:NoExecute (not gpuward)" in lines
    assert "mark: cordoned (gpuward and was cordoned before)" in lines


def test_an_absent_agent_and_a_down_source_are_said() -> None:
    """Unknown is not healthy and not failing; the reader learns which sense is missing."""
    down = SourceStatus(name="nvml", state="Down", reason="DriverAbsent")

    assert "no agent has published" in "\n".join(why(node(), None, [], [], NOW))
    assert "  source nvml is Down: DriverAbsent" in why(
        node(), health(health="Unknown", sources=(down,)), [], [], NOW
    )


def test_hostile_evidence_cannot_drive_the_terminal() -> None:
    """A process name may hold escape sequences; what is printed holds none."""
    incident = Incident(
        id="1", reason="Xid31", severity="Info", active=True, evidence=("\x1b[2J\r\nroot#",)
    )

    text = "".join(why(node(), health(incidents=(incident,)), [], [], NOW))

    assert "\\x1b[2J\\x0d\\x0aroot#" in text
    assert text.isprintable()


def test_hold_opt_out_and_pauses_are_shown() -> None:
    """Who keeps the node, and why."""
    kept = node(
        annotations={"gpuward.io/hold": "waiting for a part"},
        labels={"gpuward.io/opt-out": "true"},
    )
    pause = msgspec.convert(
        {
            "metadata": {"name": "pause-1"},
            "spec": {"scope": {"all": True}, "by": "ann", "reason": "fire drill"},
        },
        PauseView,
    )

    lines = why(kept, health(), [], [pause], NOW)

    assert "hold: waiting for a part" in lines
    assert "opt-out: this node is watched and reported, never touched" in lines
    assert "pause pause-1 by ann: fire drill" in lines
