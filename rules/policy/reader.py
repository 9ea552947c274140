"""Read a policy strictly: an unknown key or a wrong type is a problem with its path.

Called by the remediator at start and reload and by `policy check`. Takes the decoded YAML value,
not a file: reading files is the edge's work. Types are msgspec's business, one problem at a time;
what has the right type and makes no sense is listed as a unit. The JSON Schema, for editors and
pipelines that check `policy.yaml` before it is applied, is made from the same types.
"""

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from types import UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import msgspec

from rules.api import object_name
from rules.api.selectors import parse_selector
from rules.catalog import reasons, xid
from rules.catalog.reason import is_reason_code
from rules.policy import external, section
from rules.policy.external import Match
from rules.policy.policy import Policy, Repair, effective_view
from rules.policy.section import PositiveSeconds, Seconds
from rules.repair import ladder
from rules.repair.adapter import (
    ADAPTERS,
    OWN_NAMESPACE,
    NodeCondition,
    NodeLabel,
    OwnAdapter,
    parse_condition,
    template_problems,
)

_MAX_PROBLEMS: Final = 20
_UNKNOWN_KEY: Final = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_UNKNOWN_VALUE: Final = re.compile(r"Invalid enum value '(.*)'", re.DOTALL)
_UNKNOWN_XID: Final = re.compile(r"Xid\d{1,4}Unknown")


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyProblem:
    """One thing wrong with a policy."""

    path: str
    """`drain.fatalTimout`; "" for the file as a unit."""
    message: str
    document: str = ""
    """The name of the policy; "" in a file with one."""

    def sentence(self, source: str) -> str:
        """`policy.yaml: drain.fatalTimout is not a known key; did you mean fatalTimeout?`."""
        where = f"{self.path} " if self.path else ""
        where = f"policy {self.document[:80]}: {where}" if self.document else where
        return f"{source}: {where}{self.message}"


def load_policy(document: object) -> Policy | tuple[PolicyProblem, ...]:
    """The policy, or what is wrong with it. An empty document is the default."""
    if document is None:
        return Policy()
    if not isinstance(document, dict):
        return (PolicyProblem(path="", message="is no mapping; start with apiVersion and kind"),)
    try:
        policy: Policy = msgspec.convert(_spelled_out(document), Policy, dec_hook=_decode)
    except msgspec.ValidationError as error:
        return (_mistyped(str(error)),)
    found = [PolicyProblem(path=path, message=what) for path, what in _invalid_values(policy)]
    if (more := len(found) - _MAX_PROBLEMS) > 0:
        message = f"has {more} more problems; fix these and check it again"
        found[_MAX_PROBLEMS:] = [PolicyProblem(path="", message=message)]
    return tuple(found) or policy


def _spelled_out(document: dict[Any, Any]) -> dict[Any, Any]:
    """Return the document with repair.mode Off: YAML 1.1 reads an unquoted Off as false."""
    repair = document.get("repair")
    if isinstance(repair, dict) and repair.get("mode") is False:
        return {**document, "repair": {**repair, "mode": "Off"}}
    return document


def _decode(kind: type, value: object) -> object:
    if kind is PositiveSeconds:
        if (seconds := section.parse_duration(value)) <= 0:
            raise ValueError("must be longer than 0s")
        return PositiveSeconds(seconds)
    if kind is Seconds:
        return section.parse_duration(value)
    if kind is Match:
        return external.parse_match(value)
    raise NotImplementedError(f"{kind.__name__} in a policy")


def _mistyped(error: str) -> PolicyProblem:
    """Return msgspec's error with the full path and one suggestion."""
    what, _, place = error.partition(" - at `")
    path = place.removeprefix("key` in `").rstrip("`").removeprefix("$").removeprefix(".")
    known = values_at(policy_schema(), path)
    if found := _UNKNOWN_KEY.fullmatch(what):
        full = f"{path}.{found[1]}".removeprefix(".")
        message = f"is not a known key; {_nearest(found[1], known)}"
        return PolicyProblem(path=full, message=message)
    bad = _UNKNOWN_VALUE.fullmatch(what)
    suggestion = f"; {_nearest(bad[1], known)}" if bad and known else ""
    return PolicyProblem(path=path, message=f"is wrong: {_small(what)}{suggestion}")


def _small(what: str) -> str:
    """Return the text with a lower-case first letter, except for names such as GPUHealthy."""
    return what if what[1:2].isupper() else f"{what[:1].lower()}{what[1:]}"


