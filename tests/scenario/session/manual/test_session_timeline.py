"""Operator requests over time and next to the agent, and the column Reason."""

from dataclasses import dataclass, field

import msgspec
import pytest

from rules.api import writes as d
from rules.session.override import EVIDENCE_KNOWN, EVIDENCE_LEVEL
from tests.scenario.session.manual.test_session_override import end, fault, more_gpus
from tests.support.scenario.fleets import NODE, OPEN, at, fleet
from tests.support.scenario.judgement_world import World as Agent
from tests.support.scenario.session_world import ROOMY, World, policy_of


def ended(expiry: str) -> World:
    """A fault of one GPU in a session that an operator ended, with this `cancelExpiry`."""
    world = fleet(5, release={"cancelExpiry": expiry})
    world.fail_until(NODE, "Quarantined")
    end(world)
    return world


@pytest.mark.parametrize("restarts", [False, True])
def test_a_longer_cancel_expiry_ends_nothing(restarts: bool) -> None:
    """The session was opened when it was over: it never was against it."""
    world = ended("1h")
    world.run(3700, step=50)
    assert world.phase(NODE) == "Quarantined"
    world.policy = policy_of(budget=ROOMY, release={"cancelExpiry": "24h"})
    if restarts:
        world.restart()
    world.run(1800, step=20)
    assert len(world.sessions(NODE)) == 2
    assert world.phase(NODE) == "Quarantined"


def test_a_continued_session_has_no_lowered_level() -> None:
    """It waited for a drain; what comes back asks for a cordon."""
    world = fleet(5)
    world.pause()
    world.incident(NODE, severity="Fatal")
    world.run_until(NODE, "Pending", limit=30)
    world.close_all(NODE)
    world.run_until(NODE, "Cancelled", limit=30)
    world.incident(NODE, severity="Degraded", level="Cordon")
    world.run_until(NODE, "Pending", limit=30)
    world.run(5)
    assert len(world.sessions(NODE)) == 1
    evidence = world.session(NODE).status.evidence
    assert evidence[EVIDENCE_LEVEL] == "Cordon"
    assert EVIDENCE_KNOWN not in evidence
    fault(world).update(level="Drain")
    world.healths[NODE]["status"]["incidents"][0].update(level="Drain")
    world.run(5)
    assert world.session(NODE).spec.level == "Drain"


def lowered_while(unsure: dict[str, object]) -> World:
    """An operator lowers the level while the agent starts, and the agent repeats its earlier
    report.
    """
    world = fleet(5)
    world.add_pod("kept", NODE)
    world.add_pdb("keep", minAvailable=1)
    world.fail_until(NODE, "Draining")
    text = dict(fault(world))
    fault(world).update(unsure)
    world.run(2)
    world.quarantines[world.session(NODE).name]["spec"]["level"] = "Cordon"
    world.run(5)
    fault(world).update(text)
    world.run(600, step=10)
    return world


@pytest.mark.parametrize(
    "unsure",
    [
        {"severity": "Info", "level": "Report"},
        {"severity": "Degraded", "level": "Report", "reason": "Unconfirmed"},
    ],
)
def test_a_level_taken_down_while_the_agent_starts_stays_down(unsure: dict[str, object]) -> None:
    world = lowered_while(unsure)
    assert world.session(NODE).spec.level == "Cordon"
    fault(world)["gpus"].append(f"GPU-{NODE}-1")
    world.run(10)
    assert world.session(NODE).spec.level == "Drain", "a GPU that nobody saw"


def versions(world: World) -> dict[str, str]:
    """Every write of one of these leaves another version."""
    objects = [*world.quarantines.values(), *world.nodes.values()]
    return {each["metadata"]["uid"]: each["metadata"]["resourceVersion"] for each in objects}


def test_a_manual_request_is_written_once() -> None:
    world = ended("24h")
    more_gpus(world, 1)
    world.run_until(NODE, "Quarantined", limit=30)
    world.run(10)
    before = versions(world)
    world.run(1200, step=40)
    world.restart()
    world.run(1200, step=40)
    assert versions(world) == before


@dataclass
class Both:
    """One node, judged by the rules of the agent, in a cluster with a remediator."""

    agent: Agent
    cluster: World = field(default_factory=lambda: World(policy_of(budget=ROOMY)))

    def __post_init__(self) -> None:
        self.cluster.add_nodes(5)
        self.agent.start()

    def run(self, seconds: float, step: float = 1.0) -> None:
        """Time passes for both; what is judged is published at once."""
        for _ in range(round(seconds / step)):
            self.agent.advance(step, polling=step > 1)
            self.publish()
            self.cluster.run(step, step)

    def publish(self) -> None:
        text = msgspec.to_builtins(self.agent.published().status.incidents)
        self.cluster.healths[NODE]["status"]["incidents"] = text

    def release(self) -> None:
        name = self.cluster.session(NODE).name
        self.cluster.quarantines[name]["spec"]["release"] = {"by": "ada"}
        self.run(3)
        assert not self.cluster.is_quarantined(NODE)

    @property
    def sessions(self) -> int:
        return len(self.cluster.sessions(NODE))


