"""The last check before disruption: what was chosen earlier is not sent once it is not wanted any
more.
"""

from typing import Any

import msgspec
import pytest

from rules.api import writes as d
from rules.api.device_taints import TaintDevice
from rules.api.nodes import HealthView, PauseView, QuarantineView
from rules.api.quarantine import DrainStatus, IsolatedDevice
from rules.api.quarantine_taint import quarantine_patch
from rules.api.timestamps import format_time, parse_time
from rules.drain.drain_plan import DrainInput
from rules.drain.plan import kept_from_eviction, kept_from_force
from rules.policy.policy import Policy
from rules.session.observation import FleetSnapshot
from rules.session.recheck import recheck
from tests.support.scenario.drain_objects import node, pod
from tests.support.scenario.session_world import policy_of

NOW = parse_time("2026-06-01T00:00:00Z") or 0.0
POD: dict[str, Any] = {"node": "n0", "namespace": "team-a", "name": "web-1", "uid": "uid-web-1"}
EVICT = d.EvictPod(**POD, session="s1")
TELL = d.SetDisruptionTarget(**POD, at=NOW, message="m")
DELETE = d.DeletePod(**POD, grace_s=30, by_policy="p")
TAINT = d.TaintAndCordon(node="n0", node_uid="uid-n0", session="s1", patch={})
DEVICE = {"uuid": "GPU-1", "rule": "gpuward-1"}
TAINT_DEVICE = TaintDevice(
    node="n0",
    node_uid="uid-n0",
    session="s1",
    session_uid="uid-s1",
    api_version="resource.k8s.io/v1",
    device=IsolatedDevice(uuid="GPU-1", rule="gpuward-1"),
    reason="Xid79",
    effect="NoSchedule",
)
FAULT = {"source": "Detector", "incident": "i1", "reason": "Xid79", "severity": "Fatal"}
OPERATOR = {"source": "Human", "reason": "Requested", "message": "it smells"}


def fleet(
    *,
    phase: str = "Draining",
    causes: tuple[dict[str, str], ...] = (FAULT,),
    level: str = "Drain",
    active: bool = True,
    boot: str = "boot-1",
    release: dict[str, str] | None = None,
    pause: dict[str, Any] | None = None,
    gone: bool = False,
    devices: tuple[dict[str, str], ...] = (DEVICE,),
    **rules: Any,
) -> FleetSnapshot:
    """A fleet whose node n0 is in the given session; `rules` are sections of the policy."""
    over_all = {"metadata": {"name": "p"}, "spec": {"scope": {"all": True}, **(pause or {})}}
    session = {
        "metadata": {"name": "s1", "uid": "uid-s1"},
        "spec": {"nodeName": "n0", "nodeUID": "uid-n0", "causes": causes, "level": level,
                 "release": release},
        "status": {"phase": phase, "mode": "Enforce", "bootID": boot,
                   "devices": devices},
    }  # fmt: skip
    health = {
        "metadata": {"name": "n0"},
        "status": {
            "publisher": {"heartbeat": format_time(NOW)},
            "nodeUID": "uid-n0",
            "bootID": "boot-1",
            "incidents": [
                {"id": "i1", "reason": "Xid79", "severity": "Fatal", "level": "Drain",
                 "active": active, "firstSeen": format_time(NOW)}
            ],
        },
    }  # fmt: skip
    return FleetSnapshot(
        now=NOW,
        policy=policy_of(**rules),
        nodes={},
        healths={"n0": msgspec.convert(health, HealthView)},
        quarantines={} if gone else {"s1": msgspec.convert(session, QuarantineView)},
        pauses={} if pause is None else {"p": msgspec.convert(over_all, PauseView)},
    )


OURS = {"key": "gpuward.io/quarantine", "effect": "NoSchedule"}
OF_KARPENTER = {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}
PATCH = quarantine_patch(node(), session="s1", reason="Xid79", parts="CordonAndTaint", now=NOW)


def quarantined_node(*, spec: dict[str, Any] | None = None, **parts: Any) -> Any:
    meta = {"annotations": PATCH["metadata"]["annotations"], **parts.pop("metadata", {})}
    return node(metadata=meta, spec=PATCH["spec"] | (spec or {}), **parts)


