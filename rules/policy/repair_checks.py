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
from rules.repair.adapter import OwnAdapter, RepairAction, parse_condition
from rules.repair.ladder import LADDER
from rules.repair.shipped import ADAPTERS
from rules.repair.template import OWN_NAMESPACE, template_problems

Problem = tuple[str, str]
_ADAPTER: Final = re.compile(r"[A-Z][A-Za-z0-9]{0,62}")
_RESOURCE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_KIND: Final = re.compile(r"[A-Z][A-Za-z0-9]{0,62}")
_CONDITION: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_./]{0,315}[A-Za-z0-9])?")
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
            yield f"{path}.adapter", f"{wanted.adapter!r:.80} is no adapter; known are {names}"
        elif known is not None and step not in known.steps:
            can = ", ".join(each for each in LADDER if each in known.steps)
            message = f"{wanted.adapter} cannot ask for a {step}; it can for {can}"
            yield f"{path}.adapter", message
        elif known is not None:
            yield from _template(wanted.template, wanted.adapter, known.steps[step], path)


def asked_on_nodes(repair: Repair) -> frozenset[tuple[str, str]]:
    """What the chosen steps set on Nodes: kind (condition, annotation, label) and key."""
    actions = (repair.action(wanted.adapter, step) for step, wanted in repair.steps.items())
    return frozenset(asked for action in actions if action for asked in _asked(action))


def _asked(action: RepairAction) -> Iterator[tuple[str, str]]:
    target = action.target
    if target is not None and (target.api_version, target.resource) != ("v1", "nodes"):
        return
    if action.condition:
        yield "condition", action.condition
    meta = (action.patch or {}).get("metadata")
    for kind, section in (("annotation", "annotations"), ("label", "labels")):
        keys = meta.get(section) if isinstance(meta, dict) else None
        yield from ((kind, str(key)) for key in (keys if isinstance(keys, dict) else ()))


def _template(template: str, adapter: str, action: RepairAction, path: str) -> Iterator[Problem]:
    if not action.copies:
        if template:
            yield f"{path}.template", f"{adapter} copies no template; leave it out"
        return
    namespace, _, name = template.partition("/")
    if not (is_object_name(namespace) and is_object_name(name)):
        message = f"names the {action.copies} to copy as namespace/name; {template!r:.80} does not"
        yield f"{path}.template", message


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
            kind, status = parse_condition(text)
            if text and not (_CONDITION.fullmatch(kind) and status in {"True", "False"}):
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
