"""What a decision may rest on: fresh views, owners at work, causes, people; what history keeps."""

from typing import Any

import msgspec
import pytest

from rules.api.health import HealthStatus, IncidentStatus
from rules.api.metadata import ObjectMeta, TimedMeta
from rules.api.nodes import AgentPod, FreshNode, HealthView, LeaseView, NodeView, QuarantineView
from rules.api.quarantine import Cause, QuarantineSpec
from rules.api.timestamps import format_time, parse_time
from rules.policy.policy import Policy
from rules.session.causes import CauseContext, open_causes
from rules.session.decide import decide
from rules.session.exclusions import working_owner
from rules.session.history import MAX_PER_NODE, expired_sessions
from rules.session.observation import NodeObservation, staleness, too_old
from rules.session.override import RecordedFault, what_is_new
from tests.support.scenario.drain_objects import node
from tests.support.scenario.session_world import policy_of

NOW = parse_time("2026-06-01T00:00:00Z") or 0.0


def session(
    name: str = "s1", *, spec: dict[str, Any] | None = None, **status: Any
) -> QuarantineView:
    value = {
        "metadata": {"name": name, "uid": f"uid-{name}", "creationTimestamp": format_time(NOW)},
        "spec": {"nodeName": "n0", "nodeUID": "uid-n0", **(spec or {})},
        "status": {"phase": "Draining", "bootID": "boot-1", **status},
    }
    return msgspec.convert(value, QuarantineView)


def health(**status: Any) -> HealthView:
    given = {
        "nodeUID": "uid-n0",
        "bootID": "boot-1",
        "publisher": {"pod": "gpuward/agent", "podUID": "pod-1"},
        "sources": [{"name": "nvml", "state": "Up"}],
    }
    return msgspec.convert({"metadata": {"name": "n0"}, "status": {**given, **status}}, HealthView)


READY = AgentPod(uid="pod-1", node="n0", ready=True, ready_changed_at=NOW - 9999)


class TestFreshness:
    @pytest.mark.parametrize(
        ("assessment", "agents", "fresh"),
        [
            pytest.param(health(publisher={}), {}, False, id="nobody"),
            pytest.param(
                health(sources=[{"name": "nvml", "state": "Released"}]),
                {"pod-1": READY},
                False,
                id="released",
            ),
            pytest.param(
                health(
                    sources=[{"name": "nvml", "state": "Absent"}, {"name": "dcgm", "state": "Up"}]
                ),
                {"pod-1": READY},
                True,
                id="dcgm-instead",
            ),
            pytest.param(
                health(
                    sources=[{"name": "nvml", "state": "Down"}, {"name": "dcgm", "state": "Up"}]
                ),
                {"pod-1": READY},
                False,
                id="dcgm-does-not-replace-a-failing-nvml",
            ),
            pytest.param(
                health(sources=[{"name": "kmsg", "state": "Up"}]),
                {"pod-1": READY},
                True,
                id="kmsg",
            ),
        ],
    )
    def test_when_a_health_status_is_fresh(
        self, assessment: HealthView | None, agents: dict[str, AgentPod], fresh: bool
    ) -> None:
        assert (staleness(assessment, node(), agents, NOW) == "") == fresh

    @pytest.mark.parametrize("boot", ["", "boot-1"])
    def test_a_node_that_reports_no_boot_gives_nothing_to_compare_with(self, boot: str) -> None:
        silent = node(status={"nodeInfo": {}})
        assert silent.boot_id == ""
        assert staleness(health(bootID=boot), silent, {"pod-1": READY}, NOW) == ""


class TestHistory:
    def ended(self, index: int, age_d: float) -> QuarantineView:
        return session(f"s{index}", phase="Released", phaseSince=format_time(NOW - age_d * 86400))

    def test_old_and_surplus_sessions_go(self) -> None:
        ages = [29, *(2 + index / 24 for index in range(MAX_PER_NODE + 2)), 40]
        sessions = [self.ended(i, age) for i, age in enumerate(ages)]
        gone = expired_sessions(sessions, policy_of(), NOW)
        assert sorted(w.name for w in gone) == ["s0", "s21", "s22", "s23"]

    def test_what_still_has_an_effect_stays(self) -> None:
        rules = policy_of(release={"cancelExpiry": "48h"})
        many = [self.ended(i, 0.1) for i in range(MAX_PER_NODE)]
        sessions = [*many, self.ended(20, 1.5), self.ended(21, 2.5)]
        assert [w.name for w in expired_sessions(sessions, rules, NOW)] == ["s21"]

    def test_a_rule_does_not_forget_within_its_window(self) -> None:
        quarantined: dict[str, Any] = {
            "mode": "Enforce",
            "timeline": [{"at": format_time(NOW), "step": "Marked"}],
        }
        many = [self.ended(i, 0.1) for i in range(MAX_PER_NODE)]
        repaired = [
            session(
                f"r{i}", phase="Released", phaseSince=format_time(NOW - i * 86400), **quarantined
            )
            for i in (3, 6, 8)
        ]
        assert [w.name for w in expired_sessions([*many, *repaired], policy_of(), NOW)] == ["r8"]
        slow = policy_of(
            release={"cancelExpiry": "1h"},
            budget={
                "perReason": {"count": 5, "window": "1h"},
                "maxNew": {"count": 3, "window": "3d"},
            },
        )
        assert expired_sessions([*many, self.ended(20, 2)], slow, NOW) == ()

    def test_open_sessions_stay(self) -> None:
        assert expired_sessions([session()], policy_of(), NOW + 1e8) == ()