NODE_CHANGED = [
    pytest.param(
        quarantined_node(metadata={"labels": {"gpuward.io/opt-out": "true"}}), id="opted-out"
    ),
    pytest.param(quarantined_node(spec={"taints": [OURS, OF_KARPENTER]}), id="karpenter"),
    pytest.param(
        quarantined_node(metadata={"deletionTimestamp": format_time(NOW)}), id="deleting"
    ),
    pytest.param(
        quarantined_node(status={"conditions": [{"type": "Ready", "status": "Unknown"}]}),
        id="unreachable",
    ),
    pytest.param(node(), id="no-mark"),
    pytest.param(quarantined_node(spec={"unschedulable": False}), id="uncordoned"),
    pytest.param(quarantined_node(spec={"taints": []}), id="untainted"),
    pytest.param(quarantined_node(metadata={"uid": "other"}), id="replaced"),
]


@pytest.mark.parametrize("seen", NODE_CHANGED)
def test_a_pod_is_left_alone_once_its_node_changed(seen: Any) -> None:
    assert recheck(EVICT, seen, fleet()) != ""


def test_a_node_of_the_same_name_is_not_quarantined() -> None:
    namesake = node(metadata={"uid": "other"})
    assert recheck(TAINT, namesake, fleet(phase="Pending")) == "the node was replaced"


def test_the_taint_of_another_session_stops_an_eviction() -> None:
    assert "s1" in recheck(d.EvictPod(**POD, session="s0"), quarantined_node(), fleet())


def test_a_pause_that_is_over_stops_nothing() -> None:
    over = fleet(pause={"until": format_time(NOW - 1)})
    assert recheck(EVICT, quarantined_node(), over) == ""


def test_writes_without_disruption_always_pass() -> None:
    remove_taint = d.RemoveTaint(node="n0", node_uid="u", session="s1", patch={})
    assert recheck(remove_taint, node(), fleet(pause={}, gone=True)) == ""


MOVED_ON = [
    pytest.param({"phase": "Validating"}, "no longer draining", id="validating"),
    pytest.param({"phase": "Marked"}, "no longer draining", id="marked"),
    pytest.param({"active": False}, "requires a drain", id="cause-closed"),
    pytest.param({"level": "Cordon"}, "requires a drain", id="level-lowered"),
    pytest.param(
        {"reasons": {"Xid79": {"level": "Report"}}}, "requires a drain", id="policy-reports"
    ),
    pytest.param(
        {"reasons": {"Xid79": {"level": "Cordon"}}}, "requires a drain", id="policy-cordons"
    ),
    pytest.param({"nodeSelector": "pool=x"}, "nodeSelector", id="not-selected"),
    pytest.param({"mode": "Shadow"}, "Shadow", id="shadow"),
    pytest.param({"pause": {}}, "GPUWardPause p", id="paused"),
    pytest.param({"gone": True}, "its session was deleted", id="session-deleted"),
    pytest.param({"phase": "Cancelled"}, "its session has ended", id="ended"),
    pytest.param({"release": {"by": "ada"}}, "its session has ended", id="released"),
    pytest.param({"boot": "boot-0"}, "the node rebooted", id="rebooted"),
]


@pytest.mark.parametrize("write", [EVICT, TELL, DELETE], ids=["evict", "tell", "delete"])
@pytest.mark.parametrize(("change", "why"), MOVED_ON)
def test_a_pod_is_left_alone_once_its_session_moved_on(
    write: d.Write, change: dict[str, Any], why: str
) -> None:
    assert recheck(write, quarantined_node(), fleet()) == ""
    assert why in recheck(write, quarantined_node(), fleet(**change))


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"active": False}, id="cause-closed"),
        pytest.param({"reasons": {"Xid79": {"level": "Report"}}}, id="policy-reports"),
        pytest.param({"nodeSelector": "pool=x"}, id="not-selected"),
    ],
)
def test_a_first_quarantine_needs_an_active_cause(
    change: dict[str, Any],
) -> None:
    assert recheck(TAINT, node(), fleet(phase="Pending")) == ""
    assert recheck(TAINT, node(), fleet(phase="Pending", **change)) != ""


