"""Which object a repair is asked through: from the Node to the one object, or why there is none.

Called by `rules.session.repair.asking`. A value of the Node (an annotation, a label, its provider
ID) becomes a part of a path only if an object can be called so; of a list exactly one must match.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from rules.api.nodes import NodeView
from rules.api.object_name import is_object_name
from rules.api.quarantine import RepairTarget
from rules.api.repair.writes import ObjectAddress, ObjectQuery
from rules.repair.adapter import NodeReference, RepairAction, TargetRule, TargetSearch
from rules.repair.matching import at, uid_of
from rules.repair.template import OWN_NAMESPACE, RequestFacts, filled_text

_PART: Final = re.compile(r"\{(name|namespace|)\}")
_MAX_VALUE: Final = 1024


def query_of(
    action: RepairAction,
    request: str,
    facts: RequestFacts,
    node: NodeView,
    *,
    own_namespace: str,
    beside: str = "",
) -> ObjectQuery | str:
    """What is to be read, or a clause that says why it cannot be known.

    `beside` is the namespace of the template that a new object copies.
    """
    rule = action.target
    if rule is None:
        return "it is the Node itself"
    if rule.search is not None or rule.reference:
        return query_by(rule, facts, node, own_namespace=own_namespace)
    name = filled_text(rule.name, facts.values) if rule.name else request
    return _named(_place(rule, own_namespace, beside), {"name": name}, "its name")


def query_by(
    rule: TargetRule, facts: RequestFacts, node: NodeView, *, own_namespace: str
) -> ObjectQuery | str:
    """What is to be read to find an object that is there, by search or reference, or a clause."""
    address = _place(rule, own_namespace)
    if rule.search is None:
        return _referred(rule, address, node)
    fields = {k: filled_text(v, facts.values) for k, v in rule.search.fields.items()}
    return ObjectQuery(
        address=address, selector=rule.search.selector, fields=tuple(sorted(fields.items()))
    )


def _place(rule: TargetRule, own_namespace: str, beside: str = "") -> ObjectAddress:
    namespace = filled_text(rule.namespace, {OWN_NAMESPACE: own_namespace}) or beside
    return ObjectAddress(api_version=rule.api_version, resource=rule.resource, namespace=namespace)


def query_for(target: RepairTarget) -> ObjectQuery:
    """The object on record, read by its name."""
    return ObjectQuery(address=address_of(target))


def address_of(target: RepairTarget) -> ObjectAddress:
    """Where the object on record is."""
    return ObjectAddress(
        api_version=target.api_version,
        resource=target.resource,
        namespace=target.namespace,
        name=target.name,
    )


def target_of(address: ObjectAddress, found: Mapping[str, Any] | None = None) -> RepairTarget:
    """What goes on record of an object: as it was found, or as it is going to be called."""
    meta = found or {}
    name, namespace = at(meta, "metadata.name"), at(meta, "metadata.namespace")
    return RepairTarget(
        api_version=address.api_version,
        resource=address.resource,
        namespace=namespace if isinstance(namespace, str) else address.namespace,
        name=name if isinstance(name, str) else address.name,
        uid=uid_of(meta)[:64],
    )


def the_one(
    rule: TargetRule, facts: RequestFacts, found: tuple[Mapping[str, Any], ...]
) -> Mapping[str, Any] | str:
    """The one object of a list that matches, or why there is not exactly one."""
    search = rule.search or TargetSearch()
    wanted, values = search.match, facts.values
    matching = [
        json
        for json in found
        if (not search.namespaces or at(json, "metadata.namespace") in search.namespaces)
        and (not search.controller or _controller(json) == search.controller)
        and all(at(json, path) == filled_text(text, values) for path, text in wanted.items())
    ]
    if len(matching) != 1:
        count = "none" if not matching else f"{len(matching)}"
        verb = "belong" if len(matching) > 1 else "belongs"
        return f"{count} of the {rule.resource} {verb} to the node"
    name, namespace = at(matching[0], "metadata.name"), at(matching[0], "metadata.namespace")
    good = isinstance(name, str) and is_object_name(name) and uid_of(matching[0])
    if not good or (namespace is not None and not _is_name(namespace)):
        return f"the one of the {rule.resource} that belongs to the node has no usable name"
    return matching[0]


def _controller(json: Mapping[str, Any]) -> Any:
    """The kind of the object's controlling owner; None where it has none."""
    owners = at(json, "metadata.ownerReferences")
    references = owners if isinstance(owners, list) else []
    return next((at(o, "kind") for o in references if at(o, "controller") is True), None)


def _referred(rule: TargetRule, address: ObjectAddress, node: NodeView) -> ObjectQuery | str:
    parts: dict[str, str] = {}
    for reference in rule.reference:
        text, words = _said(reference, node)
        if not text:
            return f"the Node has no {words}"
        found = _parted(reference.pattern, text[:_MAX_VALUE])
        if found is None:
            return f"the Node's {words} does not read {reference.pattern}"
        parts |= found
    return _named(address, parts, f"what the Node says of its {rule.resource}")


def _named(address: ObjectAddress, parts: Mapping[str, str], words: str) -> ObjectQuery | str:
    name, namespace = parts.get("name", ""), parts.get("namespace", address.namespace)
    if not is_object_name(name) or (namespace and not is_object_name(namespace)):
        return f"{words} is no name that an object can have"
    return ObjectQuery(
        address=ObjectAddress(
            api_version=address.api_version,
            resource=address.resource,
            namespace=namespace,
            name=name,
        )
    )


def _said(reference: NodeReference, node: NodeView) -> tuple[str, str]:
    if reference.annotation:
        text = node.annotations.get(reference.annotation, "")
        return text, f"annotation {reference.annotation}"
    if reference.label:
        return node.labels.get(reference.label, ""), f"label {reference.label}"
    return node.spec.provider_id, "providerID"


def _parted(pattern: str, text: str) -> dict[str, str] | None:
    """The named parts of `text`; None where it does not have the pattern's form. A part is
    anything without a slash, as long as possible. No regular expression: on text of others one
    with many parts takes exponential time.
    """
    forms, segments = pattern.split("/"), text.split("/")
    if len(forms) != len(segments):
        return None
    found: dict[str, str] = {}
    for form, segment in zip(forms, segments, strict=True):
        parts = _parts_of(_PART.split(form), segment)
        if parts is None:
            return None
        found |= parts
    return found


def _parts_of(pieces: list[str], text: str) -> dict[str, str] | None:
    """The parts of one segment: `pieces` are literals and names in turn. Each literal is looked
    for from the right, which makes the parts before it as long as possible.
    """
    *literals, last = pieces[::2]
    names = pieces[1::2]
    if not text.endswith(last) or (not names and text != last):
        return None
    found: dict[str, str] = {}
    end = len(text) - len(last)
    for index in reversed(range(len(names))):
        literal = literals[index]
        at = text.rfind(literal, 0, max(end - 1, 0)) if index else 0
        begins = at + len(literal)
        if at < 0 or begins >= end or not text.startswith(literal, at):
            return None
        if names[index]:
            found.setdefault(names[index], text[begins:end])
        end = at
    return found


def _is_name(value: object) -> bool:
    return isinstance(value, str) and is_object_name(value)
