"""Everything of ours off one node, and nothing else: the node as it was before the installation.

Used by `uninstall` after our programs have ended. What people wrote stays; only the annotations
that the commands of `kubectl gpuward` put there for them go, told apart by managedFields.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from remediator.kubectl.answers import checked
from remediator.kubectl.cluster import MANAGER, Cluster
from remediator.kubectl.command import CommandError
from rules.api import names
from rules.api.mark import cordon_stays, marked, unmark_patch
from rules.api.nodes import FreshNode, NodeView
from rules.api.repair.moved import has_record, unexplained_labels
from rules.api.repair.out_of_service import in_service, is_ours, untaint_patch
from rules.api.requests import MERGE_PATCH, STRATEGIC_PATCH, Request
from rules.policy.policy import Policy
from rules.repair.adapter import REPAIR_CONDITIONS
from rules.repair.judging import merged
from rules.session.repair.clearing import is_cleared, restored_patch
from rules.session.repair.requests import is_our_request, node_request_off

BY_COMMANDS: Final = (names.ANNOTATION_HOLD, names.ANNOTATION_REPAIRED)
"""Annotations that our own commands write for people."""
BY_REPAIRS: Final = (names.ANNOTATION_REPAIR, names.ANNOTATION_OUT_OF_SERVICE)
BY_PEOPLE: Final = (
    *BY_COMMANDS,
    names.ANNOTATION_EXPECTED_GPUS,
    names.ANNOTATION_RELEASE_GPU,
    names.ANNOTATION_FABRIC_MODE,
)
LABELS: Final = (*names.AGENT_LABELS, names.LABEL_QUARANTINE)
CONDITIONS: Final = (
    names.CONDITION_HEALTHY,
    names.CONDITION_DEGRADED,
    names.CONDITION_VALIDATED,
)
TRIES: Final = 5


def touched(node: NodeView, recorded: Iterable[str] = ()) -> bool:
    """Whether anything on the node may be ours; `recorded` is what its sessions say of labels that
    they changed.
    """
    return (
        marked(node)
        or any(key in node.labels for key in LABELS)
        or any(key in node.annotations for key in (*BY_COMMANDS, *BY_REPAIRS))
        or any(node.condition(kind) for kind in CONDITIONS)
        or any(is_our_request(node, kind) for kind in REPAIR_CONDITIONS)
        or is_cleared(node, recorded)
        or has_record(node)
    )


async def clean(
    cluster: Cluster, node: FreshNode, recorded: Iterable[str] = ()
) -> tuple[str, NodeView | None]:
    """Take it off; what was done, "" for nothing, and the node after that, also where it is a dry
    run; None where it is gone. CommandError where it could not be.
    """
    path = f"/api/v1/nodes/{node.name}"
    done = ""
    for _ in range(TRIES):
        patch = _metadata_patch(node, recorded)
        if patch is None:
            break
        answer = await cluster.send(
            Request(method="PATCH", path=path, body=patch, content_type=MERGE_PATCH)
        )
        if answer.ok:
            done, node = _what(node), answer.decode(FreshNode)
            break
        if answer.code != 409:
            checked(answer, writes=True)
        found = await cluster.node(node.name)
        if found is None:
            return "", None
        node = found
    else:
        raise CommandError("it changes too fast to be cleaned")
    ours = [kind for kind in CONDITIONS if node.condition(kind)]
    ours += [kind for kind in REPAIR_CONDITIONS if is_our_request(node, kind)]
    if ours:
        body = {"status": {"conditions": [{"$patch": "delete", "type": kind} for kind in ours]}}
        answer = await cluster.send(
            Request(method="PATCH", path=f"{path}/status", body=body, content_type=STRATEGIC_PATCH)
        )
        if answer.code != 404:
            checked(answer, writes=True)
        done = done or "conditions taken off"
    return done, node


def _metadata_patch(node: FreshNode, recorded: Iterable[str]) -> dict[str, Any] | None:
    """The reverse of the mark, and our labels and annotations off; None when nothing is ours."""
    labels = [key for key in LABELS if key in node.labels]
    annotations = [
        key for key in BY_COMMANDS if key in node.annotations and _by_command(node, key)
    ]
    asked = merged(_request_off(node), restored_patch(node, recorded))
    service = untaint_patch(node) if is_ours(node, ()) else {}
    if not labels and not annotations and not asked and not service and not marked(node):
        return None
    patch: dict[str, Any] = (
        unmark_patch(in_service(node) if service else node)
        if marked(node)
        else {"metadata": {"resourceVersion": node.metadata.resource_version}}
    )
    patch = merged(service, patch)
    patch["metadata"].setdefault("labels", {}).update(dict.fromkeys(labels))
    patch["metadata"].setdefault("annotations", {}).update(dict.fromkeys(annotations))
    return merged(patch, asked)


def _request_off(node: FreshNode) -> dict[str, Any]:
    """What asked for a repair; of a policy's own adapter only the note, the rest stays in
    sight.
    """
    if names.ANNOTATION_REPAIR not in node.annotations:
        return {}
    note: dict[str, Any] = {"metadata": {"annotations": {names.ANNOTATION_REPAIR: None}}}
    return merged(node_request_off(node, Policy(), ()), note)


def _by_command(node: FreshNode, annotation: str) -> bool:
    for entry in node.metadata.managed_fields:
        metadata = entry.fields_v1.get("f:metadata")
        owned = metadata.get("f:annotations") if isinstance(metadata, dict) else None
        if entry.manager == MANAGER and isinstance(owned, dict) and f"f:{annotation}" in owned:
            return True
    return False


def _what(node: FreshNode) -> str:
    if not marked(node):
        return "labels taken off"
    stays = cordon_stays(node)
    return f"mark taken off; it stays cordoned: {stays}" if stays else "mark taken off"


def left_by_people(node: NodeView) -> list[str]:
    """What stays on a cleaned node because people or others put it there."""
    found = [key for key in BY_PEOPLE if key in node.annotations]
    found += [names.LABEL_OPT_OUT] if names.LABEL_OPT_OUT in node.labels else []
    found += [f"label {key}={names.PAUSED_BY_US}" for key in unexplained_labels(node)]
    found += ["its cordon"] if node.spec.unschedulable else []
    return [f"{node.name}: left as others set it: {', '.join(found)}"] if found else []
