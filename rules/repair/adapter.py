"""Who is asked for a repair step, as data: four ways to ask, and the adapters that gpuward ships.

An adapter hands a step over to whatever does it in this cluster and does nothing itself. A policy
may add its own: a label of the Node, or a new object from a template. What was asked for a step
goes on record with it, and is followed and taken back by that record alone.

A request for a replacement stays with the session, since the node serves nobody and a slow
provider may still replace it; any other goes with its step. What is asked of a Machine or
NodeClaim is never taken back.
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
from rules.api.names import (
    CONDITION_NEEDS_REPLACE,
    CONDITION_NEEDS_RESET,
    CONDITION_NEEDS_RESTART,
)
from rules.catalog.data_file import data_file
from rules.catalog.reason import is_reason_code
from rules.repair.ladder import Step

REPAIR_CONDITIONS = (CONDITION_NEEDS_REPLACE, CONDITION_NEEDS_RESET, CONDITION_NEEDS_RESTART)
"""Every Node condition that asks for a repair."""


class AdapterPart(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename="camel",
    forbid_unknown_fields=True,
    omit_defaults=True,
    tag_field="way",
):
    """Base of every part of an adapter: no key unknown."""


class NodeCondition(AdapterPart, frozen=True, kw_only=True, tag=True):
    """Ask by a condition of the Node: health checks match type and status and nothing else, so
    each step has a type of its own.
    """

    condition: str


class NodeLabel(AdapterPart, frozen=True, kw_only=True, tag=True):
    """Ask by a label of the Node that is not there yet."""

    label: str
    value: str


class ConditionIs(AdapterPart, frozen=True, kw_only=True):
    """A condition that an object shows."""

    type: str
    status: str = "True"
    reason: str = ""
    """Only with this reason; empty: with any."""


class NewObject(AdapterPart, frozen=True, kw_only=True, tag=True):
    """Ask by an object that somebody follows."""

    object: dict[str, Any]
    """Template of its manifest; without a name it is called after session, step and attempt.
    Namespace `{namespace}` is the remediator's own."""
    resource: str
    """The plural in lower case, as in URLs."""
    done: ConditionIs | None = None
    """It is through. That proves nothing: what was cleared comes back, and the object, which does
    no more, is left for people to read."""
    failed: ConditionIs | None = None
    """It was given up."""
    pod: str = ""
    """Of a Job of our own: the PodTemplate in the remediator's namespace that its pod is made
    from; `object` is laid over it."""
    clears: tuple[str, ...] = ()
    """Labels of the Node that keep pods on its GPUs: those that are `true` become
    `paused-for-gpuward` before anybody is asked, and our own agent lets go of the driver. All
    comes back when the Job is through, and wherever the step or the session ends."""

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
    """Ask for another machine by the provider's object that names the node."""

    api_version: str
    """`group/*` is the version that the cluster prefers."""
    resource: str
    node_field: str
    """Path of the field in which the provider, and no kubelet, writes the Node's name."""
    node_annotation: str = ""
    """Annotation of the Node that has to hold the object's name, too: where one cluster keeps the
    machines of several, another one may have a node of the same name."""
    annotation: str = ""
    """Set on the object; empty: the object is deleted."""
    refuse: tuple[str, ...] = ()
    """Labels and annotations with which nobody is asked."""


RepairAction = NodeCondition | NodeLabel | NewObject | Replacement
"""How one step is asked for."""


class Adapter(AdapterPart, frozen=True, kw_only=True):
    """One way to ask for repairs: what it does for each step that it can hand over."""

    steps: dict[Step, RepairAction]


ADAPTERS: Final = msgspec.json.decode(data_file("adapters.json"), type=dict[str, Adapter])
"""Those that gpuward ships, by the name that a policy uses. What is not plain from the rows:

- ClusterAPI acts only where a MachineHealthCheck selects the Machine.
- Karpenter's NodeClaim is deleted, with UID and version.
- ResetGPUJob and RestartNodeJob are our own: a Job of one pod, by name on the node, so that the
  scheduler has no say and no taint is in its way. What it runs is a PodTemplate that is installed
  with it; facts reach the program through the pod's annotations. Our programs say with the
  statuses 1, 3 and 64 that they did not do it; a pod that is killed ends otherwise, and one that
  asked and was not answered ends with 2. Of a restart only that word counts, since a pod that the
  reboot itself ends has failed, too. A reset's 900 s are five minutes until the GPUs are free, the
  reset, and the pull of an image.
"""


