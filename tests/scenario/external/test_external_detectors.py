"""Findings of other detectors on a Node, and the fire drill on record."""

from typing import Any

import pytest

from rules.api import writes as d
from rules.api.gpu_record import RecordStatus, node_record_name
from rules.api.quarantine import Cause
from rules.api.timestamps import format_time
from rules.fleet.turns import judge_fleet
from rules.session.external import _id, closing_clauses
from tests.support.scenario.repair_world import NODE, RecordWorld
from tests.support.scenario.session_world import ROOMY, World, policy_of

CONDITION = "condition GpuBroken=True"


def trigger(**given: Any) -> dict[str, Any]:
    site = {"reason": "SiteGPUBroken", "severity": "Fatal", "level": "Drain"}
    return {"match": CONDITION, **site, **given}


class ExternalWorld(World):
    """A cluster whose nodes others write on."""

    def __init__(self, *triggers: dict[str, Any], nodes: int = 5, **sections: Any) -> None:
        external = list(triggers) or [trigger()]
        super().__init__(policy_of(**{"budget": ROOMY, "external": external, **sections}))
        self.add_nodes(nodes)

    def condition_is(self, status: str | None, node: str = NODE, **more: str) -> None:
        """The detector writes its condition, or takes it off."""
        conditions = self.nodes[node]["status"]["conditions"]
        conditions[:] = [each for each in conditions if each["type"] != "GpuBroken"]
        if status is not None:
            at = format_time(self.now)
            known = {"type": "GpuBroken", "status": status, "lastTransitionTime": at}
            conditions.append({**known, "reason": "Smoke", "message": "it smells", **more})
        self.touch(self.nodes[node])


def test_a_condition_drains_its_node_and_gives_it_back_when_it_closes() -> None:
    world = ExternalWorld()
    world.condition_is("True")
    world.run(110, step=5)
    assert not world.sessions(NODE), "it has not been so for two minutes"
    world.run(30, step=1)
    assert world.phase(NODE) == "Quarantined"
    (cause,) = world.session(NODE).spec.causes
    assert (cause.source, cause.reason, cause.severity) == ("External", "SiteGPUBroken", "Fatal")
    assert cause.message == "Node condition GpuBroken is True: Smoke: it smells"
    assert "SiteGPUBroken (Fatal)" in world.message(NODE)
    world.condition_is("False")
    world.run(30)
    assert world.phase(NODE) == "Validating"
    world.run(700, step=5)
    assert world.phase(NODE) == "Released"
    assert not world.is_quarantined(NODE)


def test_a_condition_that_goes_away_in_time_opens_nothing() -> None:
    world = ExternalWorld()
    for _ in range(10):
        world.condition_is("True")
        world.run(60, step=5)
        world.condition_is("False")
        world.run(60, step=5)
    assert not world.sessions(NODE)


def test_unknown_opens_nothing_and_closes_nothing() -> None:
    world = ExternalWorld()
    world.condition_is("True")
    world.run(150, step=5)
    world.condition_is("Unknown")
    world.run(1800, step=10)
    assert world.phase(NODE) == "Quarantined"
    world.condition_is(None)
    world.run(900, step=10)
    assert world.phase(NODE) == "Released", "somebody took it off the node"


def test_it_needs_no_health_status_unless_the_node_has_an_agent() -> None:
    world = ExternalWorld()
    world.silence(NODE)
    world.run(800, step=20)
    world.condition_is("True")
    world.run(150, step=5)
    assert world.phase(NODE) == "Quarantined"
    world.condition_is("False")
    world.run(1800, step=20)
    assert world.phase(NODE) != "Released", "nobody has seen that its GPUs are well"
    world.speak(NODE)
    world.run(900, step=10)
    assert world.phase(NODE) == "Released"


def test_a_node_that_never_had_an_agent_comes_back_by_the_condition_alone() -> None:
    world = ExternalWorld()
    del world.healths[NODE]
    world.condition_is("True")
    world.run(150, step=5)
    assert world.phase(NODE) == "Quarantined"
    world.condition_is("False")
    world.run(900, step=10)
    assert world.phase(NODE) == "Released"


def test_a_missing_health_status_of_a_node_with_an_agent_releases_nothing() -> None:
    world = ExternalWorld()
    world.label(NODE, gpuward_io__health="healthy")
    world.nodes[NODE]["metadata"]["labels"]["gpuward.io/health"] = "healthy"
    del world.healths[NODE]
    world.condition_is("True")
    world.run(150, step=5)
    world.condition_is("False")
    world.run(1800, step=20)
    assert world.phase(NODE) == "Quarantined"


def test_many_nodes_at_once_are_a_correlated_cause() -> None:
    """The detector was rolled out wrongly: the nodes share nothing but it."""
    budget = {"maxUnavailable": {"percent": 100, "atMost": 100}}
    world = ExternalWorld(nodes=10, budget=budget)
    for name in list(world.nodes):
        del world.healths[name]
        world.condition_is("True", name)
    world.run(300, step=5)
    taken = [name for name in world.nodes if world.is_quarantined(name)]
    assert len(taken) <= 3
    breaker = judge_fleet(world.snapshot()).breaker
    assert breaker.open
    assert [(f.reason, f.shared) for f in breaker.findings] == [
        ("SiteGPUBroken", "detector=External")
    ]


