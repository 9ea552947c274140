"""The HTML of each page: for an empty fleet, and for one with a node in every state.

`UPDATE_GOLDEN=1` rewrites the files in tests/golden/page.
"""

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from remediator.view.state import PageState
from rules.api.health import GpuStatus, IncidentStatus, PublisherPod, Topology
from rules.api.metadata import ObjectMeta
from rules.api.nodes import PauseView, QuarantineView
from rules.api.quarantine import (
    Cause,
    Condition,
    PauseScope,
    PauseSpec,
    RepairAttempt,
    RepairRequest,
    TimelineEntry,
    ValidationAttempt,
    ValidationCheck,
)
from rules.policy.policy import Policy
from rules.policy.reader import load_policy
from tests.support.remediator.page_fleet import (
    ago,
    blocked_session,
    fleet_html,
    health_of,
    history_html,
    node,
    node_html,
    session,
    sick,
    state,
)

GOLDEN = Path(__file__).resolve().parents[3] / "golden" / "page"
STEPS = {step: {"adapter": "NodeConditions"} for step in ("ResetGPU", "RestartNode")}
QUARANTINED = {
    "unschedulable": True,
    "taints": [
        {"key": "gpuward.io/quarantine", "value": "Xid79GPUFallenOffBus", "effect": "NoSchedule"},
        {"key": "example.com/mine", "value": "x", "effect": "NoExecute"},
    ],
}
NOTE = {"annotations": {"gpuward.io/session": '{"session": "b-1", "priorUnschedulable": true}'}}
HELD = {"annotations": {"gpuward.io/hold": "waiting for <parts>"}}
CLOSED = IncidentStatus(
    id="2", reason="Closed1", severity="Fatal", first_seen=ago(90), closed_at=ago(50),
    closed_by="Reboot",
)  # fmt: skip


def waits(name: str, opened_s: float) -> QuarantineView:
    blocked = Condition(
        type="Blocked", reason="Budget", message="4 of 13 nodes are unavailable, 1 is allowed."
    )
    return session(
        f"{name}-1", name, "Pending", opened_s=opened_s, message="Waiting: 4 of 13 nodes are.",
        conditions=(blocked,), drain=None, timeline=(),
    )  # fmt: skip


def repaired() -> QuarantineView:
    """A reset that failed, a restart that an operator approved, and a test."""
    check = ValidationCheck(id="memory", gpu="4", result="fail", value=3.0, unit="errors")
    approved = TimelineEntry(at=ago(700), step="LetGo", subject="RestartNode", by="ann")
    found = session(
        "r-1", "r", "Quarantined",
        conditions=(
            Condition(type="Blocked", reason="Approval", message="RestartNode waits."),
            Condition(type="NeedsHuman", reason="Approval", message="RestartNode waits."),
            Condition(type="RepairProposed", reason="RestartNode", message="It is proposed."),
        ),
        repair=(RepairAttempt(step="ResetGPU", adapter="NodeConditions", state="Failed",
                              started_at=ago(900), asked_at=ago(900), ended_at=ago(300),
                              proof="<b>no reset</b> was seen"),),
        validation=(ValidationAttempt(object="t-1", provider="Job", state="Failed",
                                      started_at=ago(280), ended_at=ago(200), result="fail",
                                      message="GPU 4 fails", checks=(check,)),),
        timeline=(approved,),
    )  # fmt: skip
    asked = RepairRequest(step="RestartNode", by="ann", reason="<b>vendor</b> on site")
    causes = (*found.spec.causes, Cause(source="Human", reason="Requested", by="ann"))
    spec = msgspec.structs.replace(found.spec, repair=asked, causes=causes)
    return msgspec.structs.replace(found, spec=spec)


def pause(name: str, scope: PauseScope, **spec: Any) -> PauseView:
    return PauseView(metadata=ObjectMeta(name=name), spec=PauseSpec(scope=scope, **spec))


def busy() -> PageState:
    policy = load_policy({"mode": "Enforce", "repair": {"mode": "Ask", "steps": STEPS}})
    assert isinstance(policy, Policy)
    three = {"gpuward.io/gpus": "3", "gpuward.io/gpus-healthy": "3"}
    degraded = {"gpuward.io/health": "degraded"}
    gone = PublisherPod(pod="p/u", pod_uid="gone")
    gpus = tuple(
        GpuStatus(uuid=f"GPU-{i}", index=i, health="Degraded" if i == 7 else "Healthy")
        for i in range(8)
    )
    links = Topology(links="\tGPU0\tGPU1\nGPU0\tX\tNV18\nGPU1\tNV18\tX")
    return state(
        [
            node("a"), sick("b", rack="r1", spec=QUARANTINED, metadata=NOTE),
            node("c", ready="False"),
            node("d", labels=degraded), node("h", labels={"gpuward.io/opt-out": "true"},
                                            metadata=HELD),
            node("o", spec={"unschedulable": True}), sick("r"), node("s", labels=three),
            node("u", labels={"gpuward.io/health": "unknown"}), sick("w"), sick("x"),
        ],
        [
            blocked_session("b-1", "b"), repaired(), waits("w", 300), waits("x", 7200),
            session("s-1", "s", "Marked", mode="Shadow"),
            session("h-0", "h", "Released", opened_s=900_000),
            session("h-1", "h", "Cancelled", opened_s=90_000, gpus=["GPU-b-3"]),
            session("g-0", "gone", "NodeGone", opened_s=80_000),
        ],
        [
            health_of("b", topology=links), health_of("r", incidents=(CLOSED,)), health_of("w"),
            health_of("d", health="Degraded", gpus=gpus, incidents=()),
            health_of("u", health="Healthy", message="All checks pass.", incidents=(),
                    node_uid="uid-u", publisher=gone, silent_since=ago(420)),
        ],
        [
            pause("lab", PauseScope(nodes=("h",)), reason="lab", by="ana"),
            pause("over", PauseScope(all=True), until="2020-01-01T00:00:00Z"),
        ],
        policy=policy,
        policy_problem="mode is wrong; the last good one goes on.",
    )  # fmt: skip


PAGES = {
    "fleet": lambda: fleet_html(busy()),
    "fleet-empty": lambda: fleet_html(state(leader_problem="It may not open a session.")),
    "history": lambda: history_html(busy()),
    "history-empty": lambda: history_html(state()),
    "node-healthy": lambda: node_html(busy(), "a"),
    "node-blocked": lambda: node_html(busy(), "b"),
    "node-degraded": lambda: node_html(busy(), "d"),
    "node-gone": lambda: node_html(busy(), "gone"),
    "node-held": lambda: node_html(busy(), "h"),
    "node-repair": lambda: node_html(busy(), "r"),
    "node-silent": lambda: node_html(busy(), "u"),
    "node-waits": lambda: node_html(busy(), "w"),
}


@pytest.mark.parametrize("name", PAGES)
def test_each_page_shows_this(name: str) -> None:
    path, html = GOLDEN / f"{name}.html", PAGES[name]()
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(html, encoding="utf-8")
    assert html == path.read_text(encoding="utf-8")