BARE_NODE = {"metadata": {"name": "gpu-1", "uid": "n1", "resourceVersion": "7"}}


def tainted_session() -> QuarantineView:
    return msgspec.convert(
        {
            "metadata": {"name": "gpu-1-1", "uid": "s1", "resourceVersion": "3"},
            "spec": {
                "nodeName": "gpu-1",
                "nodeUID": "n1",
                "causes": [{"source": "Human", "message": "drill"}],
            },
            "status": {"mode": "Enforce", "phase": "Marked"},
        },
        QuarantineView,
    )


@pytest.mark.parametrize(
    ("kind", "step"), [(NodeView, "ReadNode"), (FreshNode, "Cancelled")], ids=["cache", "fresh"]
)
def test_s44_a_removed_part_needs_a_fresh_read(kind: type, step: str) -> None:
    """The watch may not have brought our own patch yet; the API server has it."""
    seen = NodeObservation(name="gpu-1", node=msgspec.convert(BARE_NODE, kind))

    assert decide(tainted_session(), seen, NOW, policy_of()).step == step


@pytest.mark.parametrize(
    ("quiet_s", "unfollowed_s", "old"),
    [
        pytest.param(0.0, 0.0, False, id="just heard"),
        pytest.param(75.0, 0.0, False, id="a bookmark is due about once a minute"),
        pytest.param(59.0, 1.0, False, id="a watch that ended is resumed"),
        pytest.param(101.0, 0.0, True, id="open and silent"),
        pytest.param(30.0, 21.0, True, id="the watch fails"),
        pytest.param(float("inf"), 5.0, True, id="never heard"),
    ],
)
def test_a_view_ages(quiet_s, unfollowed_s, old):
    text = too_old("gpuwardpauses", quiet_s=quiet_s, unfollowed_s=unfollowed_s, problem="")
    assert bool(text) is old
    assert not old or "gpuwardpauses" in text


def test_the_reason_of_an_old_view_is_reported_and_bounded():
    text = too_old("nodes", quiet_s=0, unfollowed_s=60, problem="Listing nodes: 500 " + "x" * 900)
    assert "500 xxx" in text
    assert len(text) <= 300


ONE = RecordedFault(id="a", reason="Xid48", severity="Degraded", gpus=("G0",), pci=("p0",))
SAME = {"id": "a", "reason": "Xid48", "severity": "Degraded", "gpus": ("G0",), "pci": ("p0",)}


def now(**changes: object) -> IncidentStatus:
    return msgspec.convert({**SAME, "active": True, **changes}, IncidentStatus, strict=False)


@pytest.mark.parametrize(
    ("recorded", "changes", "what"),
    [
        ({}, {}, ""),
        ({}, {"severity": "Info", "reason": "Other"}, ""),
        ({}, {"severity": "Fatal", "reason": "GPULost"}, "GPULost became Fatal"),
        ({}, {"severity": "Unheard"}, ""),
        ({}, {"gpus": ("G0", "G1"), "pci": ("p0", "p1")}, "Xid48 now also affects G1"),
        ({}, {"gpus": ("G1",)}, "Xid48 now also affects G1"),
        ({}, {"gpus": ("G0",), "pci": ("p9",)}, ""),
        ({}, {"gpus": (), "pci": ("p0", "p1")}, "Xid48 now also affects p1"),
        ({}, {"gpus": (), "pci": ()}, ""),
        ({}, {"id": "b"}, "Xid48 is a new fault"),
        ({"gpus": ()}, {}, ""),
        ({"pci": ()}, {"gpus": ()}, ""),
        ({"gpus": (), "pci": ()}, {"gpus": ("G5",)}, ""),
        ({"severity": ""}, {"severity": "Fatal", "gpus": ("G5",)}, ""),
    ],
)
def test_what_is_beyond_the_record(
    recorded: dict[str, object], changes: dict[str, object], what: str
) -> None:
    then = msgspec.structs.replace(ONE, **recorded)
    assert what_is_new([then], now(**changes)) == what


def test_gpus_of_another_recorded_fault_of_that_reason_are_known() -> None:
    merged = now(gpus=("G0", "G1"), pci=("p0", "p1"))
    other = RecordedFault(id="b", reason="Xid48", severity="Degraded", gpus=("G1",), pci=("p1",))
    assert what_is_new([ONE, other], merged) == ""
    elsewhere = msgspec.structs.replace(other, reason="Xid95")
    assert what_is_new([ONE, elsewhere], merged) == "Xid48 now also affects G1"