def _nearest(key: str, known: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(key, known, n=1)
    return f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"


def _invalid_values(policy: Policy) -> Iterator[tuple[str, str]]:
    """Return path and message of values with a valid type that are still wrong."""
    checks = [
        ("repair.window", policy.repair.window_s > 0, "must be longer than 0s"),
        ("repair.steps", policy.repair.mode == "Off" or bool(policy.repair.steps),
         "names no step, so there is nothing to repair with; name one or set repair.mode: Off"),
        ("validate.timeout", policy.validate.timeout_s >= 1, "must be at least 1s"),
        ("validate.template", object_name.is_object_name(policy.validate.template),
         f"is wrong: {policy.validate.template!r:.80} is no name of a PodTemplate"),
    ]  # fmt: skip
    yield from ((path, message) for path, good, message in checks if not good)
    selectors = [("nodeSelector", policy.node_selector)]
    selectors += [(f"pods[{i}].selector", rule.selector) for i, rule in enumerate(policy.pods)]
    for path, text in selectors:
        try:
            parse_selector(text)
        except ValueError as error:
            yield path, f"is wrong: {error}"
    for path, keys in (("budget.per", policy.budget.per), ("repair.per", policy.repair.per)):
        for index, key in enumerate(keys):
            if not object_name.is_label_key(key):
                yield f"{path}[{index}]", f"is wrong: {key!r:.80} is no label key"
    yield from repair_problems(policy.repair)
    yield from external.external_problems(policy.external, asked_on_nodes(policy.repair))
    for reason in policy.reasons:
        if not is_reason_code(reason):
            yield f"reasons.{reason[:80]}", "is wrong: a reason is CamelCase"


def unknown_reasons(policy: Policy) -> tuple[str, ...]:
    """Return one note for each unknown reason, with the closest known one.

    It is no error, because a newer agent or a custom rules file may publish it.
    """
    known = {
        *reasons.REASONS,
        *reasons.RECOVERY_REASONS,
        *(row.reason().reason for row in xid.catalog().values()),
    }
    known |= {trigger.reason for trigger in policy.external}
    return tuple(
        f"reasons.{reason} is no reason of this version{_near_reason(reason, known)}; it changes "
        "nothing unless an agent publishes it"
        for reason in sorted(policy.reasons)
        if reason not in known and not _UNKNOWN_XID.fullmatch(reason)
    )


def _near_reason(reason: str, known: set[str]) -> str:
    numbered = [name for name in sorted(known) if name.startswith(reason)]
    near = numbered or difflib.get_close_matches(reason, sorted(known), n=1)
    return f", did you mean {near[0]}?" if near else ""


Problem = tuple[str, str]
_ADAPTER: Final = re.compile(r"[A-Z][A-Za-z0-9]{0,62}")
_RESOURCE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_KIND: Final = re.compile(r"[A-Z][A-Za-z0-9]{0,62}")
_CONDITION: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_./]{0,315}[A-Za-z0-9])?")
_META: Final = ("name", "namespace", "annotations", "labels")


def repair_problems(repair: Repair) -> Iterator[Problem]:
    """Return the problems of the section."""
    for name, adapter in sorted(repair.adapters.items()):
        yield from _own_adapter(name, adapter, f"repair.adapters.{name[:80]}")
    for step, wanted in sorted(repair.steps.items()):
        path = f"repair.steps.{step}"
        if wanted.timeout_s <= 0:
            yield f"{path}.timeout", "must be longer than 0s"
        known = ADAPTERS.get(wanted.adapter)
        if known is None and wanted.adapter not in repair.adapters:
            names = ", ".join(sorted({*ADAPTERS, *repair.adapters}))
            message = f"{wanted.adapter!r:.80} is no adapter; known are {names}"
            yield f"{path}.adapter", message
        elif known is not None and step not in known.steps:
            can = ", ".join(each for each in ladder.LADDER if each in known.steps)
            message = f"{wanted.adapter} cannot ask for a {step}; it can for {can}"
            yield f"{path}.adapter", message


def asked_on_nodes(repair: Repair) -> frozenset[tuple[str, str]]:
    """Return what the steps set on Nodes: kind (condition, annotation, label) and key."""
    found: set[tuple[str, str]] = set()
    for step, wanted in repair.steps.items():
        match repair.action(wanted.adapter, step):
            case NodeCondition(condition=condition):
                found.add(("condition", condition))
            case NodeLabel(label=label):
                found.add(("label", label))
    return frozenset(found)


