"""No alert fires on a normal day.

The day has a rollout of the agents, a change of the leader, a restart of Prometheus, a replaced
exporter, a driver upgrade, a new node and a removed one, an Xid of an application, and a short
failure of the API server.
"""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.cluster.promql_names import ALERTS, known, rules, selectors

DAY_MIN = 1440
NODES = 12
LATE, GONE, UPGRADED = 3, 4, 5
"""The node that joins in the morning, the one that leaves in the afternoon, and the one that gets
another driver at noon.
"""
RESTARTED = (600, 604)
"""The minutes of the day without a scrape."""
ONLY_WITH_CAUSE = frozenset(
    {
        "gpuward_correlated_cause",
        "gpuward_node_common_cause", "gpuward_node_held", "gpuward_node_left_alone",
        "gpuward_open_session", "gpuward_open_session_condition", "gpuward_open_session_repair",
        "gpuward_pause_created_timestamp_seconds", "gpuward_policy_overlap_nodes",
        "kube_pod_container_status_waiting_reason",
    }
)  # fmt: skip
"""Metrics without series on a normal day."""

Series = tuple[str, list[float | None]]


def day(
    value: float = 0, *, step: float = 0, alive: tuple[int, int] = (0, DAY_MIN)
) -> list[float | None]:
    """A sample per minute while the exporter runs: a constant or a counter."""
    found: list[float | None] = [value + step * minute for minute in range(DAY_MIN)]
    for minute in range(DAY_MIN):
        scraped = alive[0] <= minute < alive[1]
        if not scraped or RESTARTED[0] <= minute < RESTARTED[1]:
            found[minute] = None
    return found


def without(values: list[float | None], first: int, last: int) -> list[float | None]:
    return [None if first <= at < last else one for at, one in enumerate(values)]


def with_value(
    values: list[float | None], first: int, last: int, new: float
) -> list[float | None]:
    return [
        new if one is not None and first <= at < last else one for at, one in enumerate(values)
    ]


def of_agent(number: int) -> Iterator[Series]:
    node = f'node="gpu-{number}", instance="10.0.0.{number}:9412"'
    gpu = f'{node}, uuid="GPU-{number}", pci="0000:3b:00", index="3"'
    alive = (480 if number == LATE else 0, 900 if number == GONE else DAY_MIN)
    updated = 60 + 5 * number  # two minutes without an agent in the rollout

    def page(value: float = 0, step: float = 0) -> list[float | None]:
        return without(day(value, step=step, alive=alive), updated, updated + 2)

    def source(up: float) -> list[float | None]:
        values = page(up)
        if number == UPGRADED:
            values = with_value(values, 720, 760, 1 - up)
        return values

    yield f'gpuward_node_health{{{node}, health="Healthy"}}', page(1)
    yield f'gpuward_node_health{{{node}, health="Unhealthy"}}', page()
    for memory in ("all", "dram"):
        errors = f'{gpu}, memory="{memory}", kind="uncorrected", scope="aggregate"'
        yield f"gpuward_gpu_ecc_errors_total{{{errors}}}", page(3)
    yield f'gpuward_gpu_health{{{gpu}, health="Healthy"}}', page(1)
    yield f'gpuward_gpu_remapped_rows_total{{{gpu}, cause="uncorrectable"}}', page(1)
    yield f'gpuward_gpu_repair_pending{{{gpu}, repair="row"}}', page()
    yield f"gpuward_gpu_row_remap_failed{{{gpu}}}", page()
    yield f"gpuward_gpu_unrepairable_memory{{{gpu}}}", page()
    yield f'gpuward_kernel_records_total{{{node}, result="lost"}}', page()
    accepted = with_value(page(), 300, 302, 2)  # the API server, for two minutes
    yield f"gpuward_publish_failures{{{node}}}", accepted
    yield f'gpuward_source_up{{{node}, source="nvml"}}', source(1)
    exporter = 200 + 6 * number
    yield (
        f'gpuward_source_up{{{node}, source="dcgm-exporter"}}',
        with_value(page(1), exporter, exporter + 5, 0),
    )
    released = with_value(page(0), 720, 760, 1) if number == UPGRADED else page(0)
    yield (
        f'gpuward_source_info{{{node}, source="nvml", state="Released", reason="DriverUpgrade"}}',
        [one or None for one in released],
    )
    success = page(0, step=60)
    yield f'gpuward_source_last_success_timestamp_seconds{{{node}, source="nvml"}}', success
    if number == 1:
        crashed = [one if 100 <= at < 110 else None for at, one in enumerate(page(1))]
        fault = f'{gpu}, severity="Info", level="Report", reason="Xid31MMUFault"'
        yield f"gpuward_incident_active{{{fault}}}", crashed
    kubernetes = f'{{node="gpu-{number}", instance="ksm"'
    yield (
        f'kube_node_status_capacity{kubernetes}, resource="nvidia_com_gpu"}}',
        day(8, alive=alive),
    )
    yield (
        f'kube_node_labels{kubernetes}, label_nvidia_com_gpu_present="true"}}',
        day(1, alive=alive),
    )
    yield f"kube_node_spec_unschedulable{kubernetes}}}", day(0, alive=alive)


