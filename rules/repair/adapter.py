"""Repair adapters as data: four ways to request a repair step, and the shipped adapters.

An adapter only hands a step over to the system that performs it. A policy may add its own: a label
of the Node, or a new object from a template. The request is recorded with the step, and is
followed and withdrawn by that record alone.

A request for a replacement stays with the session, since the node is out of service and a slow
provider may still replace it. Any other request ends with its step. A request to a Machine or
NodeClaim is never withdrawn.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from rules.api import object_name
from rules.api.names import CONDITION_NEEDS_REPLACE, CONDITION_NEEDS_RESET, CONDITION_NEEDS_RESTART
from rules.catalog.data_file import data_file
from rules.catalog.reason import is_reason_code
from rules.repair.ladder import Step

REPAIR_CONDITIONS = (CONDITION_NEEDS_REPLACE, CONDITION_NEEDS_RESET, CONDITION_NEEDS_RESTART)
"""All Node conditions that request a repair."""


class AdapterPart(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename="camel",
    forbid_unknown_fields=True,
    omit_defaults=True,
    tag_field="way",
):
    """Base of every part of an adapter; rejects unknown keys."""


class NodeCondition(AdapterPart, frozen=True, kw_only=True, tag=True):
    """Request by a condition of the Node. Health checks match only type and status, so each step
    has its own type.
    """

    condition: str


class NodeLabel(AdapterPart, frozen=True, kw_only=True, tag=True):
    """Request by a new label of the Node."""

    label: str
    value: str


class ConditionIs(AdapterPart, frozen=True, kw_only=True):
    """A condition of an object."""

    type: str
    status: str = "True"
    reason: str = ""
    """Required reason; empty: any."""


class NewObject(AdapterPart, frozen=True, kw_only=True, tag=True):
    """Request by a new object that another system acts on."""

    object: dict[str, Any]
    """Template of its manifest; the default name is made of session, step and attempt. Namespace
    `{namespace}` is the remediator's own."""
    resource: str
    """The plural in lower case, as in URLs."""
    done: ConditionIs | None = None
    """Its condition when done. It proves no repair; cleared labels are restored, and the finished
    object stays for inspection."""
    failed: ConditionIs | None = None
    """Its condition when failed."""
    pod: str = ""
    """For a Job of gpuward: the PodTemplate in the remediator's namespace for its pod; `object` is
    merged over it."""
    clears: tuple[str, ...] = ()
    """Labels of the Node that keep pods on its GPUs (`rules.repair.operands`): those with `true`
    become `paused-for-gpuward` before the request, and gpuward-agent releases the driver. They are
    restored when the Job is done, or when the step or the session ends."""

    @property
    def api_version(self) -> str:
        """Group and version."""
        return str(self.object["apiVersion"])

    @property
    def meta(self) -> dict[str, Any]:
        """The manifest's metadata."""
        found: dict[str, Any] = self.object.get("metadata") or {}
        return found


class Replacement(AdapterPart, frozen=True, kw_only=True, tag=True):
    """Request another machine by the provider's object that names the node."""

    api_version: str
    """`group/*` is the version that the cluster prefers."""
    resource: str
    node_field: str
    """Path of the field in which the provider, and no kubelet, writes the Node's name."""
    node_annotation: str = ""
    """Annotation of the Node that must have the object's name, too: a management cluster may have
    nodes of the same name from several clusters."""
    annotation: str = ""
    """Annotation to set on the object; empty: the object is deleted."""
    refuse: tuple[str, ...] = ()
    """Labels and annotations of the object that forbid a request."""


RepairAction = NodeCondition | NodeLabel | NewObject | Replacement
"""How one step is requested."""


class Adapter(AdapterPart, frozen=True, kw_only=True):
    """One way to request repairs: its action for each step that it supports."""

    steps: dict[Step, RepairAction]


ADAPTERS: Final = msgspec.json.decode(data_file("adapters.json"), type=dict[str, Adapter])
"""The shipped adapters by the name that a policy uses. Notes:

- ClusterAPI acts only if a MachineHealthCheck selects the Machine.
- Karpenter's NodeClaim is deleted with UID and resourceVersion as preconditions.
- ResetGPUJob and RestartNodeJob are gpuward's own: a Job of one pod with `nodeName`, which
bypasses
  scheduler and taints. Its PodTemplate is installed with it, and facts reach the program through
  the pod's annotations. The programs exit with status 1, 3 or 64 if they did nothing, and with 2
  if their request got no answer; a killed pod ends otherwise. A restart fails only by these
  statuses, since the reboot itself makes its pod fail. The 900 s of a reset are five minutes until
  the GPUs are free, the reset, and the pull of an image.
"""


class OwnAdapter(AdapterPart, frozen=True, kw_only=True):
    """An adapter that a policy defines: a label of the Node, or a new object."""

    label: str = ""
    """`KEY=VALUE`, set on the Node and removed again."""
    object: dict[str, Any] | None = None
    """Template of the object's manifest; the default name is made of session, step and attempt."""
    resource: str = ""
    """The plural of the object's kind in lower case, as in URLs."""
    done: str = ""
    """Condition of the object when done, `TYPE` or `TYPE=False`; the object then stays for
    inspection. It proves no repair."""
    failed: str = ""
    """Condition of the object when failed: the step then fails at once."""

    @property
    def action(self) -> RepairAction:
        """The action for every step that uses this adapter."""
        if self.object is None:
            key, _, value = self.label.partition("=")
            return NodeLabel(label=key, value=value)
        return NewObject(
            object=self.object,
            resource=self.resource,
            done=parse_condition(self.done),
            failed=parse_condition(self.failed),
        )


