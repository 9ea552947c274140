"""The agent's own judgement beside a session that a person ended: what it puts into the released
incident since then, and what it says again of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import pytest

from tests.support.scenario.judgement_world import World as Agent
from tests.support.scenario.session_world import ROOMY, World, policy_of

NODE = "n0"


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
        said = msgspec.to_builtins(self.agent.published().status.incidents)
        self.cluster.healths[NODE]["status"]["incidents"] = said

    def release(self) -> None:
        name = self.cluster.session(NODE).name
        self.cluster.quarantines[name]["spec"]["release"] = {"by": "ada"}
        self.run(3)
        assert not self.cluster.is_marked(NODE)

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
    assert both.agent.says().startswith("Degraded Cordon")
    assert both.sessions == 1
    both.release()
    both.agent.asked(4)
    both.run(60, step=5)
    assert both.sessions == 1
    both.agent.asked(2)
    both.run(40, step=2)
    assert both.agent.says().startswith("Fatal")
    assert both.sessions == 2


@pytest.mark.parametrize("lines", [1, 3])
def test_a_released_fault_that_is_told_again_and_again(lines: int) -> None:
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
    assert not both.cluster.is_marked(NODE)