def test_shadow_reports_it_and_changes_nothing() -> None:
    world = ExternalWorld(mode="Shadow")
    world.condition_is("True")
    world.run(300, step=5)
    assert "SiteGPUBroken (Fatal)" in world.message(NODE)
    assert world.message(NODE).startswith("Shadow mode: ")
    assert not world.writes(d.TaintAndCordon, d.EvictPod)


def test_an_operator_ends_it_while_the_trigger_stays() -> None:
    world = ExternalWorld()
    world.condition_is("True")
    world.run(150, step=5)
    session = world.quarantines[world.session(NODE).name]
    session["spec"]["release"] = {"by": "ada", "reason": "false alarm"}
    world.touch(session)
    world.run(3600, step=10)
    assert world.phase(NODE) == "Released"
    world.condition_is("False")
    world.run(60, step=5)
    world.condition_is("True")
    world.run(600, step=5)
    assert len(world.sessions(NODE)) == 1
    world.run(24 * 3600, step=120)
    assert len(world.sessions(NODE)) == 2, "cancelExpiry is over"


def test_a_trigger_that_leaves_the_policy_asks_for_nothing_any_more() -> None:
    world = ExternalWorld()
    world.condition_is("True")
    world.run(150, step=5)
    world.policy = policy_of(budget=ROOMY)
    world.run(900, step=10)
    assert world.phase(NODE) == "Released"


def test_the_level_is_the_policys_of_now() -> None:
    world = ExternalWorld(trigger(level="Cordon"))
    world.add_pod("work", NODE)
    world.condition_is("True")
    world.run(300, step=5)
    assert world.phase(NODE) == "Marked"
    assert not world.writes(d.EvictPod)
    world.policy = policy_of(budget=ROOMY, external=[trigger(level="Report")])
    world.run(900, step=10)
    assert world.phase(NODE) == "Released"


def test_it_joins_the_session_that_there_is() -> None:
    world = ExternalWorld()
    incident = world.incident(NODE, severity="Degraded", level="Cordon")
    world.run(60, step=5)
    world.condition_is("True")
    world.run(200, step=5)
    assert len(world.sessions(NODE)) == 1
    assert [c.source for c in world.session(NODE).spec.causes] == ["Detector", "External"]
    world.close(NODE, incident)
    world.run(1200, step=10)
    assert world.phase(NODE) == "Quarantined"
    world.condition_is("False")
    world.run(900, step=10)
    assert world.phase(NODE) == "Released"


@pytest.mark.parametrize(
    "found",
    [
        "label provider.example/maintenance=soon",
        "annotation provider.example/maintenance",
        "taint provider.example/maintenance:NoSchedule",
    ],
)
def test_a_notice_as_label_annotation_or_taint(found: str) -> None:
    world = ExternalWorld(trigger(match=found))
    kind = found.partition(" ")[0]
    world.run(60, step=5)
    if kind == "taint":
        world.taint(NODE, "provider.example/maintenance")
    else:
        kept = world.nodes[NODE]["metadata"][f"{kind}s"]
        kept["provider.example/maintenance"] = "soon"
    world.run(100, step=5)
    assert not world.sessions(NODE)
    world.restart()
    world.run(100, step=5)
    assert not world.sessions(NODE), "what has no time of its own counts again after a restart"
    world.run(60, step=5)
    assert world.phase(NODE) == "Quarantined"
    if kind == "taint":
        world.untaint(NODE, "provider.example/maintenance")
    else:
        del kept["provider.example/maintenance"]
    world.run(900, step=10)
    assert world.phase(NODE) == "Released"


@pytest.mark.parametrize("spelled", ["rfc3339", "unix"])
def test_a_notice_with_a_time_begins_so_long_before_it(spelled: str) -> None:
    notice = {"match": "annotation provider.example/at", "before": "30m", "for": "0s"}
    world = ExternalWorld(trigger(**notice))
    at = world.now + 7200
    value = format_time(at) if spelled == "rfc3339" else str(int(at))
    world.annotate(NODE, "provider.example/at", value)
    world.run(5390, step=10)
    assert not world.sessions(NODE)
    world.run(30, step=5)
    assert world.phase(NODE) == "Quarantined"
    world.annotate(NODE, "provider.example/at", format_time(world.now + 7 * 86_400))
    world.run(900, step=10)
    assert world.phase(NODE) == "Released", "it was put off by a week"


def test_a_notice_of_last_year_opens_nothing() -> None:
    notice = {"match": "annotation provider.example/at", "before": "30m", "for": "0s"}
    world = ExternalWorld(trigger(**notice))
    for index, value in enumerate([format_time(world.now - 2 * 86_400), "soon", "9" * 400, ""]):
        world.annotate(f"n{index}", "provider.example/at", value)
    world.run(600, step=10)
    assert not world.quarantines


