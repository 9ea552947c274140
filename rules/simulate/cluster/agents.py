"""The agents of the simulated fleet: they poll when something changed, and publish what is
news.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from rules.api.metadata import ObjectMeta
from rules.api.nodes import AgentPod, HealthView
from rules.judge.observation import SourceState
from rules.judge.workload import Workload as Program
from rules.simulate.cluster.sim_node import SimNode
from rules.simulate.cluster.world import BEGIN, World
from rules.simulate.node.machine import Machine

_POLL_S: Final = 15.0
_REREAD_S: Final = 2.0
_SAME_POLLS: Final = 6
"""So many polls in a row with the same verdict: more than the slowest check of a GPU looks at."""
_PORT_LOOKS: Final = 8
"""Looks at the host, a minute apart: a port has to stay down for four."""
_UP_FOR_S: Final = 86_400.0


class Agents:
    """Every node's agent, and what all of them have published."""

    def __init__(self, world: World, published: Callable[[SimNode], None]) -> None:
        self._world = world
        self._published = published
        self.healths: dict[str, HealthView] = {}
        """Of nodes that ever had anything to say."""
        self.pods: dict[str, AgentPod] = {}
        for node in world.by_number:
            self._pod(node, BEGIN - _UP_FOR_S, up=True)

    def _pod(self, node: SimNode, since: float, *, up: bool) -> None:
        uid = node.machine.pod_uid
        self.pods[uid] = AgentPod(uid=uid, node=node.name, ready=up, ready_changed_at=since)

    def line(self, node: SimNode, text: str, gpu: int, program: Program | None) -> None:
        """The agent reads it, unless it is gone."""
        if not node.machine.agent_down:
            node.machine.line(text, gpu, self._world.now, program)
            self._follow(node)

    def reads(self, node: SimNode) -> None:
        """Polls show it, the first within 15 s; they go on until the verdict rests."""
        wait_s = self._world.dice.random() * _POLL_S
        self._world.clock.after(wait_s, lambda: self.poll(node))

    def blind(self, node: SimNode, *, agent: bool, over: bool) -> None:
        """The agent dies or is back; the driver hangs or answers."""
        machine, now = node.machine, self._world.now
        if agent:
            machine.agent_down = not over
            self._pod(node, now, up=over)
            if over and machine.state is not None:
                machine.agent_starts(now)
                self.poll(node)
            return
        state = SourceState.UP if over else SourceState.DOWN
        machine.nvml_is(state, now, "" if over else "CallHung")
        self._follow(node, always=True)

    def poll(self, node: SimNode, times: int = 0, said: str = "") -> None:
        """One poll, and the next while something may come of it."""
        machine, clock = node.machine, self._world.clock
        if machine.agent_down:
            return
        machine.poll(self._world.now)
        self._follow(node)
        says = _said(machine)
        same = times + 1 if says == said else 0
        if same == _SAME_POLLS and not machine.ports_up:
            for minute in range(1, _PORT_LOOKS):
                clock.after(60.0 * minute, lambda: self._host(node))
        if machine.rereads:
            clock.after(_REREAD_S, lambda: self.poll(node, same, says))
        elif same < _SAME_POLLS:
            clock.after(_POLL_S, lambda: self.poll(node, same, says))

    def _host(self, node: SimNode) -> None:
        if not node.machine.agent_down:
            node.machine.host_look(self._world.now)
            self._follow(node)

    def _follow(self, node: SimNode, *, always: bool = False) -> None:
        """After every fact: wait for what time changes, publish what is news.

        Records alone (severity Info) ask for nothing and are published with the next news.
        """
        machine = node.machine
        due = machine.deadline
        if due is not None:
            self._world.clock.at(due + 0.001, lambda: self._tick(node, due))
        known = self.healths.get(node.name)
        told = known is not None and (
            known.status.health != "Healthy" or known.status.boot_id != machine.boot_id
        )
        if always or machine.grave or told:
            self._publish(node)

    def _tick(self, node: SimNode, due: float) -> None:
        if node.machine.deadline == due and not node.machine.agent_down:
            node.machine.tick(self._world.now)
            self._follow(node)

    def _publish(self, node: SimNode) -> None:
        new = node.machine.publication(self._world.now)
        if new is None:
            return
        self.healths[node.name] = HealthView(
            metadata=ObjectMeta(name=node.name), status=new.status
        )
        if any(one.active and one.severity != "Info" for one in new.status.incidents):
            self._world.alert(node)
        self._published(node)


def _said(machine: Machine) -> str:
    if machine.state is None:
        return ""
    return "|".join(f"{i.row.reason}{i.row.severity}{i.active}" for i in machine.state.incidents)
