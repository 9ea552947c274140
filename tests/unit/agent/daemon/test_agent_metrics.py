"""Every metric of the agent: names, helps, labels and units, compared with a golden file and the
docs.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from agent.daemon.metrics import Snapshot, XidCounts
from agent.publish.publish import PublishReport
from agent.sources.kernel_record import RecordCounts
from rules.catalog.signals import Signal, SignalShape, signal_table
from rules.catalog.thresholds import DEFAULT_RULES
from rules.judge.health_status import assess
from rules.judge.judge import judge
from rules.judge.observation import (
    GpuSeen,
    HostSeen,
    KernelLineSeen,
    Service,
    SourceChanged,
    SourceName,
    SourceState,
    Value,
)
from rules.judge.state import GpuView, NodeState, initial, with_gpu
from rules.kernel_log.parse import parse
from tests.support.agent import metric_pages
from tests.support.agent.kernel_log_parts import XID79

ROOT = Path(__file__).parents[4]
GOLDEN = {
    "full": ROOT / "tests" / "golden" / "agent_metrics.prom",
    "basic": ROOT / "tests" / "golden" / "agent_metrics_basic.prom",
}
PAGE = (ROOT / "docs" / "metrics.md").read_text().replace("|GPU", "|`uuid`, `pci`, `index`")
AGENT_PART = PAGE.partition("## Remediator")[0]
AT = 1_800_000_000.0
GPU = GpuSeen(
    uuid="GPU-6f2a1d30-8c1e-4b57-9f60-0a41c2d7e100",
    index=0,
    pci="0000:3b:00.0",
    serial="1654023010001",
    product="NVIDIA H100 80GB HBM3",
    vbios="96.00.A5.00.01",
)


def a_state() -> NodeState:
    """One GPU that reports every signal, and an Xid 79 on it."""
    values: dict[Signal, Value] = {
        signal: 1 if info.shape is SignalShape.SCALAR else (1, 0)
        for signal, info in signal_table().items()
    }
    values[Signal.CLOCK_EVENT_REASONS] = 0x48
    values[Signal.REMAP_HISTOGRAM] = (1, 0, 2, 0, 0)
    state = replace(initial(AT, boot_id="boot-1", node_name="gpu-1"), driver="580.95.05")
    view = GpuView(seen=GPU, enumerated=True, answered_at=AT, values=values)
    state = with_gpu(state, view)
    line = parse(XID79.encode())
    assert line is not None
    for observation in (
        SourceChanged(at=AT, source=SourceName.NVML, state=SourceState.UP),
        SourceChanged(at=AT, source=SourceName.DCGM, state=SourceState.ABSENT, reason="Off"),
        HostSeen(at=AT, services={Service.FABRIC_MANAGER: True, Service.IMEX: False}),
        KernelLineSeen(at=AT, sequence=1, boot_id="boot-1", lookback=False, line=line),
    ):
        state, _ = judge(state, observation, AT, DEFAULT_RULES)
    return state


def a_snapshot() -> Snapshot:
    state = a_state()
    xids = XidCounts()
    xids.add("xid", "0000:3b:00", 79)
    xids.add("sxid", "", 20034)
    return Snapshot(
        state=state,
        assessment=assess(state, AT),
        records=RecordCounts(read=5, recognised=2, malformed=1, refused=1, lost=1),
        heard_at={SourceName.NVML: AT},
        xids=xids,
        publishing=PublishReport(accepted_at=AT, failures=0, writes=3),
        dcgm_bad_lines=1,
    )


@pytest.fixture(scope="module")
def page() -> str:
    return metric_pages.page(a_snapshot(), full=True)


def families(text: str) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Return name, type and labels of each family of a page."""
    for family in text_string_to_metric_families(text):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = {label for sample in family.samples for label in sample.labels if label != "le"}
        yield name, family.type, tuple(sorted(labels))


@pytest.mark.parametrize("which", GOLDEN)
def test_names_helps_and_labels_are_those_of_the_golden_file(which: str) -> None:
    found = metric_pages.page(a_snapshot(), full=which == "full")
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN[which].write_text(found)
    assert found == GOLDEN[which].read_text()


def test_the_documentation_lists_exactly_what_is_exported(page: str) -> None:
    rows = re.findall(r"^\|`(gpuward_\w+)`\|(\w+)\|(.*?)\|", AGENT_PART, re.MULTILINE)
    documented = {
        (name, kind, tuple(sorted(re.findall(r"`(\w+)`", labels)))) for name, kind, labels in rows
    }
    assert documented == set(families(page))


def test_the_documentation_lists_the_basic_set(tmp_path: Path) -> None:
    """`no`: never; `yes`: on a healthy node too, and for metrics that are not of a GPU."""
    rows = re.findall(r"^\|`(gpuward_\w+)`\|\w+\|(.*?)\|(.*?)\|", AGENT_PART, re.MULTILINE)
    assert len(rows) > 40
    page = metric_pages.page(a_snapshot(), full=False)
    sick = {name for name, _, labels in families(page) if labels or f"\n{name} " in page}
    sick.add("gpuward_kernel_line_published_seconds")
    well = metric_pages.page(
        metric_pages.snapshot_of(metric_pages.simulated(tmp_path), AT), full=False
    )
    sampled = {re.split(r"[{ ]", one)[0] for one in metric_pages.series(well)}
    for name, labels, listed in rows:
        assert (name in sick) == (listed != "no"), name
        if "`uuid`" not in labels or "_xid_" in name or "_sxid_" in name or "incident" in name:
            assert listed in ("yes", "no"), name
        elif "yes" not in listed and listed != "present one":
            left = {"gpuward_gpu_clock_event"}  # an idle GPU reports that it is idle
            assert name not in sampled - left, name


def test_an_unknown_count_of_healthy_gpus_is_absent_not_zero() -> None:
    state = replace(initial(AT), sources={})
    state, _ = judge(
        state,
        SourceChanged(at=AT, source=SourceName.NVML, state=SourceState.DOWN, reason="NoAccess"),
        AT,
        DEFAULT_RULES,
    )
    snapshot = replace(a_snapshot(), state=state, assessment=assess(state, AT))
    assert "\ngpuward_node_gpus_healthy " not in metric_pages.page(snapshot, full=True)


def test_hostile_kernel_lines_cannot_grow_the_page_without_bound() -> None:
    counts = XidCounts(limit=10)
    for number in range(100):
        counts.add("xid", f"{number:04x}:00:00", number)
    assert len(counts.by_pci) == 10
