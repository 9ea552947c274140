"""What of `policy.repair` has the right type and makes no sense: steps nobody does, bad adapters.

Called by `rules.policy.reader`. Each problem is a path in the policy and what is wrong there, with
the remedy.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from rules.api.object_name import is_api_version, is_label_key, is_object_name
from rules.policy.policy import Repair
from rules.repair.adapter import (
    ADAPTERS,
    NodeCondition,
    NodeLabel,
    OwnAdapter,
    parse_condition,
)
from rules.repair.ladder import LADDER
from rules.repair.template import OWN_NAMESPACE, template_problems

Problem = tuple[str, str]
_ADAPTER: Final = re.compile(r"[A-Z][A-Za-z0-9]{0,62}")
_RESOURCE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_KIND: Final = re.compile(r"[A-Z][A-Za-z0-9]{0,62}")
_CONDITION: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_./]{0,315}[A-Za-z0-9])?")
_OBJECT: Final = "make its object by an adapter of your own (docs/interop/machines.md)"
_FOLLOWS: Final = "let it follow NodeConditions (docs/interop/machines.md)"
REMOVED_ADAPTERS: Final = {
    "Metal3": _FOLLOWS,
    "Gardener": _FOLLOWS,
    "SelfNodeRemediation": _OBJECT,
    "FenceAgentsRemediation": _OBJECT,
    "MachineDeletionRemediation": _FOLLOWS,
    "NVSentinel": _OBJECT,
    "OKE": "set its label by an adapter of your own (docs/interop/machines.md)",
    "HyperPod": "it replaces and reboots nodes itself, a label by hand asks for it "
    "(docs/interop/machines.md)",
    "GPUOperator": "start at RestartNode, or delete the driver's pod by hand",
}
"""Adapters of earlier versions, and what to do now."""
_META: Final = ("name", "namespace", "annotations", "labels")


def repair_problems(repair: Repair) -> Iterator[Problem]:
    """Every problem of the section."""
    for name, adapter in sorted(repair.adapters.items()):
        yield from _adapter(name, adapter, f"repair.adapters.{name[:80]}")
    for step, wanted in sorted(repair.steps.items()):
        path = f"repair.steps.{step}"
        if wanted.timeout_s <= 0:
            yield f"{path}.timeout", "must be longer than 0s"
        known = ADAPTERS.get(wanted.adapter)
        if known is None and wanted.adapter not in repair.adapters:
            names = ", ".join(sorted({*ADAPTERS, *repair.adapters}))
            instead = REMOVED_ADAPTERS.get(wanted.adapter)
            message = (
                f"is no adapter any more: {instead}"
                if instead
                else (f"is no adapter; known are {names}")
            )
            yield f"{path}.adapter", f"{wanted.adapter!r:.80} {message}"
        elif known is not None and step not in known.steps:
            can = ", ".join(each for each in LADDER if each in known.steps)
            message = f"{wanted.adapter} cannot ask for a {step}; it can for {can}"
            yield f"{path}.adapter", message


def asked_on_nodes(repair: Repair) -> frozenset[tuple[str, str]]:
    """What the chosen steps set on Nodes: kind (condition, annotation, label) and key."""
    found: set[tuple[str, str]] = set()
    for step, wanted in repair.steps.items():
        match repair.action(wanted.adapter, step):
            case NodeCondition(condition=condition):
                found.add(("condition", condition))
            case NodeLabel(label=label):
                found.add(("label", label))
    return frozenset(found)


def _adapter(name: str, adapter: OwnAdapter, path: str) -> Iterator[Problem]:
    if _ADAPTER.fullmatch(name) is None:
        yield path, "is wrong: an adapter's name is CamelCase and at most 63 letters and digits"
    if name in ADAPTERS:
        yield path, "is the name of an adapter that gpuward ships; choose another"
    if bool(adapter.label) is (adapter.object is not None):
        yield path, "is a label of the Node or a new object; write exactly one of label and object"
    elif adapter.object is None:
        yield from _label(adapter, path)
    else:
        yield from _object(adapter.object, f"{path}.object")
        if _RESOURCE.fullmatch(adapter.resource) is None:
            message = "must be the plural in lower case, as kubectl api-resources has it"
            yield f"{path}.resource", message
        for key, text in (("done", adapter.done), ("failed", adapter.failed)):
            wanted = parse_condition(text)
            if wanted is not None and not (
                _CONDITION.fullmatch(wanted.type) and wanted.status in {"True", "False"}
            ):
                message = f"{text!r:.80} is no condition; write TYPE, or TYPE=False"
                yield f"{path}.{key}", message


def _label(adapter: OwnAdapter, path: str) -> Iterator[Problem]:
    key, _, value = adapter.label.partition("=")
    if not is_label_key(key) or not value:
        yield f"{path}.label", f"{adapter.label!r:.80} is no label; write KEY=VALUE"
    elif key.partition("/")[0].endswith("gpuward.io"):
        yield f"{path}.label", "is gpuward's own, which repairs nothing"
    yield from template_problems(value, f"{path}.label")
    for name in ("resource", "done", "failed"):
        if getattr(adapter, name):
            yield f"{path}.{name}", "is of an object; leave it out"


def _object(body: dict[str, Any], path: str) -> Iterator[Problem]:
    version, kind = body.get("apiVersion"), body.get("kind")
    if not (isinstance(version, str) and is_api_version(version)):
        yield f"{path}.apiVersion", f"{version!r:.80} is none; write group/version or v1"
    elif version.startswith("gpuward.io/"):
        yield f"{path}.apiVersion", "is gpuward's own, which repairs nothing"
    if not (isinstance(kind, str) and _KIND.fullmatch(kind)):
        yield f"{path}.kind", "is needed to create an object; write it as in its manifest"
    metadata = body.get("metadata", {})
    if not isinstance(metadata, dict):
        yield f"{path}.metadata", "is no mapping"
        return
    for key in metadata:
        if key not in _META:
            message = "cannot be set; only name, namespace, annotations and labels"
            yield f"{path}.metadata.{str(key)[:80]}", message
    if not isinstance(metadata.get("name", ""), str):
        yield f"{path}.metadata.name", "is no name; leave it out for one that gpuward makes"
    namespace, own = metadata.get("namespace", ""), f"{{{OWN_NAMESPACE}}}"
    if namespace not in {"", own} and not (
        isinstance(namespace, str) and is_object_name(namespace)
    ):
        yield f"{path}.metadata.namespace", f"is no namespace; {own} is the remediator's own"
    if "status" in body:
        yield f"{path}.status", "is the provider's word; leave it out"
    named = {**body, "metadata": {k: v for k, v in metadata.items() if k != "namespace"}}
    yield from template_problems(named, path)
