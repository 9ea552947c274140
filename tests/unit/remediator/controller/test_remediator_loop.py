"""The loop: a check that fell due while the replica might not act is made up for."""

import asyncio
from types import SimpleNamespace
from typing import cast

from remediator.controller.loop import ControlLoop, WorkQueue
from remediator.controller.node_cycle import CheckResult, NodeCycle
from tests.support.remediator.edge_world import some_edge
from tests.support.remediator.virtual_clock import VirtualClock


class Setting:
    """A loop over one node, which is at rest."""

    def __init__(self):
        self.clock, self.acts, self.checked_at = VirtualClock(at=0.0), True, []
        self.doubt, self.queue = "", WorkQueue(self.clock)
        nodes, healths = (SimpleNamespace(items={"n1": None}) for _ in range(2))
        world = self.world = SimpleNamespace(
            caches=SimpleNamespace(nodes=nodes, healths=healths), unselected={}, healths={},
            sessions={"n1": []}, deleted={}, doubt=lambda: self.doubt, observing_since=0.0,
            nodes_with_open_sessions=lambda: ["n1"], external_seen={},
            note_external=lambda name, node: False,
        )  # fmt: skip
        self.loop = ControlLoop(
            some_edge(
                self.clock,
                api=SimpleNamespace(under_way=lambda call_queue: 0, last_answer_at=None),
                world=world,
                may_act=lambda: self.acts,
            ),
            cast("NodeCycle", self),
            self.queue,
            steer=lambda name, evicting: None,
            hand_over=lambda: None,
            fleet_changed=lambda: None,
        )

    async def check(self, name):
        self.checked_at.append(self.clock.elapsed())
        return CheckResult()

    async def run(self, until_s, acts):
        """Let time pass; `acts` sets when the replica may act."""
        self.acts = acts(0.0)
        task = asyncio.create_task(self.loop.run())
        while self.clock.elapsed() < until_s:
            self.acts = acts(self.clock.elapsed())
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_checks_due_while_the_replica_cannot_act_are_made_up_for():
    setting = Setting()
    await setting.run(30, acts=lambda at: not 5 <= at < 20)
    assert [at for at in setting.checked_at if at < 5]
    assert not [at for at in setting.checked_at if 6 <= at < 20]
    assert [at for at in setting.checked_at if 20 <= at <= 22]


async def test_a_replica_that_may_not_act_looks_at_nothing():
    setting = Setting()
    await setting.run(30, acts=lambda at: False)
    assert setting.checked_at == []


async def test_sessions_are_checked_when_a_cache_becomes_old_and_when_it_is_fresh():
    setting = Setting()
    await setting.run(10, acts=lambda at: True)
    setting.checked_at.clear()
    setting.doubt = "what is known of gpuwardpauses is too old to act on"
    await setting.run(20, acts=lambda at: True)
    assert setting.checked_at
    setting.checked_at.clear()
    setting.doubt = ""
    await setting.run(30, acts=lambda at: True)
    assert setting.checked_at
    assert setting.world.observing_since > setting.clock.now() - 15, (
        "silence before proves nothing"
    )


async def test_a_takeover_checks_each_node_once_and_healthy_ones_last():
    setting = Setting()
    setting.world.caches.nodes.items["healthy"] = None
    setting.doubt = "nothing was listed yet"
    await setting.run(2, acts=lambda at: False)
    setting.doubt, setting.acts, queue = "", True, setting.queue
    setting.loop.took_over()
    assert [len(queue), await queue.take()] == [1, "n1"]
    setting.clock.at += 3.0
    assert [await queue.take(), len(queue)] == ["healthy", 0]
    for name in ("n1", "healthy"):
        queue.done(name)
    await setting.run(setting.clock.at + 10, acts=lambda at: True)
    assert setting.checked_at == []
