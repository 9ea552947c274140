"""Objects of the replayed cluster: nodes as they were before gpuward, and writes applied to
them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from rules.api.mark import marked, unmark_patch
from rules.api.names import ANNOTATION_SESSION, LABEL_QUARANTINE
from rules.api.nodes import AgentPod, NodeView
from rules.text.merge_patch import merged


def agent_of(node: str) -> AgentPod:
    """The agent of a node, which is Ready all the time."""
    return AgentPod(uid=f"agent-{node}", node=node, ready=True, ready_changed_at=0.0)


def as_it_was(raw: dict[str, Any]) -> NodeView:
    """The node before gpuward did anything: Ready, of its first boot, without our mark."""
    raw["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    raw["status"]["nodeInfo"] = {"bootID": "boot-0"}
    node = msgspec.convert(raw, NodeView)
    if marked(node):
        node = patched(node, unmark_patch(node), 2)
    labels = {k: v for k, v in node.labels.items() if k != LABEL_QUARANTINE}
    notes = {k: v for k, v in node.annotations.items() if k != ANNOTATION_SESSION}
    meta = msgspec.structs.replace(node.metadata, labels=labels, annotations=notes)
    return msgspec.structs.replace(node, metadata=meta)


def patched(node: NodeView, patch: Mapping[str, Any], version: int) -> NodeView:
    """The node after a merge patch; there is no other writer, so no version can be stale."""
    stored = merged(msgspec.to_builtins(node), json.loads(json.dumps(patch)))
    stored["metadata"]["resourceVersion"] = str(version)
    return msgspec.convert(stored, NodeView)