def parse_condition(text: str) -> ConditionIs | None:
    """Parse a condition in a policy; None for ""."""
    kind, sign, status = text.partition("=")
    return ConditionIs(type=kind, status=status if sign else "True") if text else None


def on_record(action: RepairAction, facts: RequestFacts) -> dict[str, Any]:
    """Return the action as recorded in `status.repair`; a label with placeholders filled in, since
    causes may change later.
    """
    if isinstance(action, NodeLabel):
        value = filled_text(action.value, facts.values)
        action = msgspec.structs.replace(action, value=value)
    record: dict[str, Any] = msgspec.to_builtins(action)
    return record


def recorded(record: dict[str, Any] | None) -> RepairAction | None:
    """Return the recorded action; None if this version cannot follow or withdraw it."""
    try:
        action: RepairAction | None = msgspec.convert(record, RepairAction | None)
    except (msgspec.ValidationError, RecursionError):
        return None
    return action


NAMES: Final = ("node", "nodeUID", "session", "bootID", "gpuUUIDs", "reason", "step")
"""All placeholders of templates."""
OWN_NAMESPACE: Final = "namespace"
"""Placeholder for the remediator's namespace, only in a target's namespace."""
MAX_DEPTH: Final = 16
MAX_VALUES: Final = 500
_NAME: Final = re.compile(r"\{([A-Za-z]*)\}")
_SAFE: Final = re.compile(r"[A-Za-z0-9.-]{1,128}")
_GPUS: Final = "{gpuUUIDs}"
_TEXTS: Final = frozenset({"annotations", "labels"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFacts:
    """The values for templates; no other data of the node or its faults gets into a request."""

    node: str
    node_uid: str
    session: str
    boot_id: str
    gpu_uuids: tuple[str, ...]
    reason: str
    step: str

    @property
    def values(self) -> dict[str, str]:
        """The values by placeholder."""
        return {
            "node": self.node if object_name.is_object_name(self.node) else _safe(self.node),
            "nodeUID": _safe(self.node_uid),
            "session": self.session
            if object_name.is_object_name(self.session)
            else _safe(self.session),
            "bootID": _safe(self.boot_id),
            "gpuUUIDs": ",".join(self.gpus),
            "reason": self.reason if is_reason_code(self.reason) else "Unknown",
            "step": _safe(self.step),
        }

    @property
    def gpus(self) -> list[str]:
        """The UUIDs with a valid format."""
        return [uuid for uuid in self.gpu_uuids if _SAFE.fullmatch(uuid)]


def filled(template: Any, facts: RequestFacts) -> Any:
    """Return `template` with its placeholders filled in.

    A text that is only `{gpuUUIDs}` becomes a list, except in annotations and labels.
    """
    return _filled(template, facts.values, facts.gpus)


def mentions(template: Any, name: str) -> bool:
    """Return whether the template has this placeholder."""
    if isinstance(template, str):
        return name in _NAME.findall(template)
    if isinstance(template, dict):
        return any(mentions(value, name) for value in template.values())
    return isinstance(template, list | tuple) and any(mentions(each, name) for each in template)


def filled_text(template: str, values: Mapping[str, str]) -> str:
    """Return one text with placeholders filled in; unknown ones stay."""
    return _NAME.sub(lambda found: values.get(found[1], found[0]), template)


def _filled(template: Any, values: Mapping[str, str], gpus: list[str] | None) -> Any:
    """Fill in placeholders; `gpus` None: a text never becomes a list."""
    if isinstance(template, str):
        is_list = template == _GPUS and gpus is not None
        return list(gpus or ()) if is_list else filled_text(template, values)
    if isinstance(template, dict):
        return {
            key: _filled(value, values, None if key in _TEXTS else gpus)
            for key, value in template.items()
        }
    if isinstance(template, list | tuple):
        return [_filled(value, values, gpus) for value in template]
    return template


def template_problems(template: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield path and problem: unknown placeholders, values without JSON form, excessive size."""
    count = 0
    todo = [(template, path, 0)]
    while todo:
        value, where, depth = todo.pop()
        count += 1
        if depth > MAX_DEPTH or count > MAX_VALUES:
            most = f"{MAX_DEPTH} levels and {MAX_VALUES} values"
            yield where[:200], f"is too large: a template has at most {most}"
            return
        if isinstance(value, str):
            yield from ((where, why) for why in _unknown(value))
        elif isinstance(value, dict):
            for key, inner in value.items():
                if not isinstance(key, str):
                    yield where, f"has the key {key!r:.40}; write it in quotes"
                    continue
                todo.append((inner, f"{where}.{key}", depth + 1))
        elif isinstance(value, list | tuple):
            todo += [(inner, f"{where}[{i}]", depth + 1) for i, inner in enumerate(value)]
        elif isinstance(value, float) and not math.isfinite(value):
            yield where, "is no valid JSON number"
        elif value is not None and not isinstance(value, bool | int | float):
            yield where, f"is a {type(value).__name__} for YAML; write it in quotes"


def _unknown(text: str) -> Iterator[str]:
    for name in _NAME.findall(text):
        if name not in NAMES:
            names = ", ".join(f"{{{each}}}" for each in NAMES)
            yield f"names {{{name[:40]}}}, an unknown placeholder; known are {names}"


def _safe(text: str) -> str:
    if _SAFE.fullmatch(text) or not text:
        return text
    return f"sha256-{hashlib.sha256(text.encode(errors='replace')).hexdigest()[:32]}"