def test_a_manual_cause_needs_no_health_status_and_no_selector() -> None:
    asked: dict[str, Any] = {"causes": (OPERATOR,), "active": False, "nodeSelector": "pool=x"}
    assert recheck(TAINT, node(), fleet(phase="Pending", **asked)) == ""
    assert recheck(EVICT, quarantined_node(), fleet(**asked)) == ""
    assert recheck(EVICT, quarantined_node(), fleet(**asked, level="Cordon")) != ""


@pytest.mark.parametrize(
    ("seen", "change", "why"),
    [
        pytest.param(quarantined_node(), {}, "", id="as-decided"),
        pytest.param(quarantined_node(), {"devices": ()}, "not recorded", id="not-recorded"),
        pytest.param(quarantined_node(), {"phase": "Released"}, "has ended", id="ended"),
        pytest.param(quarantined_node(), {"gone": True}, "was deleted", id="session-deleted"),
        pytest.param(quarantined_node(), {"pause": {}}, "GPUWardPause p", id="paused"),
        pytest.param(node(), {}, "incomplete", id="no-record-on-the-node"),
        pytest.param(
            quarantined_node(metadata={"uid": "other"}), {}, "was replaced", id="replaced"
        ),
    ],
)
def test_a_device_is_tainted_only_for_its_open_session(
    seen: Any, change: dict[str, Any], why: str
) -> None:
    text = recheck(TAINT_DEVICE, seen, fleet(**{"phase": "Marked", **change}))
    assert (why in text) if why else text == ""


def look(**parts: Any) -> DrainInput:
    started = {"drain": DrainStatus(started_at=format_time(NOW - 3600)), "severity": "Fatal"}
    return DrainInput(node="n0", session="s1", pods=(pod(),), **{**started, **parts})


FORCED = {"onTimeout": "Force", "fatalTimeout": "10m"}
OLD = pod(status={"startTime": format_time(NOW - 86_400)})


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        pytest.param({}, "", id="as-planned"),
        pytest.param({"pods": [{"namespaces": ["team-a"], "strategy": "Skip"}]}, "Stays",
                     id="skip"),
        pytest.param(
            {"pods": [{"selector": "app=web", "strategy": "WaitCompleted"}]}, "Waits", id="wait"
        ),
    ],
)  # fmt: skip
def test_a_new_policy_rule_stops_a_planned_eviction(rules: dict[str, Any], why: str) -> None:
    text = kept_from_eviction(pod(), look(), policy_of(**rules), NOW)
    assert (why in text) if why else text == ""


def test_an_annotation_put_on_meanwhile_is_honoured() -> None:
    held = pod(metadata={"annotations": {"karpenter.sh/do-not-disrupt": "true"}})
    late = look(drain=DrainStatus(started_at=format_time(NOW - 60)))
    assert kept_from_eviction(held, late, policy_of(), NOW) != ""
    assert kept_from_eviction(held, look(), policy_of(), NOW) == "", "its bound is over"


@pytest.mark.parametrize(
    ("pods_now", "rules", "why"),
    [
        pytest.param(OLD, policy_of(drain=FORCED), "", id="as-planned"),
        pytest.param(OLD, policy_of(drain={"fatalTimeout": "10m"}), "Report", id="report-again"),
        pytest.param(
            OLD,
            policy_of(drain={"onTimeout": "Force", "fatalTimeout": "2h"}),
            "time",
            id="more-time",
        ),
        pytest.param(
            OLD,
            policy_of(
                drain=FORCED,
                pods=[{"selector": "app=web", "strategy": "Skip"}],
            ),
            "Stays",
            id="skip",
        ),
    ],
)
def test_a_forced_deletion_is_asked_of_the_policy_as_it_is(
    pods_now: Any, rules: Policy, why: str
) -> None:
    text = kept_from_force(pods_now, look(), rules, NOW)
    assert (why in text) if why else text == ""
