"""What the roles of daemonset/base grant, as sets that can be compared with what was asked."""

from __future__ import annotations

from pathlib import Path

from hack.sim.cluster.clients.client import Object
from hack.sim.manifests import read_manifests

BASE = Path(__file__).parents[3] / "daemonset" / "base"


def roles(name: str) -> list[Object]:
    """The ClusterRole and the Role of a service account."""
    found = [o for o in read_manifests(BASE) if o["kind"] in {"ClusterRole", "Role"}]
    return [role for role in found if role["metadata"]["name"] == name]


def granted(name: str) -> set[tuple[str, str]]:
    """(verb, group/resource/subresource without the core group's name) of both roles."""
    return {
        (verb, f"{group}/{resource}".lstrip("/"))
        for role in roles(name)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def without(rules: list[Object], verb: str, what: str) -> list[Object]:
    """The rules less one verb on one resource."""
    kept = []
    for rule in rules:
        for resource in rule["resources"]:
            names = {f"{group}/{resource}".lstrip("/") for group in rule["apiGroups"]}
            verbs = [v for v in rule["verbs"] if v != verb or what not in names]
            if verbs:
                kept.append({**rule, "resources": [resource], "verbs": verbs})
    return kept
