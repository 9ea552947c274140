"""The basic set of metrics (`--metrics`): its size, and equal results of alerts and dashboards."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from agent.daemon.metrics import XidCounts
from hack.prometheus_rule import CHECKOUT
from hack.sim.driver import set_gpu
from rules.judge.state import NodeState
from tests.support.agent.metric_pages import SETS, page, series, simulated, snapshot_of
from tests.support.cluster.promql_names import ALERTS, known, rules, selectors, unknown

PROMTOOL = shutil.which("promtool")
NOW = 1_800_004_000.0
MOST_SERIES = 250
EIGHT = ("h100-8-nvswitch", "h100-8-mig", "b200-8-nvlink5", "l40s-8-pcie")
ZEROS_MAY_BE_ABSENT = {"node: GPUs by health", "fleet:gpuward_gpu_health:sum"}
"""Queries for which a series with value 0 equals no series."""


@pytest.mark.parametrize("name", EIGHT)
def test_a_healthy_node_of_eight_gpus_has_at_most_250_series(name: str, tmp_path: Path) -> None:
    found = page(snapshot_of(simulated(tmp_path, name), NOW), full=False)
    assert len(series(found)) <= MOST_SERIES


def test_the_full_set_has_every_series_of_the_basic_one(tmp_path: Path) -> None:
    snapshot = snapshot_of(broken(tmp_path), NOW)
    basic, full = (series(page(snapshot, full=full)) for full in (False, True))
    assert set(basic) < set(full)


def test_the_basic_set_has_the_links_that_are_down_and_two_counts(tmp_path: Path) -> None:
    found = page(snapshot_of(broken(tmp_path), NOW), full=False)
    links = [one for one in series(found) if "nvlink" in one and 'index="2"' in one]
    assert [re.sub(r'\{.*?(?:(link="\d+").*)?\}', r"{\1}", one) for one in links] == [
        "gpuward_gpu_nvlinks_expected{} 18.0",
        "gpuward_gpu_nvlinks_up{} 16.0",
        'gpuward_gpu_nvlink_up{link="7"} 0.0',
        'gpuward_gpu_nvlink_up{link="9"} 0.0',
    ]


def test_links_that_are_off_by_design_do_not_count_as_down(tmp_path: Path) -> None:
    for name in ("h100-8-mig", "l40s-8-pcie"):
        assert "nvlink_up{" not in page(snapshot_of(simulated(tmp_path, name), NOW), full=False)


def broken(folder: Path) -> NodeState:
    """A node with a GPU 2 that has every kind of error."""

    def edit(path: Path) -> None:
        set_gpu(
            path,
            2,
            ecc={"volatile": {"dram_corrected": 5, "sram_uncorrected": 2},
                 "aggregate": {"dram_uncorrected": 4}},
            remap={"uncorrectable": 3, "pending": True, "failure": True},
            nvlink={"down": [7, 9]},
            clock_events=["hw_thermal", "sw_thermal"],
            pcie={"replays": 50},
        )  # fmt: skip

    return simulated(folder, edit=edit)


# Alerts and dashboards on both sets


def queries() -> Iterator[tuple[str, str]]:
    """(place, expression) of every alert, recording rule and panel."""
    for rule in rules():
        yield rule.get("alert") or rule["record"], rule["expr"]
    for path in sorted((CHECKOUT / "docs" / "dashboards").glob("*.json")):
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel.get("targets", ()):
                yield f"{path.stem}: {panel['title']}", target["expr"]


@pytest.mark.parametrize("which", SETS)
def test_both_sets_have_the_metrics_of_every_query(which: str) -> None:
    metrics = known(which)
    assert [(at, wrong) for at, expr in queries() if (wrong := unknown(expr, metrics))] == []


def on_node(expr: str, node: str, ours: set[str]) -> str:
    """The expression over the series of one node."""
    expr = expr.replace("$node", node)

    def narrowed(found: re.Match[str]) -> str:
        name, rest = found[1], found[2]
        if name not in ours or 'node="' in rest:
            return found[0]
        return f'{name}{{node="{node}"' + (f", {rest[1:]}" if rest else "}")

    return re.sub(r"\b([A-Za-z][\w:]*\w)\b(\{[^}]*\}|)", narrowed, expr)


def timeline(folder: Path) -> list[tuple[int, NodeState, XidCounts]]:
    """(hour, state, Xids): healthy, broken, and healthy again."""
    none, some = XidCounts(), XidCounts()
    some.add("xid", "0000:52:00", 94)
    sound = simulated(folder)
    return [(0, sound, none), (2, broken(folder), some), (5, sound, some)]


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed")
def test_alerts_and_panels_have_the_same_results_on_both_sets(tmp_path: Path) -> None:
    """Two equal nodes export one set each; promtool compares the results."""
    minutes, hours = 4, 8  # below the lookback of five minutes
    rounds = hours * 60 // minutes
    values: dict[str, list[str]] = {}
    steps = timeline(tmp_path)
    for number, (hour, state, xids) in enumerate(steps):
        begins = hour * 60 // minutes
        ends = steps[number + 1][0] * 60 // minutes if number + 1 < len(steps) else rounds
        for which in SETS:
            text = page(snapshot_of(state, NOW, xids), full=which == "full")
            for one in series(text):
                if 'index="' in one and 'index="2"' not in one:
                    continue  # the other GPUs do not change
                name, value = one.rsplit(" ", 1)
                head, _, labels = name.rstrip("}").partition("{")
                mine = f'{head}{{node="{which}"{", " if labels else ""}{labels}}}'
                row = values.setdefault(mine, ["_"] * rounds)
                row[begins:ends] = [value] * (ends - begins)
    # Without a leader GPUWardFatalUntouched does not fire.
    values['gpuward_leader{instance="10.0.1.1:9413"}'] = ["1"] * rounds
    ours = {
        name
        for name in known("full")
        if name.startswith(
            ("gpuward_gpu_", "gpuward_node", "gpuward_xid", "gpu:", "fault:", "gpuward_incident")
        )
    }
    ours.add("ALERTS")
    compared = [*queries(), ("firing", 'ALERTS{alertstate="firing"}')]
    expected: list[dict[str, object]] = []
    for where, expr in compared:
        if not {asked.metric for asked in selectors(expr)} & ours:
            continue
        basic, full = (f"({on_node(expr, which, ours)})" for which in SETS)
        if where in ZEROS_MAY_BE_ABSENT:
            basic, full = f"({basic} != 0)", f"({full} != 0)"
        differs = (
            f"({basic} != ignoring(node) {full}) or ({basic} unless ignoring(node) {full})"
            f" or ({full} unless ignoring(node) {basic})"
        )
        expected += [
            {"expr": differs, "eval_time": f"{hour * 60 - 10}m", "exp_samples": []}
            for hour in (2, 3, 5, 6, 8)
        ]
    alerts = ("FatalUntouched", "GPUFaultDegraded", "GPUFaultFatal", "GPUHot", "GPUMemoryFault")
    memory = 'alertname="GPUWardGPUMemoryFault"'
    for by, matcher, wanted in (
        ("alertname", "", [f'alertname="GPUWard{name}"' for name in alerts]),
        ("reason", f", {memory}", ['reason="ErrorTrend"', 'reason="RemapFailed"']),
    ):
        firing = f'ALERTS{{alertstate="firing", node="basic"{matcher}}}'
        expected.append(
            {
                "expr": f"count by ({by}) ({firing}) > bool 0",
                "eval_time": "170m",
                "exp_samples": [{"labels": f"{{{one}}}", "value": 1} for one in wanted],
            }
        )
    case = {
        "rule_files": [str(path) for path in sorted(ALERTS.glob("*.yaml"))],
        "evaluation_interval": f"{minutes}m",
        "tests": [
            {
                "interval": f"{minutes}m",
                "input_series": [
                    {"series": name, "values": " ".join(row)} for name, row in values.items()
                ],
                "promql_expr_test": expected,
            }
        ],
    }
    file = tmp_path / "both.yaml"
    file.write_text(yaml.safe_dump(case))
    done = subprocess.run(
        [str(PROMTOOL), "test", "rules", str(file)], capture_output=True, check=False
    )
    assert done.returncode == 0, (done.stdout + done.stderr).decode()[:4000]
