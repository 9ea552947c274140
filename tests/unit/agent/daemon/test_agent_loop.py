"""The main loop and its calls to the rest of the agent."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from agent.daemon.event_queue import EventQueue, Item, Stop
from agent.daemon.judgement import Composer, Judgement, LoadedRules, NodeSettings, Pod
from agent.daemon.log import logger
from agent.daemon.loop import JudgingLoop
from agent.daemon.metrics import Latencies, XidCounts
from agent.nvml.messages import NvmlStatus, SourceReason
from agent.publish.publish import Accepted, Known, Wanted
from rules.api.health import HealthStatus
from rules.catalog.thresholds import DEFAULT_RULES
from rules.judge.messages import NodeEvent
from rules.judge.observation import (
    EventKind,
    GpuEvent,
    KernelGap,
    KernelLineSeen,
    NodeSeen,
    SourceState,
)
from rules.kernel_log.parse import parse
from tests.support.agent.kernel_log_parts import XID79

END = Stop(0, "the test is over")
WHO = NodeSettings(node_name="gpu-1", expected_gpus=None, boot_id="boot-1")


class Recorded:
    """The rest of the agent, which records the calls."""

    def __init__(self) -> None:
        self.submitted: list[Wanted] = []
        self.events: list[NodeEvent] = []
        self.asked: list[str] = []
        self.nvml = self
        self.on_event: Callable[[NodeEvent], object] = lambda event: None

    def submit(self, wanted: Wanted) -> None:
        self.submitted.append(wanted)

    def announce(self, event: NodeEvent) -> None:
        self.events.append(event)
        self.on_event(event)

    def open_log(self, boot_id: str, after: int) -> None:
        self.asked.append("past known")

    def want_holders(self, wanted: bool) -> None:
        self.asked.append("holders" if wanted else "no holders")

    def request_refresh(self) -> None:
        self.asked.append("refresh")

    def gsp_timeout_seen(self) -> None:
        self.asked.append("gsp timeout")

    def read_log_now(self) -> None:
        self.asked.append("read kernel log")


class Agent:
    def __init__(self, room: int = 4096) -> None:
        self.event_queue: EventQueue[Item] = EventQueue(room)
        self.outside = Recorded()
        self.judgement = Judgement(WHO, DEFAULT_RULES, time.time)
        self.xids = XidCounts()
        self.registry = CollectorRegistry()
        others: Any = self.outside
        self.loop = JudgingLoop(
            self.event_queue,
            self.judgement,
            composer=Composer(Pod(name="ns/agent", uid="u"), LoadedRules(DEFAULT_RULES, "test")),
            publisher=others,
            collectors=others,
            log=logger("json"),
            latencies=Latencies(self.registry, full=True),
            xids=self.xids,
        )

    def take(self, *items: Item) -> Stop:
        for item in (*items, END):
            self.event_queue.put(item)
        return self.loop.run()

    @property
    def last(self) -> HealthStatus:
        return self.outside.submitted[-1].publication.status


def line(text: str = XID79, *, sequence: int = 1, lookback: bool = False) -> KernelLineSeen:
    parsed = parse(text.encode())
    assert parsed is not None
    return KernelLineSeen(
        at=time.time(), sequence=sequence, boot_id="boot-1", lookback=lookback, line=parsed
    )


def node(**labels: str) -> NodeSeen:
    return NodeSeen(at=time.time(), name="gpu-1", uid="uid-1", boot_id="boot-1", labels=labels)


@pytest.fixture
def agent() -> Agent:
    return Agent()


def test_nothing_is_published_before_the_restore(agent: Agent) -> None:
    agent.take(line())
    assert agent.outside.submitted == []


def test_a_fault_is_published_with_its_event_and_its_count(agent: Agent) -> None:
    agent.take(Known(status=None), line())
    assert agent.last.health == "Unhealthy"
    assert [event.reason for event in agent.outside.events] == ["Xid79GPUFallenOffBus"]
    assert agent.xids.by_pci == {("xid", "0000:3b:00", 79): 1}


def test_facts_from_before_the_restore_are_applied_on_top_of_it(agent: Agent) -> None:
    first = Agent()
    first.take(Known(status=None), line())
    published = first.last
    other = line(XID79.replace("3b", "5e"), sequence=2)
    agent.take(other, Known(status=published))
    ids = {incident.id for incident in agent.last.incidents}
    assert len(ids) == 2
    assert published.incidents[0].id in ids


def test_a_flood_does_not_delay_the_stop_and_is_read_by_the_next_process(agent: Agent) -> None:
    stop = Stop(0, "stop requested")
    agent.outside.on_event = lambda event: agent.loop.stop(stop)
    flood = [line(XID79.replace("3b", f"{n:02x}"), sequence=n) for n in range(1, 100)]
    assert agent.take(Known(status=None), *flood) == stop
    assert (len(agent.last.incidents), agent.last.cursor.kmsg_seq) == (1, 1)
    following = Agent()
    following.take(Known(status=agent.last), *flood[1:3])
    assert len(following.last.incidents) == 3


def test_a_line_of_an_earlier_process_is_not_counted_again(agent: Agent) -> None:
    first = Agent()
    first.take(Known(status=None), line(sequence=7))
    agent.take(line(sequence=7, lookback=True), Known(status=first.last))
    assert [incident.count for incident in agent.last.incidents] == [1]


def test_an_nvml_xid_event_makes_the_kernel_log_be_read(agent: Agent) -> None:
    agent.take(
        Known(status=None),
        GpuEvent(at=time.time(), kind=EventKind.XID, data=79, pci="0000:3b:00.0"),
    )
    assert "read kernel log" in agent.outside.asked


def test_a_gsp_timeout_protects_the_nvml_child(agent: Agent) -> None:
    agent.take(Known(status=None), line("NVRM: Xid (PCI:0000:3b:00): 119, Timeout after 6s"))
    assert "gsp timeout" in agent.outside.asked


def test_a_library_mismatch_ends_the_agent(agent: Agent) -> None:
    status = NvmlStatus(
        state=SourceState.DOWN,
        reason=SourceReason.DRIVER_MISMATCH,
        message="The library does not match the module.",
        restart_agent=True,
    )
    assert agent.take(status) == Stop(1, "The library does not match the module.")


def test_kernel_facts_make_room_for_more() -> None:
    agent = Agent(room=1)
    for number in range(3):
        put = agent.event_queue.put_when_room(line(sequence=number), give_up=lambda: True)
        assert put
        agent.take()
    assert agent.event_queue.put_when_room(KernelGap(at=0, lost=1), give_up=lambda: True)
    assert not agent.event_queue.put_when_room(KernelGap(at=0, lost=1), give_up=lambda: True)


def test_a_fault_after_an_overrun_of_the_ring_is_still_judged(agent: Agent) -> None:
    gap = KernelGap(at=time.time(), lost=9_000, boot_id="boot-1", sequence=9_000)
    assert agent.event_queue.put_when_room(line(sequence=1), give_up=lambda: True)
    agent.take(Known(status=None), gap, line(XID79.replace("3b", "5e"), sequence=9_001))
    assert len(agent.last.incidents) == 2
    assert agent.last.cursor.kmsg_seq == 9_001


def test_publishing_is_timed_from_the_line(agent: Agent) -> None:
    agent.take(Known(status=None), line())
    agent.take(Accepted(wanted=agent.outside.submitted[-1], at=time.time()))
    count = agent.registry.get_sample_value("gpuward_kernel_line_published_seconds_count")
    assert count == 1


def test_an_unchanged_health_status_is_not_submitted_again(agent: Agent) -> None:
    agent.take(Known(status=None), node())
    before = len(agent.outside.submitted)
    agent.take(node())
    assert len(agent.outside.submitted) == before


def test_holders_are_wanted_while_an_incident_asks_for_an_action(agent: Agent) -> None:
    agent.take(Known(status=None), line(XID79.replace("79", "31")))
    assert "holders" not in agent.outside.asked
    agent.take(line(sequence=2), line(sequence=3))
    assert agent.outside.asked.count("holders") == 1
