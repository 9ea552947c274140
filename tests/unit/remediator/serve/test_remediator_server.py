"""The probes and the metrics page, and the golden list of every metric."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from aiohttp.test_utils import TestClient, TestServer

from remediator.kube.pace import PaceLane
from remediator.metrics import Metrics
from remediator.serve.server import ListenError, make_app, parse_listen

GOLDEN = Path(__file__).parents[3] / "golden" / "remediator_metrics.prom"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(":9413", ("", 9413), id="every address"),
        pytest.param("127.0.0.1:0", ("127.0.0.1", 0), id="any port"),
        pytest.param("[::1]:80", ("::1", 80), id="IPv6"),
    ],
)
def test_listen_addresses(text, expected):
    assert parse_listen(text) == expected


@pytest.mark.parametrize("text", ["9413", "host:", ":port", ":70000"])
def test_a_wrong_listen_address_is_named(text):
    with pytest.raises(ListenError, match="HOST:PORT"):
        parse_listen(text)


@pytest.mark.parametrize(
    ("path", "problem", "status", "text"),
    [
        pytest.param("/healthz", "", 200, "ok\n", id="healthy"),
        pytest.param("/healthz", "stuck", 503, "stuck\n", id="not healthy"),
        pytest.param("/readyz", "", 200, "ok\n", id="ready"),
        pytest.param("/readyz", "no list yet", 503, "no list yet\n", id="not ready"),
    ],
)
async def test_probes_say_why_not(path, problem, status, text):
    app = make_app(Metrics(), healthy=lambda: problem, ready=lambda: problem, refresh=lambda: None)
    async with TestClient(TestServer(app)) as client:
        answer = await client.get(path)
        assert (answer.status, await answer.text()) == (status, text)


async def test_a_scrape_refreshes_first_and_speaks_prometheus():
    metrics = Metrics()
    app = make_app(
        metrics,
        healthy=lambda: "",
        ready=lambda: "",
        refresh=lambda: metrics.nodes.set(7),
    )
    async with TestClient(TestServer(app)) as client:
        answer = await client.get("/metrics")
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        assert "gpuward_nodes 7.0\n" in await answer.text()


def example() -> str:
    """One page with every metric and every label."""
    metrics = Metrics()
    metrics.observe_call("GET", PaceLane.READ, 200, 0.01)
    metrics.fault_to_unschedulable.observe(0.3)
    metrics.evictions.labels("evicted").inc()
    metrics.writes.labels("MarkNode", "done").inc()
    metrics.session_conditions.labels("Blocked", "BudgetNeverAllows").set(1)
    metrics.open_session.labels(
        "gpu-7", "Draining", "Enforce", "Fatal", "Xid79GPUFallenOffBus"
    ).set(1)
    metrics.open_session_condition.labels("gpu-7", "NeedsHuman", "BudgetNeverAllows").set(1)
    metrics.open_session_repair.labels("gpu-8", "RestartNode", "NodeConditions", "Asked").set(1)
    metrics.session_tests.labels("Builtin", "Passed").set(1)
    metrics.repair_steps.labels("RestartNode", "NodeConditions", "Asked").set(1)
    metrics.repair_duration.labels("RestartNode", "NodeConditions", "Proven").observe(240)
    metrics.budget_size.labels("all").set(10)
    metrics.budget_used.labels("all").set(1)
    metrics.correlated_cause.labels("Xid79GPUFallenOffBus", "driver=580.65.06").set(4)
    metrics.node_common_cause.labels("gpu-5", "ThermalSlowdown", "example.com/rack=r7").set(1)
    metrics.records.labels("GPU").set(3)
    metrics.lemon_since.labels("gpu-0badcafe", "n1").set(1.8e9)
    metrics.pause_created.labels("drill").set(1_800_000_000)
    metrics.node_held.labels("gpu-7").set(1)
    metrics.node_left_alone.labels("gpu-8", "OptOut").set(1)
    metrics.watch_staleness.labels("nodes").set(1.5)
    metrics.watch_synced.labels("nodes").set(1)
    metrics.undecodable.labels("nodes").set(0)
    metrics.count_surprise("look")
    metrics.build_info.labels("0.1.0").set(1)
    return metrics.page().decode()


def test_every_name_help_and_label_is_as_agreed():
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(example())
    assert example() == GOLDEN.read_text()
