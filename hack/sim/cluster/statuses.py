"""The refusals of the API in its own words.

Called by the API logic.  Codes, reasons, details and wording follow the API machinery's error
constructors, because clients and people compare them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.resource import Resource

MODIFIED = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """One invalid field: its path, the machine reason and the sentence after the path."""

    field: str
    reason: str
    message: str


def required(field: str, message: str = "") -> FieldProblem:
    """The field is missing."""
    text = "Required value" + (f": {message}" if message else "")
    return FieldProblem(field, "FieldValueRequired", text)


def invalid(field: str, value: Any, message: str) -> FieldProblem:
    """The field's value breaks a rule."""
    shown = f'"{value}"' if isinstance(value, str) else _shown(value)
    return FieldProblem(field, "FieldValueInvalid", f"Invalid value: {shown}: {message}")


def forbidden_field(field: str, message: str) -> FieldProblem:
    """The field must not be there or must not change."""
    return FieldProblem(field, "FieldValueForbidden", f"Forbidden: {message}")


def duplicate(field: str, value: Any) -> FieldProblem:
    """The value occurs twice in a list that is a set or a map."""
    shown = f'"{value}"' if isinstance(value, str) else _shown(value)
    return FieldProblem(field, "FieldValueDuplicate", f"Duplicate value: {shown}")


def unsupported(field: str, value: Any, supported: Sequence[Any]) -> FieldProblem:
    """The value is none of the allowed ones."""
    shown = f'"{value}"' if isinstance(value, str) else _shown(value)
    allowed = ", ".join(f'"{one}"' if isinstance(one, str) else _shown(one) for one in supported)
    return FieldProblem(
        field, "FieldValueNotSupported", f"Unsupported value: {shown}: supported values: {allowed}"
    )


def too_long(field: str, limit: int) -> FieldProblem:
    """The text is longer than allowed."""
    return FieldProblem(
        field, "FieldValueTooLong", f"Too long: may not be more than {limit} bytes"
    )


def _shown(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict | list):
        import json

        return json.dumps(value, separators=(",", ":"))
    return str(value)


def _details(resource: Resource, name: str) -> dict[str, Any]:
    details: dict[str, Any] = {"name": name} if name else {}
    if resource.group:
        details["group"] = resource.group
    details["kind"] = resource.plural
    return details


def not_found(resource: Resource, name: str) -> ApiError:
    """404: no such object."""
    return ApiError(
        404,
        "NotFound",
        f'{resource.group_resource} "{name}" not found',
        _details(resource, name),
    )


def no_such_path() -> ApiError:
    """404: no such collection."""
    return ApiError(404, "NotFound", "the server could not find the requested resource")


def wrong_name(stated: str, asked: str) -> ApiError:
    """400: the object in the body is not the one in the address."""
    return bad_request(
        f"the name of the object ({stated}) does not match the name on the URL ({asked})"
    )


def already_exists(resource: Resource, name: str) -> ApiError:
    """409: the name is taken."""
    return ApiError(
        409,
        "AlreadyExists",
        f'{resource.group_resource} "{name}" already exists',
        _details(resource, name),
    )


def conflict(resource: Resource, name: str, why: str = MODIFIED) -> ApiError:
    """409: somebody else was faster, or a precondition does not hold."""
    named = resource.group_resource
    return ApiError(
        409,
        "Conflict",
        f'Operation cannot be fulfilled on {named} "{name}": {why}',
        _details(resource, name),
    )


def precondition_failed(obj: dict[str, Any], why: str) -> ApiError:
    """409 of a delete or an eviction: it names the kind where others name the resource."""
    group = obj["apiVersion"].rpartition("/")[0]
    name = obj["metadata"]["name"]
    kind = Resource(group, "", obj["kind"], True, obj["kind"])
    return conflict(kind, name, why)


def accepted() -> dict[str, Any]:
    """The Status of an accepted eviction (the pod terminates, it is not gone) or binding."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "code": 201,
    }


def bad_request(message: str) -> ApiError:
    """400: the request makes no sense."""
    return ApiError(400, "BadRequest", message)


def internal(message: str) -> ApiError:
    """500 with a machine reason."""
    return ApiError(
        500,
        "InternalError",
        f"Internal error occurred: {message}",
        {"causes": [{"message": message}]},
    )


def forbidden(
    resource: Resource, name: str, why: str, causes: list[dict[str, Any]] | None = None
) -> ApiError:
    """403: admission or authorization says no."""
    details = _details(resource, name)
    if causes:
        details["causes"] = causes
    subject = f'{resource.group_resource} "{name}"' if name else resource.group_resource
    return ApiError(403, "Forbidden", f"{subject} is forbidden: {why}", details)


def unprocessable(resource: Resource, name: str, problems: Sequence[FieldProblem]) -> ApiError:
    """422: the object is well formed but breaks rules; every broken rule is a cause."""
    sentences = [f"{one.field}: {one.message}" for one in problems]
    listed = sentences[0] if len(sentences) == 1 else "[" + ", ".join(sentences) + "]"
    subject = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    details: dict[str, Any] = {"name": name} if name else {}
    if resource.group:
        details["group"] = resource.group
    details["kind"] = resource.kind
    details["causes"] = [
        {"reason": one.reason, "message": one.message, "field": one.field} for one in problems
    ]
    return ApiError(422, "Invalid", f'{subject} "{name}" is invalid: {listed}', details)


def unsupported_media(accepted: Sequence[str]) -> ApiError:
    """415: a body in a language the server does not read."""
    return ApiError(
        415,
        "UnsupportedMediaType",
        "the body of the request was in an unknown format - accepted media types include: "
        + ", ".join(accepted),
    )


def not_acceptable(accepted: Sequence[str]) -> ApiError:
    """406: the client reads nothing that the server writes."""
    return ApiError(
        406,
        "NotAcceptable",
        "only the following media types are accepted: " + ", ".join(accepted),
    )


def method_not_allowed(resource: Resource, verb: str) -> ApiError:
    """405: the collection or object has no such verb."""
    return ApiError(
        405,
        "MethodNotAllowed",
        f'{verb} is not supported on resources of kind "{resource.group_resource}"'
        if verb
        else "the server does not allow this method on the requested resource",
        {"kind": resource.plural} | ({"group": resource.group} if resource.group else {}),
    )
