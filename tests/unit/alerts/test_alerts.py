"""The alert rules: they parse, ask for metrics that exist, speak to people, and fire when they
should.
"""

import functools
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from hack.sim.manifests import LOADER
from tests.support.cluster.promql_names import (
    ALERTS,
    GOLDEN_PAGES,
    REPOSITORY,
    known,
    rules,
    selectors,
    unknown,
)

PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed")
CASES = sorted((REPOSITORY / "tests" / "data" / "alerts").glob("*.yaml"))
METRICS = known()
ALERT_RULES = [rule for rule in rules() if "alert" in rule]
NAMES = sorted({rule["alert"] for rule in ALERT_RULES})
GOLDEN_NAMES = [page.name for page in GOLDEN_PAGES]


def promtool(*arguments: str | Path, given: bytes = b"") -> None:
    done = subprocess.run(
        [str(PROMTOOL), *map(str, arguments)], input=given, capture_output=True, check=False
    )
    assert done.returncode == 0, (done.stdout + done.stderr).decode()


@needs_promtool
def test_promtool_accepts_every_rule_file() -> None:
    """As strictly as a CI of rules does: two of one name and labels fail."""
    strictly = ("--lint=all", "--lint-fatal")
    promtool("check", "rules", *strictly, *sorted(ALERTS.glob("*.yaml")))


@needs_promtool
@pytest.mark.parametrize("page", GOLDEN_PAGES, ids=GOLDEN_NAMES)
def test_promtool_accepts_every_metrics_page(page: Path) -> None:
    promtool("check", "metrics", given=page.read_bytes())


@needs_promtool
@pytest.mark.parametrize("cases", CASES, ids=[case.stem for case in CASES])
def test_alerts_fire_and_stay_silent_as_the_cases_say(cases: Path) -> None:
    promtool("test", "rules", cases)


@functools.cache
def checks() -> tuple[tuple[str, bool], ...]:
    """Every alert that the cases ask about, and whether they expect it to fire."""
    return tuple(
        (check["alertname"], bool(check["exp_alerts"]))
        for case in CASES
        if case.stem != "healthy"
        for test in yaml.load(case.read_text(), LOADER)["tests"]
        for check in test.get("alert_rule_test", ())
    )


def told(name: str) -> set[bool]:
    """Whether the cases expect the alert to fire, and whether they expect it not to."""
    return {fires for alert, fires in checks() if alert == name}


@pytest.mark.parametrize("name", NAMES)
def test_each_alert_has_a_case_that_fires_and_one_that_does_not(name: str) -> None:
    assert told(name) == {True, False}


def test_a_healthy_fleet_is_checked_for_every_alert() -> None:
    healthy = yaml.safe_load((CASES[0].parent / "healthy.yaml").read_text())["tests"]

    assert {check["alertname"] for check in healthy[0]["alert_rule_test"]} == set(NAMES)
    assert not any(check["exp_alerts"] for check in healthy[0]["alert_rule_test"])


@pytest.mark.parametrize(
    ("expr", "wrong"),
    [
        pytest.param("gpuward_leder == 1", ["no metric gpuward_leder"], id="metric"),
        pytest.param(
            'gpuward_sessions{fase="Pending"}',
            ["gpuward_sessions has no label fase"],
            id="matcher",
        ),
        pytest.param(
            "sum by (gpu) (rate(gpuward_xid_total[5m]))",
            ["no metric here has the label gpu"],
            id="grouping",
        ),
        pytest.param('sum(gpuward_sessions{phase=~"a(b)|{c}"} offset 1h) > bool 2', [], id="none"),
    ],
)
def test_the_reader_of_expressions_finds_what_does_not_exist(expr: str, wrong: list[str]) -> None:
    assert unknown(expr, METRICS) == wrong


@pytest.mark.parametrize("rule", ALERT_RULES, ids=lambda rule: rule["alert"])
def test_each_alert_says_how_urgent_it_is_what_is_next_and_where_to_read(rule: dict) -> None:
    words, page = rule["annotations"], f"docs/runbooks/{rule['alert']}.md"

    assert set(words) == {"summary", "description", "runbook", "runbook_url"}
    # What the routes of kube-prometheus know.
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    # What tells two rules of one name apart.
    assert set(rule["labels"]) <= {"severity", "scope", "reason"}
    assert (words["runbook"], (REPOSITORY / page).exists()) == (page, True)
    # The remediator's own page; `alerts.docs` of the chart or sed put another address there.
    assert words["runbook_url"] == f"http://localhost:9414/{page}"
    read = re.sub(r"\{\{.*?\}\}", "", words["summary"])
    assert len(read) < 200, "what is read, without what only asks Prometheus"


