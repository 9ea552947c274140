"""Reads the object in a request: its type, its fields, its place.

Called by the API logic for every create, update and patch.  What is no object of the kind is a
400; unknown fields are dropped, warned about or refused as the caller asked.
"""

from __future__ import annotations

from typing import Any

from hack.sim.cluster.calls import WriteOptions
from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.statuses import bad_request
from hack.sim.cluster.store.kinds import Kind, Object
from hack.sim.cluster.validation.event_shapes import to_core

_BASES = ("kind", "apiVersion", "metadata")
_NO_OBJECT = "cannot be handled as a "


def decode_body(
    kind: Kind,
    body: Any,
    namespace: str | None,
    options: WriteOptions,
    known: Object | None = None,
) -> tuple[Object, Object]:
    """The body decoded for its kind: type, namespace and fields checked, metadata our own."""
    resource = kind.resource
    if not isinstance(body, dict):
        raise bad_request(
            f'{resource.kind} in version "{resource.version}" cannot be handled as a '
            f"{resource.kind}: the body is no JSON object"
        )
    _check_type(kind, body)
    metadata = body.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise bad_request("metadata: Invalid value: it is no JSON object")
    rest = {key: value for key, value in body.items() if key not in _BASES}
    obj: Object = {
        "kind": resource.kind,
        "apiVersion": resource.api_version,
        "metadata": metadata,
        **rest,
    }
    obj, unknown = kind.schema.complete(obj, known)
    if kind.respelled:
        obj = to_core(obj)
    if unknown:
        _report_unknown(kind, unknown, options)
    metadata = dict(obj.get("metadata") or {})
    obj["metadata"] = metadata
    if resource.namespaced:
        stated = metadata.setdefault("namespace", namespace or "")
        if namespace and stated and stated != namespace:
            raise bad_request(
                "the namespace of the provided object does not match the namespace sent on "
                "the request"
            )
        metadata["namespace"] = namespace or stated
    else:
        metadata.pop("namespace", None)
    return obj, metadata


def decode_patched(
    kind: Kind, patched: Object, namespace: str | None, options: WriteOptions, known: Object
) -> tuple[Object, Object]:
    """As `decode_body`; but what a patch turned into no object of a built-in kind is a 422."""
    try:
        return decode_body(kind, patched, namespace, options, known)
    except ApiError as error:
        if kind.custom or _NO_OBJECT not in error.message:
            raise
        why = error.message.partition(f"{kind.resource.kind}: ")[2]
        raise ApiError(
            422,
            "Invalid",
            f' "" is invalid: patch: Invalid value: {why}',
            {"causes": [{"reason": "FieldValueInvalid", "message": why, "field": "patch"}]},
        ) from None


def _check_type(kind: Kind, body: Object) -> None:
    resource = kind.resource
    stated_version, stated_kind = body.get("apiVersion"), body.get("kind")
    if kind.custom and not (stated_version and stated_kind):
        missing = "Kind" if not stated_kind else "apiVersion"
        raise bad_request(f"Object '{missing}' is missing in the body")
    if stated_kind and stated_kind != resource.kind:
        raise bad_request(
            f'{stated_kind} in version "{resource.version}" cannot be handled as a '
            f"{resource.kind}: the kind in the data does not match the expected kind"
        )
    if stated_version and stated_version != resource.api_version:
        raise bad_request(
            f"the API version in the data ({stated_version}) does not match the expected "
            f"API version ({resource.api_version})"
        )


def _report_unknown(kind: Kind, unknown: list[str], options: WriteOptions) -> None:
    texts = [f'unknown field "{path}"' for path in unknown]
    if options.field_validation == "Strict":
        resource = kind.resource
        raise bad_request(
            f'{resource.kind} in version "{resource.version}" cannot be handled as a '
            f"{resource.kind}: strict decoding error: {', '.join(texts)}"
        )
    if options.field_validation == "Warn":
        options.warnings.extend(texts)
