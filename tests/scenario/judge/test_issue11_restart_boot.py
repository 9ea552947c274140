"""What a restarted agent takes for an older boot's, and what it remembers of a repair."""

from __future__ import annotations

from dataclasses import replace

from tests.support.scenario.judgement_world import World
from tests.support.scenario.restarts import reborn

DAY_S = 86_400.0


def test_issue11_restart_after_the_clock_was_set_closes_no_fatal_incident() -> None:
    world = World()
    world.xid(95, gpu=1)
    world.advance(60, polling=True)
    world.now += 7200
    world.booted_at += 7200 + DAY_S
    world.state = reborn(world.state, world.now, world.boot, world.rules)
    world.host()
    assert not any(incident.rebooted for incident in world.state.incidents)
    world.advance(120, polling=True)
    assert world.says() == "Fatal Drain ResetGPU"


def test_issue11_restart_remembers_a_reboot_or_reset_that_no_look_has_confirmed() -> None:
    world = World()
    world.xid(95, gpu=1)
    world.advance(60)
    for evidence in ({"rebooted": True}, {"reset_at": world.now}):
        known = tuple(replace(i, **evidence) for i in world.state.incidents)
        again = reborn(replace(world.state, incidents=known), world.now, world.boot, world.rules)
        wanted = [(i.rebooted, i.reset_at is None) for i in known]
        assert [(i.rebooted, i.reset_at is None) for i in again.incidents] == wanted