class OwnAdapter(AdapterPart, frozen=True, kw_only=True):
    """How this cluster is asked for a step: by a label of the Node, or by a new object."""

    label: str = ""
    """`KEY=VALUE`, set on the Node and taken off again."""
    object: dict[str, Any] | None = None
    """Template of the object to create, as in its manifest; without a name it is called after
    session, step and attempt."""
    resource: str = ""
    """The plural of the object's kind in lower case, as in URLs."""
    done: str = ""
    """Condition of the object that says that it is through, `TYPE` or `TYPE=False`: it is left to
    be read then. It proves nothing."""
    failed: str = ""
    """Condition of the object that says that it was given up: the step has failed at once."""

    @property
    def action(self) -> RepairAction:
        """What is written for every step that names it."""
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
    """The condition that a policy names; None for "" ."""
    kind, sign, status = text.partition("=")
    return ConditionIs(type=kind, status=status if sign else "True") if text else None


def on_record(action: RepairAction, facts: RequestFacts) -> dict[str, Any]:
    """The action as it stands in `status.repair`; a label with its names put in, since causes
    change while it stands.
    """
    if isinstance(action, NodeLabel):
        value = filled_text(action.value, facts.values)
        action = msgspec.structs.replace(action, value=value)
    record: dict[str, Any] = msgspec.to_builtins(action)
    return record


def recorded(record: dict[str, Any] | None) -> RepairAction | None:
    """The action on record; None where there is none that this version can follow or take back."""
    try:
        action: RepairAction | None = msgspec.convert(record, RepairAction | None)
    except (msgspec.ValidationError, RecursionError):
        return None
    return action


NAMES: Final = ("node", "nodeUID", "session", "bootID", "gpuUUIDs", "reason", "step")
"""The closed set."""
OWN_NAMESPACE: Final = "namespace"
"""Only in a target's namespace: the one that the remediator lives in."""
MAX_DEPTH: Final = 16
MAX_VALUES: Final = 500
_NAME: Final = re.compile(r"\{([A-Za-z]*)\}")
_SAFE: Final = re.compile(r"[A-Za-z0-9.-]{1,128}")
_GPUS: Final = "{gpuUUIDs}"
_TEXTS: Final = frozenset({"annotations", "labels"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFacts:
    """What a request may say; nothing else of the node or its faults gets into a template."""

    node: str
    node_uid: str
    session: str
    boot_id: str
    gpu_uuids: tuple[str, ...]
    reason: str
    step: str

    @property
    def values(self) -> dict[str, str]:
        """By the names that templates use."""
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
        """The UUIDs that can be some."""
        return [uuid for uuid in self.gpu_uuids if _SAFE.fullmatch(uuid)]


def filled(template: Any, facts: RequestFacts) -> Any:
    """`template` with its names put in; a text that is `{gpuUUIDs}` alone becomes a list, but in
    annotations and labels, which hold nothing but text.
    """
    return _filled(template, facts.values, facts.gpus)


def mentions(template: Any, name: str) -> bool:
    """Whether a name is to be put in anywhere."""
    if isinstance(template, str):
        return name in _NAME.findall(template)
    if isinstance(template, dict):
        return any(mentions(value, name) for value in template.values())
    return isinstance(template, list | tuple) and any(mentions(each, name) for each in template)


def filled_text(template: str, values: Mapping[str, str]) -> str:
    """One text with names put in; names that `values` lacks stay as they are."""
    return _NAME.sub(lambda found: values.get(found[1], found[0]), template)


def _filled(template: Any, values: Mapping[str, str], gpus: list[str] | None) -> Any:
    """`gpus` None: a text stays one."""
    if isinstance(template, str):
        whole = template == _GPUS and gpus is not None
        return list(gpus or ()) if whole else filled_text(template, values)
    if isinstance(template, dict):
        return {
            key: _filled(value, values, None if key in _TEXTS else gpus)
            for key, value in template.items()
        }
    if isinstance(template, list | tuple):
        return [_filled(value, values, gpus) for value in template]
    return template


def template_problems(template: Any, path: str) -> Iterator[tuple[str, str]]:
    """Path and what is wrong there: unknown names, values that JSON has not, too much of it."""
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
            yield where, "is no number that JSON knows"
        elif value is not None and not isinstance(value, bool | int | float):
            yield where, f"is a {type(value).__name__} for YAML; write it in quotes"


def _unknown(text: str) -> Iterator[str]:
    for name in _NAME.findall(text):
        if name not in NAMES:
            names = ", ".join(f"{{{each}}}" for each in NAMES)
            yield f"names {{{name[:40]}}}, which nothing fills in; known are {names}"


def _safe(text: str) -> str:
    if _SAFE.fullmatch(text) or not text:
        return text
    return f"sha256-{hashlib.sha256(text.encode(errors='replace')).hexdigest()[:32]}"