@pytest.mark.parametrize("rule", ALERT_RULES, ids=lambda rule: rule["alert"])
def test_an_alert_about_nodes_names_the_node_and_one_about_gpus_the_gpu(rule: dict) -> None:
    """By the labels that the expression keeps; recording rules keep theirs."""
    groups = re.findall(r"by \(([^)]*)\)", rule["expr"])
    # Of what is counted by a label only that label is left.
    groups = groups[:1] if rule["expr"].startswith("count by") else groups
    kept = set(re.findall(r"\w+", " ".join(groups)))
    for asked in selectors(rule["expr"]):
        if asked.metric.startswith("gpu:"):
            kept |= METRICS[asked.metric]
    if rule["expr"].startswith("count("):
        kept -= {"node"}  # counts nodes

    for label, words in (("node", "$labels.node"), ("pci", "$labels.pci")):
        assert (label in kept) == (words in rule["annotations"]["summary"])


@pytest.mark.parametrize("rule", ALERT_RULES, ids=lambda rule: rule["alert"])
def test_what_fires_outlives_a_restart_of_whoever_says_it(rule: dict) -> None:
    """An agent or a leader that is replaced neither resolves an alert nor sends it again."""
    bridged = "fault:gpuward_incident_active:lately" in rule["expr"] or re.search(
        r"max_over_time\(gpuward_[^[]*\[(5|15)m\]", rule["expr"]
    )
    assert "keep_firing_for" in rule or bridged


def blocks(page: str) -> list[dict]:
    """The YAML examples of a page."""
    text = (REPOSITORY / "docs" / page).read_text()
    return [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)]


def test_the_page_about_alerting_names_alerts_that_exist() -> None:
    text = (REPOSITORY / "docs" / "alerting.md").read_text()

    assert set(re.findall(r"GPUWard\w+", text)) <= set(NAMES)


def test_every_alert_finds_a_receiver_in_the_example_routes() -> None:
    """By the matchers of the example; the first that takes it, else the ticket queue."""
    routes = blocks("alerting.md")[1]["route"]
    taken = {
        severity: route["receiver"]
        for route in routes["routes"]
        for severity in re.findall(r'severity="(\w+)"', route["matchers"][1])
    }

    assert taken == {"critical": "pager", "info": "channel"}
    assert routes["receiver"] == "tickets"
    assert {r["name"] for r in blocks("alerting.md")[1]["receivers"]} == {
        "pager",
        "tickets",
        "channel",
    }


@needs_promtool
def test_promtool_accepts_the_example_configuration(tmp_path: Path) -> None:
    """All but how pods are discovered: Debian builds Prometheus without that."""
    (tmp_path / "rules").symlink_to(ALERTS)
    config = blocks("alerting.md")[0]
    for scrape in config["scrape_configs"]:
        assert scrape.pop("kubernetes_sd_configs")
    (tmp_path / "prometheus.yaml").write_text(yaml.safe_dump(config))

    promtool("check", "config", tmp_path / "prometheus.yaml")


def test_the_shipped_inhibition_is_that_of_the_page() -> None:
    shipped = yaml.safe_load((REPOSITORY / "docs" / "alertmanager-inhibit.yaml").read_text())

    assert shipped["inhibit_rules"] == blocks("alerting.md")[1]["inhibit_rules"]


@pytest.mark.parametrize("rule", ALERT_RULES, ids=lambda rule: rule["alert"])
def test_nothing_critical_is_said_about_a_shadow(rule: dict) -> None:
    """Whoever is woken must be able to do something that was not decided otherwise."""
    about_nodes = "gpuward_open_session{" in rule["expr"] or "incident_active" in rule["expr"]
    if rule["labels"]["severity"] == "critical" and about_nodes:
        assert 'mode="Enforce"' in rule["expr"]
