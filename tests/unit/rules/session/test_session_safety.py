"""The looks around a decision: recheck before harm, history, freshness, pauses."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from rules.api import writes as d
from rules.api.names import ANNOTATION_SESSION
from rules.api.nodes import AgentPod, HealthView, PauseView, QuarantineView
from rules.api.timestamps import format_time, parse_time
from rules.policy.policy import Policy
from rules.policy.reader import load_policy
from rules.session.history import MAX_PER_NODE, outlived
from rules.session.observation import staleness
from rules.session.recheck import recheck
from rules.session.snapshot import FleetSnapshot
from tests.support.scenario.drain_objects import node

NOW = parse_time("2026-06-01T00:00:00Z") or 0.0
NOTE = json.dumps({"session": "s1", "mark": "CordonAndTaint"})
OURS = {"key": "gpuward.io/quarantine", "effect": "NoSchedule"}
MARKED = {"unschedulable": True, "taints": [OURS]}


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


def marked_node(**parts: Any) -> Any:
    meta = {"annotations": {ANNOTATION_SESSION: NOTE}, **parts.pop("metadata", {})}
    return node(metadata=meta, spec=parts.pop("spec", MARKED), **parts)


def snapshot(**parts: Any) -> FleetSnapshot:
    given: dict[str, Any] = {
        "now": NOW,
        "policy": policy(),
        "nodes": {},
        "quarantines": {"s1": session()},
    }
    return FleetSnapshot(**{**given, **parts})


def pause(**spec: Any) -> dict[str, PauseView]:
    value = {"metadata": {"name": "p"}, "spec": {"scope": {"all": True}, **spec}}
    return {"p": msgspec.convert(value, PauseView)}


EVICT = d.EvictPod(node="n0", namespace="a", name="p", uid="u", session="s1")
MARK = d.MarkNode(node="n0", node_uid="uid-n0", session="s1", patch={})


class TestRecheck:
    def test_all_is_as_it_was_decided(self) -> None:
        assert recheck(EVICT, marked_node(), snapshot()) == ""
        assert recheck(MARK, node(), snapshot()) == ""

    @pytest.mark.parametrize(
        ("seen", "fleet"),
        [
            pytest.param(marked_node(), {"policy": policy(mode="Shadow")}, id="shadow"),
            pytest.param(marked_node(), {"pauses": pause()}, id="paused"),
            pytest.param(
                marked_node(metadata={"labels": {"gpuward.io/opt-out": "true"}}),
                {},
                id="opted-out",
            ),
            pytest.param(
                marked_node(
                    spec={
                        **MARKED,
                        "taints": [
                            OURS,
                            {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"},
                        ],
                    }
                ),
                {},
                id="karpenter",
            ),
            pytest.param(
                marked_node(metadata={"deletionTimestamp": "2026-06-01T00:00:00Z"}),
                {},
                id="deleting",
            ),
            pytest.param(
                marked_node(status={"conditions": [{"type": "Ready", "status": "Unknown"}]}),
                {},
                id="unreachable",
            ),
            pytest.param(node(), {}, id="no-mark"),
            pytest.param(marked_node(spec={"taints": [OURS]}), {}, id="uncordoned"),
            pytest.param(marked_node(spec={"unschedulable": True}), {}, id="untainted"),
            pytest.param(marked_node(), {"quarantines": {}}, id="session-deleted"),
            pytest.param(
                marked_node(), {"quarantines": {"s1": session(phase="Cancelled")}}, id="ended"
            ),
            pytest.param(
                marked_node(),
                {"quarantines": {"s1": session(spec={"release": {"by": "ada"}})}},
                id="released",
            ),
            pytest.param(
                marked_node(), {"quarantines": {"s1": session(bootID="boot-0")}}, id="rebooted"
            ),
            pytest.param(marked_node(metadata={"uid": "other"}), {}, id="replaced"),
        ],
    )
    def test_an_eviction_is_held_back(self, seen: Any, fleet: dict[str, Any]) -> None:
        assert recheck(EVICT, seen, snapshot(**fleet)) != ""

    def test_a_mark_is_held_back_on_a_namesake(self) -> None:
        assert (
            recheck(MARK, node(metadata={"uid": "other"}), snapshot()) == "the node was replaced"
        )

    def test_the_mark_of_another_session_stops_an_eviction(self) -> None:
        other = d.EvictPod(node="n0", namespace="a", name="p", uid="u", session="s0")
        assert "s1" in recheck(other, marked_node(), snapshot())

    def test_a_pause_that_is_over_stops_nothing(self) -> None:
        over = pause(until=format_time(NOW - 1))
        assert recheck(EVICT, marked_node(), snapshot(pauses=over)) == ""

    def test_what_does_no_harm_is_not_held_back(self) -> None:
        unmark = d.UnmarkNode(node="n0", node_uid="u", session="s1", patch={})
        assert recheck(unmark, node(), snapshot(pauses=pause(), quarantines={})) == ""


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
            pytest.param(health(), {"pod-1": READY}, True, id="pod-ready"),
            pytest.param(health(), {}, False, id="pod-gone"),
            pytest.param(
                health(),
                {"pod-1": msgspec.structs.replace(READY, ready=False)},
                False,
                id="not-ready",
            ),
            pytest.param(health(bootID="boot-0"), {"pod-1": READY}, False, id="other-boot"),
            pytest.param(health(nodeUID="old"), {"pod-1": READY}, False, id="other-node"),
            pytest.param(None, {"pod-1": READY}, False, id="no-verdict"),
            pytest.param(
                health(publisher={"heartbeat": format_time(NOW - 700)}), {}, True, id="heartbeat"
            ),
            pytest.param(
                health(publisher={"heartbeat": format_time(NOW - 800)}),
                {},
                False,
                id="no-heartbeat",
            ),
            pytest.param(health(publisher={}), {}, False, id="nobody"),
            pytest.param(
                health(sources=[{"name": "nvml", "state": "Down"}]),
                {"pod-1": READY},
                False,
                id="blind",
            ),
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
