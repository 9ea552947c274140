"""Whether the policy was edited in the cluster, so that the next apply takes it back.

Whoever enforces by editing the ConfigMap is in Shadow again after the next upgrade. Server-side
apply and Helm leave who wrote it in `managedFields`, client-side apply what it applied in an
annotation. What either says may be wrong or gone; it only warns.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from remediator.kubectl.cluster import POLICY_MAP, Cluster
from remediator.kubectl.ready.check import WARN, Check
from remediator.upkeep.policy_yaml import POLICY_KEY, decode_policy
from rules.api.metadata import ManagedField
from rules.api.node_managers import MERGED
from rules.api.object_name import api_path
from rules.api.sentences import some
from rules.api.timestamps import parse_time, utc
from rules.policy.differences import differences
from rules.policy.policy import Policy, effective_view

APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_POLICY: Final = ("f:data", f"f:{POLICY_KEY}")
_SHIPPED: Final = ("f:metadata", "f:labels", "f:app.kubernetes.io/name")
"""The label that the ConfigMap is shipped with: whoever applies the whole of it owns this."""
_RELEASE: Final = ("f:metadata", "f:annotations", "f:meta.helm.sh/release-name")
"""What Helm alone sets, whatever the program calls itself."""
_FORCE: Final = frozenset({"argocd-controller", "kustomize-controller"})
"""Argo CD and Flux apply on the server with force: nobody is told of a conflict."""
_KUBECTL: Final = "kubectl"
_CLIENT_SIDE: Final = "kubectl-client-side-apply"
"""What `kubectl apply --server-side` takes for its own earlier self, and overrides."""
_LONGEST_NAME: Final = 60


async def policy_checks(cluster: Cluster, namespace: str) -> list[Check]:
    """One warning where the next apply would change the policy back, else nothing."""
    path = api_path("/api/v1/namespaces", namespace, "configmaps", POLICY_MAP)
    text = edited(await cluster.get(path) or {})
    return [Check(verdict=WARN, name="policy", found=text)] if text else []


def edited(config_map: Mapping[str, Any]) -> str:
    """What was edited in the cluster, and what becomes of it; "" where nothing is known of it."""
    meta = config_map.get("metadata") or {}
    try:
        entries = msgspec.convert(meta.get("managedFields") or (), tuple[ManagedField, ...])
    except msgspec.ValidationError:
        entries = ()
    found = _by_managers(entries)
    return _by_annotation(config_map, meta.get("annotations") or {}) if found is None else found


def _by_managers(entries: Sequence[ManagedField]) -> str | None:
    """None where they name nobody who applies the ConfigMap, or nobody who wrote the policy."""
    appliers = [
        entry
        for entry in entries
        if entry.claims(_RELEASE) or (entry.operation == "Apply" and entry.claims(_SHIPPED))
    ]
    writers = [entry for entry in entries if entry.claims(_POLICY)]
    if not appliers or not writers:
        return None
    if any(entry in appliers for entry in writers):
        return ""  # applied, and whoever owns it beside that set the same value
    applier, writer = max(appliers, key=_at), max(writers, key=_at)
    at = parse_time(writer.time)
    when = f" on {utc(at)}" if at is not None else ""
    return (
        f"last written by {_name(writer)}{when}, not by {_name(applier)}, which applies the "
        f"ConfigMap: {_next(applier, writer)}"
    )


def _next(applier: ManagedField, writer: ManagedField) -> str:
    """What becomes of it, as tests/e2e/install/test_install_policy_edited.py tries it."""
    forces = applier.manager in _FORCE
    then, source, differs = "the next apply", "your overlay", "your overlay differs"
    if applier.claims(_RELEASE):
        then, source, differs = "the next helm upgrade", "your values", "your values differ"
    elif forces:
        then = "its next sync"
    silent = forces or applier.operation != "Apply"
    if silent or (applier.manager == _KUBECTL and writer.manager == _CLIENT_SIDE):
        return f"{then} takes back what differs from {source}; put it there"
    return (
        f"{then} ends in a conflict where {differs}, or takes it back with "
        "--force-conflicts; put it there"
    )


def _name(entry: ManagedField) -> str:
    """As the client calls itself, which proves nothing."""
    return "somebody" if entry.manager in {"", MERGED} else entry.manager[:_LONGEST_NAME]


def _at(entry: ManagedField) -> float:
    return parse_time(entry.time) or 0.0


def _by_annotation(config_map: Mapping[str, Any], annotations: Mapping[str, str]) -> str:
    """By what `kubectl apply` wrote down of what it applied."""
    try:
        applied = json.loads(annotations.get(APPLIED, "null"))
        before = applied["data"][POLICY_KEY] if applied else None
    except (ValueError, TypeError, LookupError, RecursionError):
        return ""
    if not before or not isinstance(before, str):
        return ""
    now = (config_map.get("data") or {}).get(POLICY_KEY, "")
    old, new = decode_policy(before, "applied"), decode_policy(now, POLICY_MAP)
    if not isinstance(old, Policy) or not isinstance(new, Policy):
        return ""
    back = differences(effective_view(new), effective_view(old))
    if not back:
        return ""
    return (
        f"edited in the cluster since it was applied; the next kubectl apply of your overlay sets "
        f"it back ({some(back)}), put it into the overlay"
    )
