"""The `/metrics` page of a node state, and the pages of a simulated node."""

import re
from collections.abc import Callable
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest

from agent.daemon.metrics import AgentCollector, Latencies, Snapshot, XidCounts
from agent.publish.publish import PublishReport
from agent.sources.kernel_record import RecordCounts
from hack.sim.driver import NODES, install
from rules.judge.health_status import assess
from rules.judge.observation import SourceName
from rules.judge.state import NodeState
from tests.support.agent.nvml_collector import Collector, Judged, polled

SETS = ("basic", "full")


def page(snapshot: Snapshot, *, full: bool) -> str:
    """The entire page, histograms included."""
    registry = CollectorRegistry()
    registry.register(AgentCollector(lambda: snapshot, full=full))
    Latencies(registry, full=full)
    return re.sub(r'version="[^"]*"', 'version="V"', generate_latest(registry).decode())


def snapshot_of(state: NodeState, now: float, xids: XidCounts | None = None) -> Snapshot:
    """Return a snapshot of an agent that publishes and has read some lines."""
    return Snapshot(
        state=state,
        assessment=assess(state, now),
        records=RecordCounts(read=5),
        heard_at=dict.fromkeys(SourceName, now),
        xids=xids or XidCounts(),
        publishing=PublishReport(accepted_at=now, failures=0, writes=3),
        dcgm_bad_lines=0,
    )


def series(text: str) -> list[str]:
    """Every series of a page, with its labels and its value."""
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def simulated(
    folder: Path, name: str = "h100-8-nvswitch", edit: Callable[[Path], None] = lambda _: None
) -> NodeState:
    """Return the state of a simulated node after `edit` and some polls."""
    path = folder / "node.yaml"
    path.write_bytes((NODES / f"{name}.yaml").read_bytes())
    edit(path)
    with install(path):
        judged = Judged(path)
        polled(Collector(path), judged)
    return judged.judgement.state
