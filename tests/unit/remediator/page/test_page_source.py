"""Where the pages get their state: from caches, seldom, and never many reads."""

from typing import Any

from remediator.page.site import serve_page
from remediator.view.shapes import ReplicaShown
from remediator.view.state import HEALTH_KEPT_S, KEPT_S, GroupKeys, LiveSource
from rules.api.nodes import HealthView
from rules.policy.policy import Policy
from rules.session.observation import FleetSnapshot
from tests.support.remediator.page_fleet import NOW, ago, health_of, node, session
from tests.support.remediator.virtual_clock import VirtualClock


class Reads:
    """Counts reads; `found` is what they bring."""

    def __init__(self) -> None:
        self.of: list[str] = []
        self.found: HealthView | None = health_of("a")

    async def get(self, path: str, _: type[HealthView]) -> HealthView | None:
        self.of.append(path.rpartition("/")[2])
        return self.found


class Caches:
    """Snapshots of maps that go on changing."""

    def __init__(self) -> None:
        self.taken = 0
        self.nodes = {"a": node("a")}
        self.quarantines = {"a-1": session("a-1", "a")}
        self.healths: dict[str, HealthView] = {}

    def snapshot(self) -> FleetSnapshot:
        self.taken += 1
        return FleetSnapshot(
            now=NOW,
            policy=Policy(),
            nodes=self.nodes,
            quarantines=self.quarantines,
            healths=self.healths,
        )


def live(caches: Caches, clock: VirtualClock, reads: Any = None) -> LiveSource:
    def replica(of: FleetSnapshot) -> ReplicaShown:
        problem = "The first list of nodes is under way."
        return ReplicaShown(
            identity="replica-b", leading=False, mode=of.policy.mode, problem=problem, at=ago(0)
        )

    return LiveSource(caches.snapshot, replica, clock, reads, GroupKeys())


async def test_many_visitors_cost_one_state() -> None:
    caches, clock = Caches(), VirtualClock()
    source = live(caches, clock)

    first = await source.state()
    clock.at += KEPT_S / 2
    assert await source.state() is first
    clock.at += KEPT_S
    assert await source.state() is not first
    assert caches.taken == 2


async def test_a_state_does_not_change_under_a_page() -> None:
    caches = Caches()
    shown = await live(caches, VirtualClock()).state()

    caches.nodes["b"] = node("b")
    caches.quarantines.clear()

    assert list(shown.snapshot.nodes) == ["a"]
    assert list(shown.snapshot.quarantines) == ["a-1"]


async def test_what_ill_nodes_share_follows_every_node_that_changes() -> None:
    caches, clock = Caches(), VirtualClock()
    source = live(caches, clock)
    caches.nodes = {f"n{i:02}": node(f"n{i:02}", rack=f"r{i // 8}") for i in range(48)}
    caches.healths = {name: health_of(name) for name in list(caches.nodes)[:8]}
    assert [one.shared for one in (await source.state()).common] == [
        "topology.example.com/rack=r0"
    ]

    caches.nodes |= {f"n{i:02}": node(f"n{i:02}", rack="moved") for i in range(8)}
    clock.at += KEPT_S
    found = (await source.state()).common
    assert [one.shared for one in found] == ["topology.example.com/rack=moved"]

    caches.healths = {}
    clock.at += KEPT_S
    assert (await source.state()).common == ()


async def test_a_health_status_is_cached_for_a_while() -> None:
    reads, clock = Reads(), VirtualClock()
    reader = live(Caches(), clock, reads)

    assert await reader.health("a") is reads.found
    clock.at += HEALTH_KEPT_S - 1
    assert await reader.health("a") is reads.found
    assert reads.of == ["a"]
    clock.at += 2
    reads.found = None
    assert await reader.health("a") is None
    assert reads.of == ["a", "a"]


async def test_a_crawler_cannot_load_the_api_server() -> None:
    reads, clock = Reads(), VirtualClock()
    reader = live(Caches(), clock, reads)

    found = [await reader.health(f"n{i}") for i in range(500)]

    assert len(reads.of) == 10
    assert found[10:] == [None] * 490
    clock.at += 1.0
    for i in range(500, 600):
        await reader.health(f"n{i}")
    assert len(reads.of) == 12


async def test_the_page_can_be_off_and_a_taken_port_stops_nothing() -> None:
    source = live(Caches(), VirtualClock())

    assert await serve_page(source, "off") is None
    first = await serve_page(source, "127.0.0.1:0")
    assert first is not None
    taken = f"127.0.0.1:{first.port}"
    assert await serve_page(source, taken) is None
    await first.close()
