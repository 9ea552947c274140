"""What of `policy.repair` has the right type and makes no sense: steps nobody does, bad adapters.

Called by `rules.policy.reader`. Each problem is a path in the policy and what is wrong there, with
the remedy.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from rules.api.object_name import is_api_version, is_label_key, is_object_name
from rules.api.repair.moved import MAX_MOVED
from rules.api.selectors import parse_selector
from rules.policy.policy import Repair
from rules.repair.adapter import (
    REPAIR_CONDITIONS,
    Adapter,
    NodeReference,
    ObjectMatch,
    RepairAction,
    TakingBack,
    TargetRule,
    Witness,
)
from rules.repair.judging import leaves
from rules.repair.ladder import LADDER
from rules.repair.rights import makes_jobs
from rules.repair.shipped import ADAPTERS
from rules.repair.template import NAMES, OWN_NAMESPACE, mentions, template_problems

Problem = tuple[str, str]
_ADAPTER: Final = re.compile(r"[A-Z][A-Za-z0-9]{0,62}")
_RESOURCE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_KIND: Final = re.compile(r"[A-Z][A-Za-z0-9]{0,62}")
_FIELD: Final = re.compile(r"[A-Za-z0-9]+(\.[A-Za-z0-9]+){0,7}")
_PATTERN: Final = re.compile(r"[^{}]*(\{(name|namespace|)\}[^{}]*)+")
_OURS: Final = ("apiVersion", "kind")
_META: Final = ("annotations", "labels")
_SUBJECTS: Final = ("annotation", "label", "condition", "field")


def repair_problems(repair: Repair) -> Iterator[Problem]:
    """Every problem of the section."""
    for name, adapter in sorted(repair.adapters.items()):
        yield from _adapter(name, adapter, f"repair.adapters.{name[:80]}")
    for step, wanted in sorted(repair.steps.items()):
        path = f"repair.steps.{step}"
        if wanted.timeout_s <= 0:
            yield f"{path}.timeout", "must be longer than 0s"
        known = ADAPTERS.get(wanted.adapter) or repair.adapters.get(wanted.adapter)
        if known is None:
            names = ", ".join(sorted({*ADAPTERS, *repair.adapters}))
            yield f"{path}.adapter", f"{wanted.adapter!r:.80} is no adapter; known are {names}"
        elif step not in known.steps:
            can = ", ".join(each for each in LADDER if each in known.steps)
            message = f"{wanted.adapter} cannot ask for a {step}; it can for {can}"
            yield f"{path}.adapter", message
        else:
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


def _adapter(name: str, adapter: Adapter, path: str) -> Iterator[Problem]:
    if _ADAPTER.fullmatch(name) is None:
        yield path, "is wrong: an adapter's name is CamelCase and at most 63 letters and digits"
    if name in ADAPTERS:
        yield path, "is the name of an adapter that gpuward ships; choose another"
    if not adapter.steps:
        yield f"{path}.steps", f"names no step; known are {', '.join(LADDER)}"
    for step, action in sorted(adapter.steps.items()):
        yield from action_problems(action, f"{path}.steps.{step}")


def action_problems(action: RepairAction, path: str) -> Iterator[Problem]:
    """What is wrong with one action; those that are shipped have none."""
    ways = {
        "condition": bool(action.condition),
        "create": action.create is not None,
        "patch": action.patch is not None,
        "delete": action.delete,
    }
    chosen = [way for way, is_set in ways.items() if is_set]
    if len(chosen) != 1:
        said = "all of " + ", ".join(chosen) if chosen else "none"
        yield path, f"says {said}; write exactly one of {', '.join(ways)}"
        return
    yield from _way(chosen[0], action, path)
    if action.target is not None:
        yield from _target(action.target, chosen[0], f"{path}.target")
    if action.witness is not None:
        yield from _witness(action.witness, action, f"{path}.witness")
    listed = {"refuse": action.refuse, "failed": action.failed, "done": action.done}
    for key, matches in listed.items():
        for index, match in enumerate(matches):
            yield from _match(match, f"{path}.{key}[{index}]")
    for index, match in enumerate(action.withdraw.when):
        yield from _match(match, f"{path}.withdraw.when[{index}]")
    yield from _bodies(action, path)


def _witness(witness: Witness, action: RepairAction, path: str) -> Iterator[Problem]:
    """A word that says nothing about node or target is none."""
    if action.target is None:
        yield path, "is about a target; name one, or leave it out"
    yield from _target(witness.target, "patch", f"{path}.target")
    if not (witness.target.reference or witness.target.search):
        yield f"{path}.target", "says by reference or search which object it is"
    for index, match in enumerate(witness.shows):
        yield from _match(match, f"{path}.shows[{index}]")
    if not any(_names_node(text) for text in _words_of(witness)):
        message = "says nowhere that its node is this one ({node} in a field of its own)"
        yield f"{path}.shows", f"{message}; neither a reference nor the Node proves it"
    if not witness.agrees and action.create is None:
        yield f"{path}.agrees", "says nowhere that the target is meant"
    if witness.agrees and action.create is not None:
        yield f"{path}.agrees", "compares with an object that is yet to be made; leave it out"
    for target, theirs in witness.agrees.items():
        for field in (target, theirs):
            if _FIELD.fullmatch(field) is None:
                message = f"{field!r:.80} is no path with dots such as spec.consumerRef.name"
                yield f"{path}.agrees", message


def _words_of(witness: Witness) -> Iterator[object]:
    """What a witness must hold for its word to count: of itself, not of the Node."""
    yield from (match.value for match in witness.shows if match.on != "Node" and not match.negated)
    if witness.target.search is not None:
        yield from witness.target.search.match.values()


def _names_node(text: object) -> bool:
    return mentions(text, "node") or mentions(text, "nodeUID")


def _way(way: str, action: RepairAction, path: str) -> Iterator[Problem]:
    found = action.target is not None and bool(action.target.reference or action.target.search)
    match way:
        case "condition":
            if action.condition not in REPAIR_CONDITIONS:
                yield f"{path}.condition", f"is none of {', '.join(REPAIR_CONDITIONS)}"
            if action.target is not None:
                yield f"{path}.target", "is the Node for a condition; leave it out"
        case "create":
            if action.target is None or found:
                yield f"{path}.target", "says of which kind the new object is, and nothing more"
        case _:
            if action.target is not None and not found:
                message = (
                    "says by reference or search which object it is, or is left out: the Node"
                )
                yield f"{path}.target", message
            if way == "delete" and action.target is None:
                yield f"{path}.delete", "never deletes the Node itself; name a target"
    if action.copies and way != "create":
        yield f"{path}.copies", "is for create only"
    yield from _pod(action, path)
    for index, label in enumerate(action.clears):
        if not is_label_key(label):
            yield f"{path}.clears[{index}]", f"{label!r:.80} is no key of a label"
    if len(action.clears) > MAX_MOVED:
        yield f"{path}.clears", f"has more labels than the {MAX_MOVED} that a Node's record holds"
    if action.clears and way != "create":
        message = "is for create only: nothing else says when whoever was asked is through"
        yield f"{path}.clears", message
    elif action.clears and not action.done:
        yield f"{path}.done", "must say when who was moved off comes back (clears)"
    if action.overwrites and way != "patch":
        yield f"{path}.overwrites", "is for patch only"
    yield from _withdraw(action, way, f"{path}.withdraw")


def _pod(action: RepairAction, path: str) -> Iterator[Problem]:
    """A PodTemplate is for a Job in its own namespace."""
    if not action.pod:
        return
    rule, own = action.target, f"{{{OWN_NAMESPACE}}}"
    if not is_object_name(action.pod):
        yield f"{path}.pod", f"{action.pod!r:.80} is no name of a PodTemplate"
    if action.copies:
        yield f"{path}.pod", "and copies name two templates; leave one of them out"
    if rule is None or not makes_jobs((action,)) or rule.namespace != own:
        yield f"{path}.pod", f"is for a new Job (batch/v1, jobs) in namespace {own} only"


def _withdraw(action: RepairAction, way: str, path: str) -> Iterator[Problem]:
    """What would load and do nothing."""
    back = action.withdraw
    if way == "condition":
        if back != TakingBack():
            message = "is fixed for a condition: GPUNeedsReplace goes with the session, any other "
            yield path, f"{message}with the step; leave it out"
        return
    if way == "delete":
        if back.when or back.patch is not None or back.at == "Session":
            yield path, "does nothing after a deletion; leave it out"
        return
    if back.when and action.target is None:
        message = "is followed on a target only; leave it out for the Node, or name a target"
        yield f"{path}.when", message
    if back.patch is not None and way == "create":
        yield f"{path}.patch", "is for patch only: an object that was made is deleted"
    elif back.patch is not None and back.at == "Never" and not back.when:
        yield f"{path}.patch", "does nothing with at: Never; leave one of them out"


def _target(rule: TargetRule, way: str, path: str) -> Iterator[Problem]:
    version, anyone = rule.api_version, rule.api_version.endswith("/*")
    if not is_api_version(f"{version[:-1]}v1" if anyone else version):
        yield f"{path}.apiVersion", f"{version!r:.80} is none; write group/version or v1"
    elif anyone and way == "create":
        yield f"{path}.apiVersion", "must name the version of an object to create"
    elif version.startswith("gpuward.io/"):
        yield f"{path}.apiVersion", "is gpuward's own, which repairs nothing"
    if _RESOURCE.fullmatch(rule.resource) is None:
        yield (
            f"{path}.resource",
            "must be the plural in lower case, as kubectl api-resources has it",
        )
    elif (version, rule.resource) == ("v1", "nodes"):
        yield f"{path}.resource", "is the Node itself; leave the target out"
    if way == "create" and _KIND.fullmatch(rule.kind) is None:
        yield f"{path}.kind", "is needed to create an object; write it as in its manifest"
    own = f"{{{OWN_NAMESPACE}}}"
    if rule.namespace and rule.namespace != own and not is_object_name(rule.namespace):
        yield f"{path}.namespace", f"is no namespace; {own} is the remediator's own"
    if rule.name and way != "create":
        yield f"{path}.name", "is for create only"
    yield from template_problems(rule.name, f"{path}.name")
    if rule.reference and rule.search is not None:
        yield path, "has both reference and search; write one"
    yield from _found_by(rule, path)


def _found_by(rule: TargetRule, path: str) -> Iterator[Problem]:
    for index, reference in enumerate(rule.reference):
        yield from _reference(reference, f"{path}.reference[{index}]")
    if rule.reference and not any("{name}" in each.pattern for each in rule.reference):
        yield (
            f"{path}.reference",
            "says nowhere what the object is called; use {name} in a pattern",
        )
    if rule.search is None:
        return
    if not rule.search.match:
        yield f"{path}.search.match", "says nowhere which object belongs to the node"
    for key, words in (("match", rule.search.match), ("fields", rule.search.fields)):
        for field, template in words.items():
            here = f"{path}.search.{key}.{field[:80]}"
            if _FIELD.fullmatch(field) is None:
                yield here, "is no path with dots such as status.nodeName"
            yield from template_problems(template, here)
    try:
        parse_selector(rule.search.selector)
    except ValueError as error:
        yield f"{path}.search.selector", f"is wrong: {error}"


def _reference(reference: NodeReference, path: str) -> Iterator[Problem]:
    named = [bool(reference.annotation), bool(reference.label), reference.provider_id]
    if sum(named) != 1:
        yield path, "names exactly one of annotation, label and providerID: true"
    key = reference.annotation or reference.label
    if key and not is_label_key(key):
        yield path, f"{key!r:.80} is no key of an annotation or label"
    if _PATTERN.fullmatch(reference.pattern) is None or "}{" in reference.pattern:
        yield f"{path}.pattern", "must hold {name} or {namespace}, and {} for what nobody needs"


def _match(match: ObjectMatch, path: str) -> Iterator[Problem]:
    named = [each for each in _SUBJECTS if getattr(match, each)]
    if len(named) != 1:
        yield path, f"names exactly one of {', '.join(_SUBJECTS)}"
        return
    key = match.annotation or match.label
    if key and not is_label_key(key):
        yield path, f"{key!r:.80} is no key of an annotation or label"
    if match.reason and not match.condition:
        yield f"{path}.reason", "is of a condition; name one"
    if match.field and _FIELD.fullmatch(match.field) is None:
        yield f"{path}.field", "is no path with dots such as status.phase"
    yield from template_problems(match.value, f"{path}.value")


def _bodies(action: RepairAction, path: str) -> Iterator[Problem]:
    bodies = {"create": action.create, "patch": action.patch}
    for key, body in bodies.items():
        if body is None:
            continue
        yield from template_problems(body, f"{path}.{key}", NAMES)
        yield from _shape(body, f"{path}.{key}")
    back = action.withdraw.patch
    if back is not None:
        yield from template_problems(back, f"{path}.withdraw.patch", ())
        yield from _shape(back, f"{path}.withdraw.patch")
    elif action.patch is not None and action.withdraw.at != "Never":
        beyond = [p for p in leaves(action.patch) if p[0] != "metadata"]
        if beyond:
            message = f"must say how {'.'.join(beyond[0])[:80]} is taken back, or at: Never"
            yield f"{path}.withdraw", message


def _shape(body: dict[str, Any], path: str) -> Iterator[Problem]:
    if not body:
        yield path, "is empty"
    for key in _OURS:
        if key in body:
            yield f"{path}.{key}", "stands in the target; leave it out"
    metadata = body.get("metadata", {})
    for key in metadata if isinstance(metadata, dict) else ():
        if key not in _META:
            yield f"{path}.metadata.{str(key)[:80]}", "cannot be set; only annotations and labels"
    if "status" in body:
        yield f"{path}.status", "is the provider's word; leave it out"