def lost(agent: Agent, gpu: int) -> None:
    agent.pull(gpu)
    agent.xid(79, gpu, "GPU has fallen off the bus.")


def test_half_of_the_gpus_within_a_minute_of_the_released_one() -> None:
    both = Both(Agent(4))
    lost(both.agent, 0)
    both.run(8)
    assert both.sessions == 1
    both.release()
    lost(both.agent, 1)
    both.run(5)
    assert len(both.agent.only().gpus) == 2, "one incident, by its first id"
    assert both.sessions == 2
    both.release()
    both.run(120, step=15)
    both.agent.restart_agent()
    both.agent.start()
    both.run(600, step=15)
    assert both.sessions == 2


def test_those_that_fail_first_are_sessions_of_their_own_until_they_merge() -> None:
    both = Both(Agent(8))
    lost(both.agent, 0)
    both.run(8)
    both.release()
    for gpu in (1, 2):
        lost(both.agent, gpu)
        both.run(3)
    assert both.sessions == 2
    lost(both.agent, 3)
    both.run(60)
    assert len(both.agent.only().gpus) == 4
    assert both.sessions == 2
    assert both.cluster.phase(NODE) == "Quarantined", "its causes ended in the released incident"


def test_the_drivers_answer_to_a_released_incident() -> None:
    both = Both(Agent(8))
    for number in (48, 63, 94):
        both.agent.xid(number)
    both.agent.asked(4)
    both.run(8)
    assert both.agent.outcome().startswith("Degraded Cordon")
    assert both.sessions == 1
    both.release()
    both.agent.asked(4)
    both.run(60, step=5)
    assert both.sessions == 1
    both.agent.asked(2)
    both.run(40, step=2)
    assert both.agent.outcome().startswith("Fatal")
    assert both.sessions == 2


@pytest.mark.parametrize("lines", [1, 3])
def test_a_released_fault_that_is_reported_repeatedly(lines: int) -> None:
    both = Both(Agent(4))
    lost(both.agent, 0)
    both.run(8)
    both.release()
    for _ in range(4):
        for _ in range(lines):
            both.agent.xid(79, 0, "GPU has fallen off the bus.")
        both.run(120, step=15)
        both.agent.restart_agent()
        both.agent.start()
        both.run(60, step=15)
    assert both.sessions == 1
    assert not both.cluster.is_quarantined(NODE)


MILD = "Xid94ContainedMemoryError"
SEVERE = "Xid79GPUFallenOffBus"


def records(world: World) -> int:
    return sum(isinstance(write, d.WriteSessionStatus) for _, write, _, _ in world.sent)


@pytest.mark.parametrize("mode", ["Enforce", "Shadow"])
def test_the_most_severe_cause_is_named_even_if_it_came_later(mode: str) -> None:
    world = fleet(5, mode=mode)
    world.add_pod("kept", NODE)
    world.add_pdb("keep", minAvailable=1)
    world.incident(NODE, MILD, severity="Degraded")
    world.run(10)
    assert world.session(NODE).status.reason == MILD
    world.incident(NODE, SEVERE, gpu="GPU-n0-1")
    world.run(10)
    session = world.session(NODE)
    assert [cause.reason for cause in session.spec.causes] == [MILD, SEVERE]
    assert session.status.reason == SEVERE


@pytest.mark.parametrize("phase", OPEN)
def test_a_session_of_an_older_release_gets_it_with_one_write(phase: str) -> None:
    world = at(phase)
    stored = world.quarantines[world.session(NODE).name]
    del stored["status"]["reason"]
    world.touch(stored)
    before = records(world)
    world.run(5)
    assert world.session(NODE).status.reason == SEVERE
    assert records(world) == before + 1
    world.run(50)
    assert records(world) == before + 1


def test_it_stays_with_a_session_that_ended() -> None:
    world = at("Draining")
    session = world.quarantines[world.session(NODE).name]
    session["spec"]["release"] = {"by": "ann", "reason": "drill over"}
    world.touch(session)
    world.run_until(NODE, "Released", limit=30)
    assert world.session(NODE).status.reason == SEVERE


def test_a_session_of_a_deleted_node_names_it() -> None:
    world = at("Quarantined")
    name = world.session(NODE).name
    del world.nodes[NODE]
    world.run(90)
    ended = world.quarantines[name]["status"]
    assert (ended["phase"], ended["reason"]) == ("NodeGone", SEVERE)


def test_a_manual_cause_without_a_code_names_its_operator() -> None:
    world = fleet(5)
    world.open_by_operator(NODE, causes=[{"source": "Human", "message": "drill"}])
    world.run(5)
    assert world.session(NODE).status.reason == "Human"