def _own_adapter(name: str, adapter: OwnAdapter, path: str) -> Iterator[Problem]:
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
    if not object_name.is_label_key(key) or not value:
        yield f"{path}.label", f"{adapter.label!r:.80} is no label; write KEY=VALUE"
    elif key.partition("/")[0].endswith("gpuward.io"):
        yield f"{path}.label", "is gpuward's own, which repairs nothing"
    yield from template_problems(value, f"{path}.label")
    for name in ("resource", "done", "failed"):
        if getattr(adapter, name):
            yield f"{path}.{name}", "is of an object; leave it out"


def _object(body: dict[str, Any], path: str) -> Iterator[Problem]:
    version, kind = body.get("apiVersion"), body.get("kind")
    if not (isinstance(version, str) and object_name.is_api_version(version)):
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
        isinstance(namespace, str) and object_name.is_object_name(namespace)
    ):
        yield f"{path}.metadata.namespace", f"is no namespace; {own} is the remediator's own"
    if "status" in body:
        yield f"{path}.status", "is set by the provider; leave it out"
    named = {**body, "metadata": {k: v for k, v in metadata.items() if k != "namespace"}}
    yield from template_problems(named, path)


DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
DURATION: Final = r"^([0-9]+(\.[0-9]+)?(ms|d|h|m|s))+$"
"""What `parse_duration` reads: 10m, 24h, 1h30m, 7d."""
MATCH: Final = r"^(condition|annotation|label|taint) .+$"
"""What `parse_match` reads."""
_SCALARS: Final = {bool: "boolean", int: "integer", float: "number", str: "string"}

Schema = dict[str, Any]


def policy_schema() -> Schema:
    """Return the schema of the policy, with all defaults."""
    title = "gpuward QuarantinePolicy"
    defaults = msgspec.json.decode(msgspec.json.encode(effective_view(Policy())))
    return {"$schema": DIALECT, "title": title, **_section(Policy, defaults)}


def values_at(schema: Schema, path: str) -> tuple[str, ...]:
    """Return the valid keys or values at a path such as `pods[0].strategy`; () for any."""
    for step in re.findall(r"[^.\[\]]+|\[[^]]*\]", path):
        part = _part(schema)
        inside = part.get("items") or part.get("additionalProperties") or {}
        schema = inside if step.startswith("[") else part.get("properties", {}).get(step, {})
    part = _part(schema)
    named = part.get("propertyNames", {}).get("enum")
    return tuple(map(str, part.get("properties") or part.get("enum") or named or ()))


def _part(schema: Schema) -> Schema:
    """Return the schema without null."""
    return next((one for one in schema.get("anyOf", ()) if one.get("type") != "null"), schema)


def _section(kind: type[msgspec.Struct], defaults: Any) -> Schema:
    properties, required = {}, []
    for field in msgspec.structs.fields(kind):
        known = defaults.get(field.encode_name) if isinstance(defaults, dict) else None
        properties[field.encode_name] = _of(field.type, known)
        if field.required and known is None:
            required.append(field.encode_name)
    schema: Schema = {
        "type": "object",
        "description": " ".join((kind.__doc__ or "").split()),
        "properties": properties,
        "additionalProperties": False,
    }
    return schema | ({"required": required} if required else {})


def _of(kind: Any, default: Any = None) -> Schema:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _section(kind, default)
    schema = _plain(kind)
    return schema if default is None else {**schema, "default": default}


def _plain(kind: Any) -> Schema:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in {Union, UnionType}:
        return {"anyOf": [_of(each) for each in arguments]}
    if kind is Any:
        return {}
    if kind is type(None):
        return {"type": "null"}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin is tuple:
        return {"type": "array", "items": _of(arguments[0])}
    if origin is dict:
        names = {} if arguments[0] is str else {"propertyNames": _plain(arguments[0])}
        return {"type": "object", **names, "additionalProperties": _of(arguments[1])}
    if origin is Annotated:
        return {**_plain(arguments[0]), **_bounds(arguments[1])}
    if kind is Match:
        return {"type": "string", "pattern": MATCH}
    if issubclass(kind, Seconds):
        return {"type": "string", "pattern": DURATION}
    if issubclass(kind, StrEnum):
        return {"enum": [str(each) for each in kind]}
    return {"type": _SCALARS[kind]}


def _bounds(meta: msgspec.Meta) -> Schema:
    """Return the range of a number in JSON Schema terms."""
    terms = {"minimum": meta.ge, "exclusiveMinimum": meta.gt, "maximum": meta.le}
    return {name: value for name, value in terms.items() if value is not None}