UID, SEEN = "uid-of-n0", "2026-11-23T10:00:00Z"
FAULT = Cause(source="Detector", reason="GPULost", severity="Fatal", incident="i")
WISH = Cause(source="Human", reason="Requested")


def incident(*, active: bool) -> IncidentStatus:
    return IncidentStatus(id="i", reason="GPULost", severity="Fatal", level="Drain", active=active)


def held(assessment: HealthStatus, *causes: Cause, doubt: str = "") -> list[str]:
    """The reasons that hold, by a health status that is stale."""
    node = NodeView(metadata=ObjectMeta(name="n0", uid=UID))
    session = QuarantineView(
        metadata=ObjectMeta(name="n0-1"),
        spec=QuarantineSpec(node_name="n0", node_uid=UID, causes=causes),
    )
    context = CauseContext(
        node=node,
        health=HealthView(metadata=TimedMeta(name="n0"), status=assessment, doubt=doubt),
        stale="the agent is silent",
        policy=Policy(),
        now=1e9,
    )
    return [cause.reason for cause in open_causes(session, context)]


CLOSED = HealthStatus(node_uid=UID, observed_at=SEEN, incidents=(incident(active=False),))


def test_closed_causes_stay_closed_with_a_manual_cause() -> None:
    assert held(CLOSED, FAULT, WISH) == ["Requested"]
    assert held(CLOSED, FAULT) == ["GPULost"], "what closed is booked as Validating"


@pytest.mark.parametrize(
    ("assessment", "doubt"),
    [
        pytest.param(HealthStatus(), "", id="nobody has filled it"),
        pytest.param(HealthStatus(node_uid=UID), "", id="only its node is named"),
        pytest.param(HealthStatus(node_uid="another", observed_at=SEEN), "", id="another machine"),
        pytest.param(CLOSED, "it cannot be understood", id="in doubt"),
        pytest.param(
            HealthStatus(node_uid=UID, observed_at=SEEN, incidents=(incident(active=True),)),
            "",
            id="the fault was active",
        ),
    ],
)
def test_an_empty_health_status_closes_nothing(assessment: HealthStatus, doubt: str) -> None:
    assert held(assessment, FAULT, WISH, doubt=doubt) == ["GPULost", "Requested"]


IN_JANUARY = parse_time("2026-01-01T01:00:00Z") or 0.0


def tainted(key: str) -> Any:
    return node(spec={"taints": [{"key": key, "effect": "NoSchedule"}]})


def labelled(key: str, value: str) -> Any:
    return node(metadata={"labels": {key: value}})


UPGRADE = "nvidia.com/gpu-driver-upgrade-state"


@pytest.mark.parametrize(
    ("target", "at_work"),
    [
        pytest.param(node(), False, id="nobody"),
        pytest.param(tainted("ToBeDeletedByClusterAutoscaler"), True, id="autoscaler"),
        pytest.param(tainted("karpenter.sh/disrupted"), True, id="karpenter"),
        pytest.param(tainted("someone/else"), False, id="other-taint"),
        pytest.param(labelled(UPGRADE, "upgrade-required"), False, id="upgrade-announced"),
        pytest.param(labelled(UPGRADE, "cordon-required"), True, id="upgrade-begins"),
        pytest.param(labelled(UPGRADE, "uncordon-required"), True, id="upgrade-ends"),
        pytest.param(labelled(UPGRADE, "upgrade-done"), False, id="upgrade-done"),
        pytest.param(labelled(UPGRADE, "upgrade-failed"), False, id="upgrade-failed"),
        pytest.param(labelled("nvidia.com/mig.config.state", "pending"), True, id="mig-pending"),
        pytest.param(labelled("nvidia.com/mig.config.state", "success"), False, id="mig-success"),
        pytest.param(
            labelled("nvidia.com/gpu.deploy.driver", "paused-for-driver-upgrade"),
            True,
            id="paused",
        ),
        pytest.param(labelled("nvidia.com/gpu.deploy.driver", "true"), False, id="deployed"),
        pytest.param(
            labelled("nvidia.com/gpu.deploy.dcgm", "paused-for-gpuward"), False, id="our-own"
        ),
        pytest.param(
            node(metadata={"annotations": {"weave.works/kured-reboot-in-progress": "x"}}),
            True,
            id="kured",
        ),
    ],
)
def test_owners(target: Any, at_work: bool) -> None:
    assert bool(working_owner(target, None, IN_JANUARY)) == at_work


@pytest.mark.parametrize(
    ("holder", "renewed", "duration", "held"),
    [
        ("nmo", "2026-01-01T00:30:00.000000Z", 3600, True),
        ("nmo", "2026-01-01T00:30:00.000000Z", 600, False),
        ("", "2026-01-01T00:30:00.000000Z", 3600, False),
        ("nmo", "garbage", 3600, False),
    ],
)
def test_a_maintenance_lease_counts_while_it_runs(
    holder: str, renewed: str, duration: int, held: bool
) -> None:
    spec = {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": duration}
    lease = msgspec.convert({"metadata": {"name": "n0"}, "spec": spec}, LeaseView)
    assert bool(working_owner(node(), lease, IN_JANUARY)) == held
