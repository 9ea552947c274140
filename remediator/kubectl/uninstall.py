"""`kubectl gpuward uninstall`: stop our programs, then take every mark and label off every node.

The second command, `kubectl delete -k`, removes CRDs and namespace first, so everything that needs
them happens here. Each step can be repeated; what people wrote and what others own stays and is
named.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from remediator.kubectl.cluster import Cluster, CommandError
from rules.decision_request import MERGE_PATCH, STRATEGIC_PATCH, Request
from rules.mark import marked, read_note, unmark_patch
from rules.names import (
    AGENT_LABELS,
    ANNOTATION_EXPECTED_GPUS,
    ANNOTATION_HOLD,
    ANNOTATION_RELEASE_GPU,
    ANNOTATION_REPAIRED,
    COMPONENT_AGENT,
    COMPONENT_REMEDIATOR,
    CONDITION_DEGRADED,
    CONDITION_HEALTHY,
    LABEL_OPT_OUT,
    LABEL_QUARANTINE,
)
from rules.session_time import parse_time
from rules.snapshot import FreshNode

OURS_BY_COMMAND = (ANNOTATION_HOLD, ANNOTATION_REPAIRED)
"""Annotations that only our own commands write."""
BY_PEOPLE = (ANNOTATION_EXPECTED_GPUS, ANNOTATION_RELEASE_GPU)
LEASE_EXPIRES_S = 20.0
PODS_GONE_WITHIN_S = 120.0
LOOK_EVERY_S = 1.0
TRIES = 5

Say = Callable[[str], None]


async def uninstall(cluster: Cluster, *, namespace: str, say: Say) -> str:
    """Stop, clean, report; CommandError when something of ours still runs."""
    await _stop(cluster, namespace, say)
    cleaned, left = 0, []
    for view in await cluster.nodes():
        node = await cluster.node(view.name)
        if node is None:
            continue
        if await _clean(cluster, node, say):
            cleaned += 1
        left += _left_by_people(node)
    lines = [f"{cleaned} nodes cleaned; now: kubectl delete -k YOUR-OVERLAY"]
    return "\n".join([*lines, *left])


async def _stop(cluster: Cluster, namespace: str, say: Say) -> None:
    """Delete the workloads, wait for their pods, and make sure that nobody leads any more."""
    base = f"/apis/apps/v1/namespaces/{namespace}"
    await cluster.delete(f"{base}/deployments/{COMPONENT_REMEDIATOR}")
    await cluster.delete(f"{base}/daemonsets/{COMPONENT_AGENT}")
    say("waiting for the pods of gpuward to end")
    waited = 0.0
    while pods := await cluster.pods_of_gpuward():
        if waited >= PODS_GONE_WITHIN_S:
            raise CommandError(
                f"{len(pods)} pods still run, such as {pods[0]}; nothing was taken off any node; "
                "see what holds them and run this again"
            )
        await asyncio.sleep(LOOK_EVERY_S)
        waited += LOOK_EVERY_S
    holder = await _leader(cluster, namespace)
    if holder:
        raise CommandError(
            f"a remediator outside this cluster still leads ({holder}); stop it, then run this "
            "again; nothing was taken off any node"
        )


async def _leader(cluster: Cluster, namespace: str) -> str:
    """Who renews the lease although our pods are gone; "" for nobody."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{COMPONENT_REMEDIATOR}"
    lease = await cluster.get(path)
    spec: dict[str, Any] = (lease or {}).get("spec") or {}
    renewed = parse_time(str(spec.get("renewTime") or ""))
    if not spec.get("holderIdentity") or renewed is None:
        return ""
    if cluster.now() - renewed > LEASE_EXPIRES_S:
        return ""
    await asyncio.sleep(LOOK_EVERY_S * 5)
    again = ((await cluster.get(path)) or {}).get("spec") or {}
    alive = again.get("renewTime") != spec.get("renewTime")
    return str(again.get("holderIdentity") or "") if alive else ""


async def _clean(cluster: Cluster, node: FreshNode, say: Say) -> bool:
    """One node: mark, labels, our annotations, our conditions. True if anything was there."""
    for _ in range(TRIES):
        patch = _metadata_patch(node)
        if patch is None:
            break
        path = f"/api/v1/nodes/{node.name}"
        answer = await cluster.send(
            Request(method="PATCH", path=path, body=patch, content_type=MERGE_PATCH)
        )
        if answer.ok:
            say(f"{node.name}: {_what(node)}")
            break
        if answer.code != 409:
            raise CommandError(f"{node.name}: {answer.sentence()}")
        found = await cluster.node(node.name)
        if found is None:
            return True
        node = found
    else:
        raise CommandError(f"{node.name} changes too fast to be cleaned; run this again")
    ours = [c for c in (CONDITION_HEALTHY, CONDITION_DEGRADED) if node.condition(c)]
    if ours:
        body = {"status": {"conditions": [{"$patch": "delete", "type": kind} for kind in ours]}}
        answer = await cluster.send(
            Request(
                method="PATCH",
                path=f"/api/v1/nodes/{node.name}/status",
                body=body,
                content_type=STRATEGIC_PATCH,
            )
        )
        if not answer.ok and answer.code != 404:
            raise CommandError(f"{node.name}: {answer.sentence()}")
    return patch is not None or bool(ours)


def _metadata_patch(node: FreshNode) -> dict[str, Any] | None:
    """The reverse of the mark, and our labels and annotations off; None when nothing is ours."""
    labels = [k for k in (*AGENT_LABELS, LABEL_QUARANTINE) if k in node.labels]
    annotations = [k for k in OURS_BY_COMMAND if k in node.annotations]
    if not labels and not annotations and not marked(node):
        return None
    patch: dict[str, Any] = (
        unmark_patch(node)
        if marked(node)
        else {"metadata": {"resourceVersion": node.metadata.resource_version}}
    )
    patch["metadata"].setdefault("labels", {}).update(dict.fromkeys(labels))
    patch["metadata"].setdefault("annotations", {}).update(dict.fromkeys(annotations))
    return patch


def _what(node: FreshNode) -> str:
    note = read_note(node)
    if note is None:
        return "labels taken off"
    return (
        "mark taken off; it was cordoned before" if note.prior_unschedulable else "mark taken off"
    )


def _left_by_people(node: FreshNode) -> list[str]:
    found = [k for k in BY_PEOPLE if k in node.annotations]
    found += [LABEL_OPT_OUT] if LABEL_OPT_OUT in node.labels else []
    found += (
        ["its cordon, which is not ours"] if node.spec.unschedulable and not marked(node) else []
    )
    return [f"{node.name}: left as people set it: {', '.join(found)}"] if found else []
