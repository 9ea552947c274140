"""Which metrics and labels exist, and which a PromQL expression asks for.

Metrics come from the golden pages of the agent and the remediator and from our recording rules.
The reader of expressions is small on purpose: it finds selectors, matchers and grouping labels;
whether an expression is PromQL at all is for promtool.
"""

import functools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from hack.sim.manifests import LOADER

REPOSITORY = Path(__file__).resolve().parents[3]
ALERTS = REPOSITORY / "rules" / "alerts"
GOLDEN = REPOSITORY / "tests" / "golden"
AGENT_PAGES = {"full": GOLDEN / "agent_metrics.prom", "basic": GOLDEN / "agent_metrics_basic.prom"}
GOLDEN_PAGES = (*AGENT_PAGES.values(), GOLDEN / "remediator_metrics.prom")
TARGET_LABELS = frozenset({"node", "instance", "job"})
"""What the scrape adds: `node` by our PodMonitor and by the example in docs/alerting.md."""
ELSEWHERE = {
    "kube_node_status_capacity": frozenset({"node", "resource", "unit", "instance"}),
    "kube_node_labels": frozenset(
        {
            "node",
            "label_nvidia_com_gpu_present",
            "instance",
            "label_feature_node_kubernetes_io_pci_10de_present",
        }
    ),
    "kube_node_spec_unschedulable": frozenset({"node", "instance"}),
    "kube_pod_container_status_waiting_reason": frozenset(
        {"namespace", "pod", "container", "reason", "instance"}
    ),
}
"""Metrics of kube-state-metrics that rules may use; without it those rules are silent."""

_SERIES = re.compile(r"^(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})? \S+$")
_LABEL = re.compile(r'([a-zA-Z_]\w*)\s*(?:=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"')
_GROUPING = re.compile(r"\b(by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_SELECTOR = re.compile(r"(?<![\w:$])([a-zA-Z_:][\w:]*)\s*(\{[^}]*\})?(?!\s*\(|[\w:])")
_KEYWORDS = frozenset({"and", "or", "unless", "bool", "offset", "inf", "nan", "atan2"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One selector of an expression."""

    metric: str
    labels: frozenset[str]


@functools.cache
def _rules() -> tuple[dict[str, Any], ...]:
    files = (yaml.load(path.read_text(), LOADER) for path in sorted(ALERTS.glob("*.yaml")))
    return tuple(rule for file in files for group in file["groups"] for rule in group["rules"])


def rules() -> list[dict[str, Any]]:
    """Every recording and alert rule."""
    return list(_rules())


def known(which: str = "full") -> dict[str, frozenset[str]]:
    """Every metric with its labels, those of the scrape included; of the agent, this set of
    them.
    """
    found: dict[str, frozenset[str]] = dict(ELSEWHERE)
    for page in (AGENT_PAGES[which], GOLDEN_PAGES[-1]):
        for line in page.read_text().splitlines():
            if (one := _SERIES.match(line)) and not line.startswith("#"):
                labels = {name for name, _ in _LABEL.findall(one["labels"] or "")}
                old = found.get(one["name"], frozenset())
                found[one["name"]] = old | labels | TARGET_LABELS
    for rule in rules():
        if "record" in rule:
            found[rule["record"]] = frozenset(grouping(rule["expr"], "by"))
    return found


def grouping(expr: str, *keywords: str) -> set[str]:
    """Labels named in `by (...)` and the like; all of them without `keywords`."""
    return {
        label.strip()
        for keyword, labels in _GROUPING.findall(_without_text(expr))
        if not keywords or keyword in keywords
        for label in labels.split(",")
        if label.strip()
    }


def selectors(expr: str) -> list[Asked]:
    """The metrics an expression reads, with the labels it matches on."""
    ungrouped = _GROUPING.sub(" ", expr)
    unranged = re.sub(r"\[[^\]]*\]", "", ungrouped)
    found = []
    for name, matchers in _SELECTOR.findall(_without_text(unranged)):
        if name.lower() in _KEYWORDS or re.fullmatch(r"\d+[smhdwy]?|[smhdwy]", name):
            continue
        found.append(
            Asked(metric=name, labels=frozenset(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers)))
        )
    return found


def unknown(expr: str, metrics: dict[str, frozenset[str]]) -> list[str]:
    """Series of the expression that no exporter has, as messages."""
    wrong = []
    available: set[str] = set()
    for asked in selectors(expr):
        labels = metrics.get(asked.metric)
        if labels is None:
            wrong.append(f"no metric {asked.metric}")
            continue
        available |= labels
        wrong += [f"{asked.metric} has no label {name}" for name in asked.labels - labels]
    wrong += [f"no metric here has the label {name}" for name in grouping(expr) - available]
    return sorted(wrong)


def _without_text(expr: str) -> str:
    return re.sub(r'"(?:[^"\\]|\\.)*"', '""', expr)
