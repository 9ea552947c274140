"""Whatever comes to a fault, leaves it, or ends its session, in any order: an operator is heard,
and asked once about what came since.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from rules.session.observation import is_open
from tests.support.scenario.session_world import ROOMY, World, policy_of

NODE = "n0"
SEVERITIES = ("Degraded", "Fatal")
ACTS = 30


@dataclass
class Node:
    """The node, with what an operator has seen of its fault."""

    dice: random.Random
    world: World = field(
        default_factory=lambda: World(policy_of(budget=ROOMY, release={"healthyFor": "30s"}))
    )
    heard: list[tuple[frozenset[str], int]] = field(default_factory=list)
    """GPUs and severity of the fault each time that the operator ended a session for it."""

    @property
    def fault(self) -> dict[str, Any]:
        found: dict[str, Any] = self.world.healths[NODE]["status"]["incidents"][0]
        return found

    @property
    def beyond(self) -> bool:
        """Whether no request covers the fault as it is now."""
        severity, gpus = SEVERITIES.index(self.fault["severity"]), set(self.fault["gpus"])
        return not any(gpus <= known and severity <= worst for known, worst in self.heard)

    @property
    def opened(self) -> int:
        return len(self.world.sessions(NODE))

    @property
    def open(self) -> bool:
        return any(map(is_open, self.world.sessions(NODE)))

    # ------------------------------------------------------------------ what may happen

    def gpu_joins(self) -> None:
        gpu = f"GPU-{self.dice.randrange(8)}"
        if gpu not in self.fault["gpus"]:
            self.fault["gpus"].append(gpu)

    def gpu_leaves(self) -> None:
        if len(self.fault["gpus"]) > 1:
            self.fault["gpus"].remove(self.dice.choice(self.fault["gpus"]))

    def worsens(self) -> None:
        self.fault["severity"] = "Fatal"

    def eases(self) -> None:
        self.fault["severity"] = "Degraded"

    def goes_on(self) -> None:
        self.fault["count"] = self.fault.get("count", 1) + 1

    def remediator_restarts(self) -> None:
        self.world.restart()

    def node_reboots(self) -> None:
        self.world.reboot(NODE)

    def agent_falls_silent_for_a_while(self) -> None:
        self.world.silence(NODE)
        self.world.run(800, step=100)
        self.world.speak(NODE)

    def operator_releases(self) -> None:
        self._request(lambda: self._spec().update(release={"by": "ada"}))

    def operator_uncordons(self) -> None:
        if self.world.is_quarantined(NODE):
            self._request(lambda: self.world.cordon(NODE, on=False))

    def operator_deletes(self) -> None:
        self._request(lambda: self.world.quarantines.pop(self.world.session(NODE).name))

    def _spec(self) -> dict[str, Any]:
        spec: dict[str, Any] = self.world.quarantines[self.world.session(NODE).name]["spec"]
        return spec

    def _request(self, act: Callable[[], object]) -> None:
        if not self.open:
            return
        severity = max(SEVERITIES.index(self.fault["severity"]), self._as_it_came())
        act()
        self.heard.append((frozenset(self.fault["gpus"]), severity))

    def _as_it_came(self) -> int:
        """The operator has seen the causes at the opening of the session."""
        causes = [c for s in self.world.sessions(NODE)[-1:] for c in s.spec.causes]
        return max((SEVERITIES.index(c.severity) for c in causes), default=-1)


MAY_HAPPEN = [n for n, act in vars(Node).items() if not n.startswith("_") and callable(act)]


@pytest.mark.parametrize(
    "seed",
    [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 60))],
)
def test_an_operator_is_asked_once_about_later_faults(seed: int) -> None:
    node = Node(random.Random(seed))
    node.world.add_nodes(5)
    node.world.incident(NODE, severity=node.dice.choice(SEVERITIES), gpu="GPU-0")
    node.world.run(15, step=5)
    happened = []
    for _ in range(ACTS):
        before = node.opened
        happened.append(node.dice.choice(MAY_HAPPEN))
        getattr(node, happened[-1])()
        node.world.run(15, step=5)
        opened = node.opened - before
        assert opened <= 1, happened
        if node.beyond:
            assert node.open, f"not asked about what came since: {happened}"
        elif opened:
            raise AssertionError(f"asked again about what was left: {happened}")
        if not node.open:
            assert not node.world.is_quarantined(NODE), happened
