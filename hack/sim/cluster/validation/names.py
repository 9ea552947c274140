"""The syntax of names, label keys and values, and of metadata as a whole.

Called on every create and update.  Rules and wording follow API machinery validation.
"""

from __future__ import annotations

import re
from typing import Any

from hack.sim.cluster.resource import Resource
from hack.sim.cluster.statuses import (
    FieldProblem,
    forbidden_field,
    invalid,
    required,
    too_long,
)

Object = dict[str, Any]

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_QUALIFIED = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE = r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?"
_DNS_LABEL_NAMES = frozenset({"namespaces", "services"})
_PATH_SEGMENT_GROUPS = frozenset({"rbac.authorization.k8s.io"})
_ANNOTATIONS_LIMIT = 256 * 1024

_DNS_LABEL = re.compile(_LABEL)
_DNS_SUBDOMAIN = re.compile(_SUBDOMAIN)
_QUALIFIED_NAME = re.compile(_QUALIFIED)
_LABEL_VALUE = re.compile(_VALUE)


def name_problem(resource: Resource, name: str) -> str | None:
    """What is wrong with an object's name."""
    if resource.group in _PATH_SEGMENT_GROUPS:
        if name in {".", ".."} or "/" in name or "%" in name:
            return "may not be '.' or '..' nor contain '/' or '%'"
        return None
    if resource.plural in _DNS_LABEL_NAMES and not resource.group:
        return dns_label_problem(name)
    return dns_subdomain_problem(name)


def dns_label_problem(text: str) -> str | None:
    """What is wrong with an RFC 1123 label."""
    if len(text) > 63:
        return "must be no more than 63 bytes"
    if not _DNS_LABEL.fullmatch(text):
        return (
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or "
            "'-', and must start and end with an alphanumeric character (e.g. 'my-name',  or "
            f"'123-abc', regex used for validation is '{_LABEL}')"
        )
    return None


def dns_subdomain_problem(text: str) -> str | None:
    """What is wrong with an RFC 1123 subdomain."""
    if len(text) > 253:
        return "must be no more than 253 bytes"
    if not _DNS_SUBDOMAIN.fullmatch(text):
        return (
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, "
            "'-' or '.', and must start and end with an alphanumeric character (e.g. "
            f"'example.com', regex used for validation is '{_SUBDOMAIN}')"
        )
    return None


def qualified_name_problem(text: str) -> str | None:
    """What is wrong with a label or annotation key, a taint key, a finalizer."""
    prefix, slash, name = text.rpartition("/")
    if slash and (not prefix or dns_subdomain_problem(prefix)):
        return (
            f"prefix part {dns_subdomain_problem(prefix)}"
            if prefix
            else "prefix part must be non-empty"
        )
    if not name:
        return "name part must be non-empty"
    if len(name) > 63:
        return "name part must be no more than 63 bytes"
    if not _QUALIFIED_NAME.fullmatch(name):
        return (
            "name part must consist of alphanumeric characters, '-', '_' or '.', and must start "
            "and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or "
            f"'123-abc', regex used for validation is '{_QUALIFIED}')"
        )
    return None


def label_value_problem(text: str) -> str | None:
    """What is wrong with a label or taint value."""
    if len(text) > 63:
        return "must be no more than 63 bytes"
    if not _LABEL_VALUE.fullmatch(text):
        return (
            "a valid label must be an empty string or consist of alphanumeric characters, '-', "
            "'_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  "
            f"or 'my_value',  or '12345', regex used for validation is '{_VALUE}')"
        )
    return None


def label_problems(labels: dict[str, str], path: str) -> list[FieldProblem]:
    """Everything wrong with a map of labels."""
    problems = []
    for key, value in labels.items():
        if why := qualified_name_problem(key):
            problems.append(invalid(path, key, why))
        if why := label_value_problem(value):
            problems.append(invalid(path, value, why))
    return problems


def metadata_problems(resource: Resource, metadata: Object) -> list[FieldProblem]:
    """Everything wrong with an object's metadata by itself."""
    problems = []
    name = metadata.get("name") or ""
    if not name:
        problems.append(required("metadata.name", "name or generateName is required"))
    elif why := name_problem(resource, name):
        problems.append(invalid("metadata.name", name, why))
    problems += label_problems(metadata.get("labels") or {}, "metadata.labels")
    annotations: dict[str, str] = metadata.get("annotations") or {}
    for key in annotations:
        if why := qualified_name_problem(key.lower()):
            problems.append(invalid("metadata.annotations", key, why))
    size = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
    if size > _ANNOTATIONS_LIMIT:
        problems.append(too_long("metadata.annotations", _ANNOTATIONS_LIMIT))
    for finalizer in metadata.get("finalizers") or []:
        if why := qualified_name_problem(finalizer):
            problems.append(invalid("metadata.finalizers", finalizer, why))
    problems += _owner_problems(metadata.get("ownerReferences") or [])
    return problems


def _owner_problems(owners: list[Object]) -> list[FieldProblem]:
    problems = []
    controllers = 0
    for index, owner in enumerate(owners):
        path = f"metadata.ownerReferences[{index}]"
        problems += [
            invalid(f"{path}.{field}", "", "must not be empty")
            for field in ("apiVersion", "kind", "name", "uid")
            if not owner.get(field)
        ]
        controllers += bool(owner.get("controller"))
    if controllers > 1:
        problems.append(
            invalid(
                "metadata.ownerReferences",
                owners,
                "Only one reference can have Controller set to true",
            )
        )
    return problems


def metadata_change_problems(old: Object, new: Object) -> list[FieldProblem]:
    """What an update must not change."""
    problems = [
        invalid(f"metadata.{field}", new[field], "field is immutable")
        for field in (
            "name",
            "namespace",
            "uid",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
        )
        if new.get(field) != old.get(field)
    ]
    if old.get("deletionTimestamp"):
        known = old.get("finalizers") or []
        added = [one for one in new.get("finalizers") or [] if one not in known]
        if added:
            listed = ", ".join(f'"{one}"' for one in added)
            problems.append(
                forbidden_field(
                    "metadata.finalizers",
                    "no new finalizers can be added if the object is being deleted, found new "
                    f"finalizers []string{{{listed}}}",
                )
            )
    return problems
