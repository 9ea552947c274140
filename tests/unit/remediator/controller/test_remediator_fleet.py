"""The fleet health status of one process: how soon a session that waits for it is judged."""

from dataclasses import replace

import pytest

from hack.sim.cluster.resource import NODES
from remediator.controller.fleet import Fleet
from rules.api.health import HealthStatus, IncidentStatus
from rules.api.metadata import TimedMeta
from rules.api.names import LABEL_GPUS
from rules.api.nodes import HealthView
from rules.api.quarantine import Mode
from rules.fleet.turns import FleetAssessment
from rules.policy.policy import Policy
from rules.session.observation import Unjudged
from tests.support.remediator.edge import edge
from tests.support.remediator.edge_world import edge_world, open_session
from tests.support.remediator.virtual_clock import VirtualClock


@pytest.fixture
async def setting(tmp_path):
    async with edge(tmp_path) as cluster:
        for name in ("n1", "n2"):
            await cluster.add_node(name)
        async with edge_world(cluster, Policy(mode=Mode.ENFORCE)) as found:
            yield found


async def test_a_few_assessments_do_not_wait_and_many_take_a_tenth_of_the_time(setting):
    clock, assessed = VirtualClock(at=0.0), []

    def slow(snapshot, memory=None):
        assessed.append(clock.at)
        clock.at += 0.01
        return FleetAssessment()

    edge_then = replace(setting.edge(), clock=clock)
    fleet = Fleet(edge_then, wake=lambda node: None, judge=slow)
    while clock.at < 40:
        fleet.changed()
        fleet.permit("")
        clock.at += 0.001
    assert sum(at < 0.2 for at in assessed) >= 6, "a burst does not wait"
    assert sum(20 <= at < 40 for at in assessed) * 0.01 == pytest.approx(0.1 * 20, rel=0.05)


async def test_a_new_session_is_assessed_after_the_pause(setting):
    clock = VirtualClock()
    fleet = Fleet(replace(setting.edge(), clock=clock), wake=lambda node: None)
    known = setting.caches.quarantines.items
    await open_session(setting, "n1")
    assert fleet.judged(known["s-n1"]), "nothing was judged a moment ago"
    await open_session(setting, "n2")
    fleet.changed()
    assert not any(fleet.judged(known["s-n2"]) for _ in range(20))
    clock.at += 1.0
    assert fleet.judged(known["s-n2"])


async def test_a_new_policy_withdraws_permits_to_quarantine(setting):
    fleet = Fleet(replace(setting.edge(), clock=VirtualClock()), wake=lambda node: None)
    await open_session(setting, "n1")
    assert fleet.permit("s-n1").unjudged is None
    fleet.policy_changed()
    assert fleet.permit("s-n1").unjudged is Unjudged.FLEET
    assert not fleet.judged(setting.caches.quarantines.items["s-n1"])


async def test_sessions_without_a_quarantine_are_assessed_after_the_pause(setting):
    clock = VirtualClock()
    fleet = Fleet(replace(setting.edge(), clock=clock), wake=lambda node: None)
    fleet.permit("")
    assessment = fleet.assessment
    fleet.changed()
    fleet.permit("")
    assert fleet.assessment is assessment
    clock.at += 1.0
    fleet.permit("")
    assert fleet.assessment is not assessment


async def test_what_faulty_nodes_share_is_a_metric_until_it_is_over(tmp_path):
    rack, hot = "example.com/rack", [f"n{index}" for index in range(5)]
    async with edge(tmp_path) as cluster:
        for index in range(40):
            await cluster.add_node(f"n{index}")
            labels = {rack: f"r{index // 5}", LABEL_GPUS: "8"}
            await cluster.client.patch(NODES, f"n{index}", {"metadata": {"labels": labels}})
        async with edge_world(cluster, Policy(mode=Mode.ENFORCE)) as setting:
            clock = VirtualClock()
            parts = replace(setting.edge(), clock=clock)
            fleet = Fleet(parts, wake=lambda node: None)
            for name in hot:
                setting.world.healths[name] = reported(name)
            fleet.permit("")
            fleet.compare()
            assert common_causes(parts) == {
                (name, "ThermalSlowdown", f"{rack}=r0") for name in hot
            }
            setting.world.healths.clear()
            fleet.compare()
            assert common_causes(parts), "not computed at every change"
            clock.at += 5.0
            fleet.compare()
            assert common_causes(parts) == set()


def reported(name):
    incident = IncidentStatus(
        id="i", reason="ThermalSlowdown", severity="Degraded", level="Report", active=True
    )
    return HealthView(metadata=TimedMeta(name=name), status=HealthStatus(incidents=(incident,)))


def common_causes(parts):
    """Node, reason and what is shared, of each series."""
    (family,) = parts.metrics.node_common_cause.collect()
    names = ("node", "reason", "shared")
    return {tuple(sample.labels[name] for name in names) for sample in family.samples}
