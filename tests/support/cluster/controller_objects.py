"""Objects that the controller tests start from."""

from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from hack.sim.cluster.controllers.pods import reference, stamp
from hack.sim.cluster.controllers.running import Create, Outcome, Patch, UpdateStatus

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
_uids = count(1)


def ago(seconds: float) -> str:
    return stamp(NOW - timedelta(seconds=seconds))


def meta(name: str, **more: Any) -> dict[str, Any]:
    number = next(_uids)
    return {
        "name": name,
        "namespace": "team",
        "uid": f"uid-{number}",
        "resourceVersion": str(number),
        "generation": 1,
        "creationTimestamp": ago(600),
        **more,
    }


def template(**more: Any) -> dict[str, Any]:
    return {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "main", "image": "i"}], **more},
    }


def owner(kind: str, name: str = "web", api: str = "apps/v1", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": api,
        "kind": kind,
        "metadata": meta(name, labels={}),
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template(), **spec},
    }


def pod(
    name: str,
    of: dict[str, Any] | None = None,
    *,
    ready: bool = True,
    phase: str = "Running",
    node: str = "n1",
    terminating: bool = False,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    finalizers: list[str] | None = None,
    spec: dict[str, Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    own = meta(name, labels={"app": "web", **(labels or {})}, annotations=annotations or {})
    if of is not None:
        own["ownerReferences"] = [reference(of)]
    if finalizers:
        own["finalizers"] = finalizers
    if terminating:
        own |= {"deletionTimestamp": ago(-30), "deletionGracePeriodSeconds": 30}
    conditions = [{"type": "Ready", "status": str(ready), "lastTransitionTime": ago(300)}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": own,
        "spec": {**template()["spec"], **({"nodeName": node} if node else {}), **(spec or {})},
        "status": {"phase": phase, "conditions": conditions, **more},
    }


def created(outcome: Outcome) -> list[dict[str, Any]]:
    return [write.body for write in outcome.writes if isinstance(write, Create)]


def patched(outcome: Outcome) -> list[tuple[str, dict[str, Any]]]:
    return [
        (write.target["metadata"]["name"], write.patch)
        for write in outcome.writes
        if isinstance(write, Patch)
    ]


def status(outcome: Outcome) -> dict[str, Any]:
    (found,) = [
        write.body["status"] for write in outcome.writes if isinstance(write, UpdateStatus)
    ]
    return dict(found)


def with_new_status(obj: dict[str, Any], outcome: Outcome) -> dict[str, Any]:
    return {**obj, "status": status(outcome)}