def test_hostile_texts_are_bounded_and_escaped() -> None:
    world = ExternalWorld()
    world.condition_is("True", reason="\x1b[2J" * 100, message="\u202eevil\n" * 10_000)
    world.run(150, step=5)
    (cause,) = world.session(NODE).spec.causes
    assert cause.message.isprintable()
    assert len(cause.message) <= 512


def test_a_time_in_the_future_counts_from_when_it_was_seen() -> None:
    world = ExternalWorld()
    world.condition_is("True", lastTransitionTime=format_time(world.now + 10 * 86_400))
    world.run(110, step=5)
    assert not world.sessions(NODE)
    world.run(30, step=5)
    assert world.phase(NODE) == "Quarantined"


def test_an_agent_cannot_claim_to_be_somebody_else() -> None:
    world = ExternalWorld()
    world.incident(NODE)
    world.healths[NODE]["status"]["incidents"][0]["id"] = "external-0123"
    world.run(300, step=5)
    assert not world.quarantines


def test_its_action_selects_the_first_step() -> None:
    steps = {"RestartNode": {"adapter": "NodeConditions"}}
    repair = {"mode": "Ask", "steps": steps}
    world = ExternalWorld(trigger(action="RestartNode"), repair=repair)
    world.condition_is("True")
    world.run(200, step=5)
    assert world.condition(NODE, "RepairProposed") == "RestartNode"
    world = ExternalWorld(repair=repair)
    world.condition_is("True")
    world.run(200, step=5)
    assert world.condition(NODE, "NeedsHuman") == "NoStepLeft"
    # Closing depends on the other detector, so the record names it.
    assert "it ends with condition GpuBroken of the Node becoming False" in world.message(NODE)


def test_pause_and_opt_out_hold_for_others_too() -> None:
    world = ExternalWorld()
    world.label("n1", gpuward_io__opt_out="true")
    world.nodes["n1"]["metadata"]["labels"]["gpuward.io/opt-out"] = "true"
    world.pause()
    for name in (NODE, "n1"):
        world.condition_is("True", name)
    world.run(600, step=10)
    assert not world.writes(d.TaintAndCordon)
    assert not world.sessions("n1")


@pytest.mark.parametrize(
    ("given", "ends"),
    [
        ({"match": "condition GpuBroken=False"}, "becoming True"),
        ({"match": "condition GpuBroken=Unknown"}, "becoming True or False"),
        ({"match": "label a.example/x"}, "label a.example/x being removed from the Node"),
        (
            {"match": "label a.example/x=1"},
            "label a.example/x being removed from the Node or changed",
        ),
        (
            {"match": "annotation a.example/at", "before": "1h"},
            "annotation a.example/at being removed from the Node or put off",
        ),
        ({"match": "taint a.example/t"}, "taint a.example/t being removed from the Node"),
    ],
)
def test_what_ends_each_kind_of_trigger(given: dict[str, Any], ends: str) -> None:
    policy = policy_of(external=[trigger(**given)])
    (known,) = policy.external
    cause = Cause(source="External", incident=_id("uid", known))
    (text,) = closing_clauses([cause, Cause(source="Human")], "uid", policy)
    assert text.endswith(ends)


DRILL = "example.com/gpu-drill"


def drilled() -> RecordWorld:
    """The trigger of the runbook, its label on and off, and the node returned to service."""
    world = RecordWorld()
    trigger = {
        "match": f"label {DRILL}", "for": "10s", "reason": "FireDrill", "level": "Drain",
        "action": "RestartNode",
    }  # fmt: skip
    world.policy = policy_of(budget=ROOMY, external=[trigger])
    labels = world.nodes[NODE]["metadata"]["labels"]
    labels[DRILL] = "true"
    world.touch(world.nodes[NODE])
    world.run_until(NODE, "Quarantined", limit=300, step=5)
    del labels[DRILL]
    world.touch(world.nodes[NODE])
    world.run_until(NODE, "Released", limit=3000, step=25)
    world.keep_records()
    return world


def record(world: RecordWorld) -> RecordStatus:
    return world.snapshot().records[node_record_name(NODE)].status


def test_a_drill_is_recorded_until_an_operator_reports_the_repair() -> None:
    world = drilled()
    assert "1 fault in 90 days (FireDrill)" in record(world).message
    world.run(60, step=30)
    text = f"{format_time(world.now)} fire drill (ann)"
    world.annotate(NODE, "gpuward.io/repaired", text)
    world.run(60, step=30)
    world.keep_records()
    assert "no counted fault in 90 days" in record(world).message
    (event,) = record(world).events
    assert event.reason == "FireDrill", "what happened stays to be read"


def test_a_quarantine_by_hand_leaves_no_fault_on_record() -> None:
    world = RecordWorld()
    world.open_by_operator(NODE)
    world.run_until(NODE, "Quarantined", limit=300, step=5)
    world.keep_records()
    assert node_record_name(NODE) not in world.snapshot().records
