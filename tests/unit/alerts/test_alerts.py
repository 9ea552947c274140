"""The alert rules: syntax, metrics, annotations, and when they fire."""

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
REASONS = sorted({(rule["alert"], rule["labels"].get("reason", "")) for rule in ALERT_RULES})
"""Every alert with the reasons of its rules, "" for an alert without."""
MOST_ALERTS = 25
DOCS = sorted(path.relative_to(REPOSITORY) for path in (REPOSITORY / "docs").rglob("*.md"))
GOLDEN_NAMES = [page.name for page in GOLDEN_PAGES]


def promtool(*arguments: str | Path, given: bytes = b"") -> None:
    done = subprocess.run(
        [str(PROMTOOL), *map(str, arguments)], input=given, capture_output=True, check=False
    )
    assert done.returncode == 0, (done.stdout + done.stderr).decode()


@needs_promtool
def test_promtool_accepts_every_rule_file() -> None:
    """With lint: two rules of one name and the same labels fail."""
    promtool("check", "rules", "--lint=all", "--lint-fatal", *sorted(ALERTS.glob("*.yaml")))


@needs_promtool
@pytest.mark.parametrize("page", GOLDEN_PAGES, ids=GOLDEN_NAMES)
def test_promtool_accepts_every_metrics_page(page: Path) -> None:
    promtool("check", "metrics", given=page.read_bytes())


@needs_promtool
@pytest.mark.parametrize("cases", CASES, ids=[case.stem for case in CASES])
def test_alerts_fire_and_stay_silent_as_in_the_cases(cases: Path) -> None:
    promtool("test", "rules", cases)


def test_there_are_few_alerts() -> None:
    assert len(NAMES) <= MOST_ALERTS


@functools.cache
def checks() -> tuple[tuple[str, frozenset[str]], ...]:
    """Every alert that the cases check, with the reasons that they expect to fire.

    "" is an alert of which no rule sets a reason.
    """
    with_reason = {alert for alert, reason in REASONS if reason}
    return tuple(
        (
            (name := check["alertname"]),
            frozenset(
                alert["exp_labels"]["reason"] if name in with_reason else ""
                for alert in check["exp_alerts"]
            ),
        )
        for case in CASES
        if case.stem != "healthy"
        for test in yaml.load(case.read_text(), LOADER)["tests"]
        for check in test.get("alert_rule_test", ())
    )


@pytest.mark.parametrize(("name", "reason"), REASONS)
def test_each_alert_and_reason_has_a_case_that_fires_and_one_that_does_not(
    name: str, reason: str
) -> None:
    expected = [reasons for alert, reasons in checks() if alert == name]

    assert any(reason in reasons for reasons in expected)
    assert any(not reasons for reasons in expected)


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
def test_unknown_metrics_and_labels_of_an_expression_are_found(
    expr: str, wrong: list[str]
) -> None:
    assert unknown(expr, METRICS) == wrong


@pytest.mark.parametrize("rule", ALERT_RULES, ids=lambda rule: rule["alert"])
def test_each_alert_has_a_severity_a_summary_a_description_and_a_runbook(rule: dict) -> None:
    notes, page = rule["annotations"], f"docs/runbooks/{rule['alert']}.md"

    assert set(notes) == {"summary", "description", "runbook", "runbook_url"}
    # The severities of kube-prometheus.
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    # The labels that differ between rules of one name.
    assert set(rule["labels"]) <= {"severity", "scope", "reason"}
    assert (notes["runbook"], (REPOSITORY / page).exists()) == (page, True)
    # The remediator's own page; `alerts.docs` of the chart or sed replaces the address.
    assert notes["runbook_url"] == f"http://localhost:9414/{page}"
    shown = re.sub(r"\{\{.*?\}\}", "", notes["summary"])
    assert len(shown) < 200, "without template expressions"
    assert notes["summary"].endswith(".")


