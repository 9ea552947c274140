"""The alert rules and scrapes as objects of the Prometheus Operator, for a kustomize component.

Made from `rules/alerts`, so that plain Prometheus and the operator evaluate the same rules. The
scrapes give each agent's series the label `node`, on which alerts and dashboards rest.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

ALERTS: Final = Path(__file__).resolve().parents[2] / "rules" / "alerts"
_MONITORING: Final = "monitoring.coreos.com/v1"
_AGENT: Final = {"app.kubernetes.io/name": "gpuward", "app.kubernetes.io/component": "agent"}
_REMEDIATOR: Final = {
    "app.kubernetes.io/name": "gpuward",
    "app.kubernetes.io/component": "remediator",
}
Object = dict[str, Any]


def rule_groups() -> list[Object]:
    """All groups of all rule files, recording rules first."""
    files = sorted(ALERTS.glob("*.yaml"), key=lambda file: (file.stem != "recording", file.stem))
    return [group for file in files for group in yaml.safe_load(file.read_text())["groups"]]


def objects() -> dict[str, Object]:
    """File name to object."""
    return {
        "prometheus-rule.yaml": _object("PrometheusRule", {"groups": rule_groups()}),
        "agent-pod-monitor.yaml": _object(
            "PodMonitor",
            {
                "selector": {"matchLabels": _AGENT},
                "podMetricsEndpoints": [
                    {
                        "port": "metrics",
                        "relabelings": [
                            {
                                "sourceLabels": ["__meta_kubernetes_pod_node_name"],
                                "targetLabel": "node",
                            }
                        ],
                    }
                ],
            },
            name="gpuward-agent",
        ),
        "remediator-service-monitor.yaml": _object(
            "ServiceMonitor",
            {
                "selector": {"matchLabels": _REMEDIATOR},
                "endpoints": [{"port": "http", "path": "/metrics"}],
            },
            name="gpuward-remediator",
        ),
        "kustomization.yaml": {
            "apiVersion": "kustomize.config.k8s.io/v1alpha1",
            "kind": "Component",
            "resources": [
                "agent-pod-monitor.yaml",
                "prometheus-rule.yaml",
                "remediator-service-monitor.yaml",
            ],
        },
    }


def _object(kind: str, spec: Object, name: str = "gpuward") -> Object:
    labels = {"app.kubernetes.io/name": "gpuward"}
    return {
        "apiVersion": _MONITORING,
        "kind": kind,
        # An overlay that renames the namespace replaces it here too.
        "metadata": {"name": name, "namespace": "gpuward", "labels": labels},
        "spec": spec,
    }
