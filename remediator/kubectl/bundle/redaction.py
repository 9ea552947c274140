"""What of an object or a log may leave the cluster: what support needs, and nothing that could be
a secret. Pure.

Environments, commands, volumes and foreign annotations of pods and nodes are left out whole: what
is a secret in them nobody can tell.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

LEFT_OUT: Final = "(left out)"
_OURS: Final = "gpuward.io/"
_POD_SPEC: Final = (
    "nodeName", "priorityClassName", "priority", "preemptionPolicy", "schedulerName",
    "terminationGracePeriodSeconds", "tolerations", "nodeSelector", "schedulingGates",
)  # fmt: skip
_CONTAINER: Final = ("name", "image", "resources")
_META: Final = (
    "name", "namespace", "uid", "creationTimestamp", "deletionTimestamp",
    "deletionGracePeriodSeconds", "labels", "finalizers", "ownerReferences", "resourceVersion",
)  # fmt: skip
_SECRET: Final = re.compile(
    r"(?i)\b((?:[a-z0-9_-]*(?:authorization|token|password|passwd|secret|api[-_]?key|credential)"
    r"[a-z0-9_-]*)[\"']?\s*[:=]\s*(?:bearer\s+|basic\s+)?[\"']?)([^\s\"',;}\]]{3,})"
)
_BEARER: Final = re.compile(r"(?i)\b(bearer\s+)[A-Za-z0-9._~+/=-]{8,}")
_JWT: Final = re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*")
_URL: Final = re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^/\s:@]+:[^/\s@]+@")


def metadata(found: Mapping[str, Any]) -> dict[str, Any]:
    """Names, owners and labels; of annotations only ours have a value."""
    kept = {key: found[key] for key in _META if key in found}
    notes = found.get("annotations")
    if isinstance(notes, dict) and notes:
        kept["annotations"] = {
            key: value if _OURS in key else LEFT_OUT for key, value in sorted(notes.items())
        }
    return kept


def pod(found: Mapping[str, Any]) -> dict[str, Any]:
    """What decides whether a pod may be evicted and where it may go."""
    spec = found.get("spec") or {}
    status = found.get("status") or {}
    kept = {key: spec[key] for key in _POD_SPEC if key in spec}
    for kind in ("initContainers", "containers"):
        if spec.get(kind):
            kept[kind] = [
                {key: one[key] for key in _CONTAINER if key in one} for one in spec[kind]
            ]
    claims = [one for one in spec.get("volumes") or () if "persistentVolumeClaim" in one]
    claims += [one for one in spec.get("volumes") or () if "emptyDir" in one]
    if claims:
        kept["volumes"] = claims
    return {
        "metadata": metadata(found.get("metadata") or {}),
        "spec": kept,
        "status": {
            key: status[key]
            for key in ("phase", "reason", "message", "conditions", "startTime", "qosClass")
            if key in status
        },
    }


def plain(found: Mapping[str, Any]) -> dict[str, Any]:
    """An object of ours or a Node: whole, but for foreign annotations and who wrote which
    field.
    """
    rest = {key: value for key, value in found.items() if key not in {"metadata", "kind"}}
    kind = {"kind": found["kind"]} if "kind" in found else {}
    return {**kind, "metadata": metadata(found.get("metadata") or {}), **rest}


def text(log: str) -> str:
    """A log whose words that look like credentials are left out."""
    log = _JWT.sub(LEFT_OUT, log)
    log = _BEARER.sub(rf"\1{LEFT_OUT}", log)
    log = _URL.sub(rf"\1{LEFT_OUT}@", log)
    return _SECRET.sub(lambda match: f"{match[1]}{LEFT_OUT}", log)
