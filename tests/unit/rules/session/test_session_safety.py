"""What a decision may rest on: fresh verdicts, views and reads; and what history keeps."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from rules.api.nodes import AgentPod, FreshNode, HealthView, NodeView, QuarantineView
from rules.api.timestamps import format_time, parse_time
from rules.policy.policy import Policy
from rules.policy.reader import load_policy
from rules.session.decide import decide
from rules.session.history import MAX_PER_NODE, outlived
from rules.session.observation import NodeObservation, staleness
from rules.session.snapshot import too_old
from tests.support.scenario.drain_objects import node

NOW = parse_time("2026-06-01T00:00:00Z") or 0.0


def policy(**parts: Any) -> Policy:
    loaded = load_policy({"mode": "Enforce", **parts})
    assert isinstance(loaded, Policy)
    return loaded


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
        ("verdict", "agents", "fresh"),
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
    def test_when_a_verdict_may_be_acted_on(
        self, verdict: HealthView | None, agents: dict[str, AgentPod], fresh: bool
    ) -> None:
        assert (staleness(verdict, node(), agents, NOW) == "") == fresh

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
        gone = outlived(sessions, policy(), NOW)
        assert sorted(w.name for w in gone) == ["s0", "s21", "s22", "s23"]

    def test_what_still_has_an_effect_stays(self) -> None:
        rules = policy(release={"cancelExpiry": "48h"})
        many = [self.ended(i, 0.1) for i in range(MAX_PER_NODE)]
        sessions = [*many, self.ended(20, 1.5), self.ended(21, 2.5)]
        assert [w.name for w in outlived(sessions, rules, NOW)] == ["s21"]

    def test_a_rule_does_not_forget_within_its_window(self) -> None:
        marked: dict[str, Any] = {
            "mode": "Enforce",
            "timeline": [{"at": format_time(NOW), "step": "Marked"}],
        }
        many = [self.ended(i, 0.1) for i in range(MAX_PER_NODE)]
        repaired = [
            session(f"r{i}", phase="Released", phaseSince=format_time(NOW - i * 86400), **marked)
            for i in (3, 6, 8)
        ]
        assert [w.name for w in outlived([*many, *repaired], policy(), NOW)] == ["r8"]
        slow = policy(
            release={"cancelExpiry": "1h"},
            budget={
                "perReason": {"count": 5, "window": "1h"},
                "maxNew": {"count": 3, "window": "3d"},
            },
        )
        assert outlived([*many, self.ended(20, 2)], slow, NOW) == ()

    def test_open_sessions_stay(self) -> None:
        assert outlived([session()], policy(), NOW + 1e8) == ()


BARE_NODE = {"metadata": {"name": "gpu-1", "uid": "n1", "resourceVersion": "7"}}


def marked_session() -> QuarantineView:
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
def test_s44_an_undone_mark_is_believed_from_a_fresh_read_only(kind: type, step: str) -> None:
    """The watch may not have brought our own patch yet; the API server has it."""
    seen = NodeObservation(name="gpu-1", node=msgspec.convert(BARE_NODE, kind))

    assert decide(marked_session(), seen, NOW, policy()).step == step


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
    said = too_old("gpuwardpauses", quiet_s=quiet_s, unfollowed_s=unfollowed_s, problem="")
    assert bool(said) is old
    assert not old or "gpuwardpauses" in said


def test_what_keeps_it_old_is_said_and_bounded():
    said = too_old("nodes", quiet_s=0, unfollowed_s=60, problem="Listing nodes: 500 " + "x" * 900)
    assert "500 xxx" in said
    assert len(said) <= 300
