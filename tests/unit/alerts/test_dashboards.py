"""The dashboards and the monitors of the Prometheus Operator."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack import prometheus_rule

PROMTOOL = shutil.which("promtool")
DASHBOARDS = prometheus_rule.CHECKOUT / "docs" / "dashboards"
COMPONENT = prometheus_rule.FILE.parent
PAGES = sorted(DASHBOARDS.glob("*.json"))
BASE = COMPONENT.parents[1] / "base"


def page(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def expressions() -> list[tuple[str, str]]:
    """(dashboard and panel, expression with its variables replaced)."""
    return [
        (f"{path.stem}: {panel['title']}", target["expr"].replace("$node", "gpu-7"))
        for path in PAGES
        for panel in page(path)["panels"]
        for target in panel.get("targets", ())
    ]


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed")
def test_queries_are_promql(tmp_path: Path) -> None:
    """promtool only parses rule files, so every query becomes a rule."""
    made = [
        {"record": f"query_{number}", "expr": expr}
        for number, (_, expr) in enumerate(expressions())
    ]
    file = tmp_path / "queries.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": made}]}))

    done = subprocess.run(
        [str(PROMTOOL), "check", "rules", str(file)], capture_output=True, check=False
    )

    assert done.returncode == 0, (done.stdout + done.stderr).decode()


@pytest.mark.parametrize("path", PAGES, ids=[path.stem for path in PAGES])
def test_a_dashboard_imports_anywhere(path: Path) -> None:
    """Schema of Grafana 10, no data source of another installation, no database id."""
    board = page(path)
    sources = {
        json.dumps(found["datasource"], sort_keys=True)
        for panel in board["panels"]
        if panel["type"] != "row"
        for found in (panel, *panel["targets"])
    }

    assert board["schemaVersion"] >= 38
    assert "id" not in board
    assert sources == {'{"type": "prometheus", "uid": "${datasource}"}'}
    assert board["templating"]["list"][0]["type"] == "datasource"


def test_the_node_dashboard_queries_only_the_selected_node() -> None:
    board = page(DASHBOARDS / "node.json")
    queries = [t["expr"] for panel in board["panels"] for t in panel.get("targets", ())]

    assert [v["query"]["query"] for v in board["templating"]["list"][1:]] == [
        "label_values(gpuward_node_health, node)"
    ]
    for query in queries:
        assert query.count('node="$node"') == len(re.findall(r"gpuward_\w+", query))


def test_monitors_select_what_the_base_installs() -> None:
    """Labels and port names of the manifests, and the label `node` that the rules need."""
    daemon_set = yaml.safe_load((BASE / "agent-daemonset.yaml").read_text())
    services = list(yaml.safe_load_all((BASE / "services.yaml").read_text()))
    pods = yaml.safe_load((COMPONENT / "agent-pod-monitor.yaml").read_text())["spec"]
    service = yaml.safe_load((COMPONENT / "remediator-service-monitor.yaml").read_text())["spec"]
    ports = daemon_set["spec"]["template"]["spec"]["containers"][0]["ports"]
    wanted = service["selector"]["matchLabels"]
    chosen = [s for s in services if wanted.items() <= s["metadata"]["labels"].items()]

    assert pods["selector"]["matchLabels"].items() <= (
        daemon_set["spec"]["template"]["metadata"]["labels"].items()
    )
    assert pods["podMetricsEndpoints"][0]["port"] in {port["name"] for port in ports}
    assert pods["podMetricsEndpoints"][0]["relabelings"][0]["targetLabel"] == "node"
    assert [s["metadata"]["name"] for s in chosen] == ["gpuward-remediator"]
    assert service["endpoints"][0]["port"] in {p["name"] for p in chosen[0]["spec"]["ports"]}