def of_remediator(number: int) -> Iterator[Series]:
    """The first leads until it is replaced, the second from a minute later."""
    at = f'instance="10.0.1.{number}:9413"'
    alive = (0, 1000) if number == 1 else (0, DAY_MIN)
    leads = day(1, alive=(0, 1000)) if number == 1 else with_value(day(), 1001, DAY_MIN, 1)

    def page(value: float = 0, step: float = 0) -> list[float | None]:
        return day(value, step=step, alive=alive)

    yield f"gpuward_leader{{{at}}}", leads
    yield f"gpuward_nodes{{{at}}}", page(NODES)
    for quiet in (
        "gpuward_agents_silent", "gpuward_breaker_open", "gpuward_clock_jumps_total",
        "gpuward_clock_contradictions_total", "gpuward_view_too_old", "gpuward_policy_unread",
    ):  # fmt: skip
        yield f"{quiet}{{{at}}}", page()
    yield f"gpuward_enforcing{{{at}}}", page(1)
    yield f"gpuward_policy_reload_ok{{{at}}}", page(1)
    yield f'gpuward_budget_size_nodes{{{at}, scope="all"}}', page(1)
    yield f'gpuward_budget_used_nodes{{{at}, scope="all"}}', page(0)
    yield f'gpuward_unexpected_errors_total{{{at}, part="session"}}', page()
    yield f'gpuward_objects_lost_total{{{at}, kind="GPUQuarantine"}}', page()
    asked = f'gpuward_api_requests_total{{{at}, method="GET", queue="read"'
    yield f'{asked}, code="200"}}', page(step=200)
    failed = [
        None if one is None else min(max(i - 300, 0), 2) * 40.0 for i, one in enumerate(page())
    ]
    yield f'{asked}, code="500"}}', failed
    yield f'gpuward_watch_staleness_seconds{{{at}, resource="nodes"}}', page(20)
    yield f'gpuward_watch_synced{{{at}, resource="nodes"}}', page(1)


def quiet_day() -> list[Series]:
    agents = [one for number in range(1, NODES + 1) for one in of_agent(number)]
    return [*agents, *of_remediator(1), *of_remediator(2)]


def written(values: list[float | None]) -> str:
    """The values in promtool's notation; a series that ends is stale at once."""
    samples, before = [], None
    for one in values:
        samples.append(f"{one:g}" if one is not None else "stale" if before is not None else "_")
        before = one
    return " ".join(samples)


def test_every_metric_of_the_rules_has_a_series_on_a_normal_day() -> None:
    """Without data an alert would not fire."""
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    asked = {one.metric for rule in rules() for one in selectors(rule["expr"])} - recorded
    present = {re.split(r"[{ ]", name)[0] for name, _ in quiet_day()}

    assert asked - ONLY_WITH_CAUSE == present & asked
    assert ONLY_WITH_CAUSE <= set(known())


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
@pytest.mark.parametrize("broken", [False, True], ids=["normal day", "no leader"])
def test_no_alert_fires_on_a_normal_day(tmp_path: Path, broken: bool) -> None:
    series = [{"series": name, "values": written(values)} for name, values in quiet_day()]
    if broken:
        series = [one for one in series if "gpuward_leader" not in one["series"]]
    minutes = 60 if broken else DAY_MIN - 1
    firing = 'count(ALERTS{alertstate="firing"}) or vector(0)'
    fired = f"max_over_time(({firing})[{minutes}m:2m])"
    names = re.findall(
        r"- name: (gpuward\S*)", "".join(p.read_text() for p in ALERTS.glob("*.yaml"))
    )
    case = {
        "rule_files": sorted(map(str, ALERTS.glob("*.yaml"))),
        "evaluation_interval": "2m",
        "group_eval_order": sorted(names, key=lambda name: name != "gpuward-recording"),
        "tests": [
            {
                "interval": "1m",
                "input_series": series,
                "promql_expr_test": [
                    {"expr": fired, "eval_time": f"{minutes}m", "exp_samples": [{"value": 0}]}
                ],
            }
        ],
    }
    (tmp_path / "day.yaml").write_text(yaml.safe_dump(case))
    done = subprocess.run(
        ["promtool", "test", "rules", str(tmp_path / "day.yaml")], capture_output=True, check=False
    )
    assert (done.returncode != 0) == broken, (done.stdout + done.stderr).decode()
