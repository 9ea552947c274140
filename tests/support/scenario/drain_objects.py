"""Small builders of API objects for the tests of the deciding rules."""

from typing import Any

import msgspec

from rules.api.nodes import FreshNode
from rules.api.pods import PodView
from rules.api.workloads import PdbView


def pod(name: str = "web-1", **parts: Any) -> PodView:
    """A running, ready pod of a ReplicaSet on `n0`; keywords replace sections."""
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": "web",
        "uid": "rs",
        "controller": True,
    }
    value = {
        "metadata": {
            "name": name,
            "namespace": "team-a",
            "uid": f"uid-{name}",
            "labels": {"app": "web"},
            "ownerReferences": [owner],
            **parts.pop("metadata", {}),
        },
        "spec": {"nodeName": "n0", **parts.pop("spec", {})},
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
            **parts.pop("status", {}),
        },
    }
    assert not parts
    return msgspec.convert(value, PodView)


def pdb(name: str = "keep", *, created: str = "2026-01-01T00:00:00Z", **parts: Any) -> PdbView:
    value = {
        "metadata": {
            "name": name,
            "namespace": "team-a",
            "generation": 1,
            "creationTimestamp": created,
        },
        "spec": {"selector": {"matchLabels": {"app": "web"}}, **parts.pop("spec", {})},
        "status": {
            "observedGeneration": 1,
            "disruptionsAllowed": 0,
            "currentHealthy": 3,
            "desiredHealthy": 3,
            "expectedPods": 4,
            **parts.pop("status", {}),
        },
    }
    assert not parts
    return msgspec.convert(value, PdbView)


def node(name: str = "n0", **parts: Any) -> FreshNode:
    value = {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": "7",
            "labels": {"gpuward.io/gpus": "8"},
            "annotations": {},
            **parts.pop("metadata", {}),
        },
        "spec": parts.pop("spec", {}),
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"bootID": "boot-1"},
            **parts.pop("status", {}),
        },
    }
    assert not parts
    return msgspec.convert(value, FreshNode)