@pytest.mark.parametrize("rule", ALERT_RULES, ids=lambda rule: rule["alert"])
def test_an_alert_about_nodes_names_the_node_and_one_about_gpus_the_gpu(rule: dict) -> None:
    """By the labels that the expression keeps, including those of recording rules."""
    groups = re.findall(r"by \(([^)]*)\)", rule["expr"])
    # `count by` keeps only its own labels.
    groups = groups[:1] if rule["expr"].startswith("count by") else groups
    kept = set(re.findall(r"\w+", " ".join(groups)))
    for asked in selectors(rule["expr"]):
        if asked.metric.startswith("gpu:"):
            kept |= METRICS[asked.metric]
    if rule["expr"].startswith("count("):
        kept -= {"node"}  # counts nodes

    for label, expression in (("node", "$labels.node"), ("pci", "$labels.pci")):
        assert (label in kept) == (expression in rule["annotations"]["summary"])


@pytest.mark.parametrize("rule", ALERT_RULES, ids=lambda rule: rule["alert"])
def test_a_firing_alert_outlives_a_restart_of_the_agent_or_the_leader(rule: dict) -> None:
    """The restart neither resolves the alert nor sends it again."""
    bridged = "fault:gpuward_incident_active:lately" in rule["expr"] or re.search(
        r"max_over_time\(gpuward_[^[]*\[(5|15)m\]", rule["expr"]
    )
    assert "keep_firing_for" in rule or bridged


def blocks(page: str) -> list[dict]:
    """The YAML examples of a page."""
    text = (REPOSITORY / "docs" / page).read_text()
    return [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)]


@pytest.mark.parametrize("page", DOCS, ids=[str(page) for page in DOCS])
def test_the_docs_name_alerts_and_reasons_that_exist(page: Path) -> None:
    text = (REPOSITORY / page).read_text()
    named = set(re.findall(r"GPUWard(?!Pauses?\b)[A-Z]\w+", text))

    assert named <= set(NAMES)
    for name, reasons in re.findall(r'alertname="(GPUWard\w+)", reason=~?"([\w|]+)"', text):
        assert {(name, reason) for reason in reasons.split("|")} <= set(REASONS)


def test_every_alert_finds_a_receiver_in_the_example_routes() -> None:
    """The first route with a matching severity, or else the tickets."""
    routes = blocks("alerting.md")[1]["route"]
    receivers = {
        severity: route["receiver"]
        for route in routes["routes"]
        for severity in re.findall(r'severity="(\w+)"', route["matchers"][1])
    }

    assert receivers == {"critical": "pager", "info": "channel"}
    assert routes["receiver"] == "tickets"
    assert {r["name"] for r in blocks("alerting.md")[1]["receivers"]} == {
        "pager",
        "tickets",
        "channel",
    }


@needs_promtool
def test_promtool_accepts_the_example_configuration(tmp_path: Path) -> None:
    """Without the discovery of pods, which Debian's build of Prometheus lacks."""
    (tmp_path / "rules").symlink_to(ALERTS)
    config = blocks("alerting.md")[0]
    for scrape in config["scrape_configs"]:
        assert scrape.pop("kubernetes_sd_configs")
    (tmp_path / "prometheus.yaml").write_text(yaml.safe_dump(config))

    promtool("check", "config", tmp_path / "prometheus.yaml")


def test_the_shipped_inhibition_names_alerts_and_reasons_that_exist() -> None:
    shipped = yaml.safe_load((REPOSITORY / "docs" / "alertmanager-inhibit.yaml").read_text())
    matchers = [
        matcher
        for rule in shipped["inhibit_rules"]
        for matcher in rule["source_matchers"] + rule["target_matchers"]
    ]
    named = {
        (label, value)
        for matcher in matchers
        for label, values in re.findall(r'(alertname|reason)!?=~?"([\w|]+)"', matcher)
        for value in values.split("|")
    }
    reasons = {("reason", reason) for _, reason in REASONS}

    assert named <= {("alertname", name) for name in NAMES} | reasons
    assert len(named) > 8


@pytest.mark.parametrize("rule", ALERT_RULES, ids=lambda rule: rule["alert"])
def test_no_critical_alert_about_a_node_fires_in_shadow_mode(rule: dict) -> None:
    """A page must be about something that the policy and the operators did not decide."""
    about_nodes = "gpuward_open_session{" in rule["expr"] or "incident_active" in rule["expr"]
    if rule["labels"]["severity"] == "critical" and about_nodes:
        assert 'mode="Enforce"' in rule["expr"]
