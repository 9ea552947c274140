"""What `kubectl get nodes` says about a node.

Cells of the node table only; nothing is decided from these texts.
"""

from __future__ import annotations

from typing import Any

_ROLE_PREFIX = "node-role.kubernetes.io/"
_ROLE_LABEL = "kubernetes.io/role"

Object = dict[str, Any]


def node_status(node: Object, _: float) -> str:
    """Ready or not, and whether it takes new pods."""
    conditions = (node.get("status") or {}).get("conditions") or []
    ready = next((one for one in conditions if one.get("type") == "Ready"), None)
    if ready is None:
        words = ["Unknown"]
    else:
        words = ["Ready" if ready.get("status") == "True" else "NotReady"]
    if (node.get("spec") or {}).get("unschedulable"):
        words.append("SchedulingDisabled")
    return ",".join(words)


def node_roles(node: Object, _: float) -> str:
    """The roles its labels claim."""
    roles = set()
    for key, value in (node["metadata"].get("labels") or {}).items():
        if key.startswith(_ROLE_PREFIX) and key != _ROLE_PREFIX:
            roles.add(key.removeprefix(_ROLE_PREFIX))
        elif key == _ROLE_LABEL and value:
            roles.add(value)
    return ",".join(sorted(roles)) or "<none>"


def _address(node: Object, type_: str) -> str:
    addresses = (node.get("status") or {}).get("addresses") or []
    return next((one["address"] for one in addresses if one.get("type") == type_), "<none>")


def internal_ip(node: Object, _: float) -> str:
    """The address inside the cluster."""
    return _address(node, "InternalIP")


def external_ip(node: Object, _: float) -> str:
    """The address outside the cluster."""
    return _address(node, "ExternalIP")
