"""The one error of the API, a failed Kubernetes `Status` as a value, and its usual forms.

Raised by the simulated server and by its clients; the HTTP layer writes it as a Status. Codes,
reasons and details follow the API machinery, because clients tell the cases apart by them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hack.sim.cluster.resource import Resource

MODIFIED = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


class ApiError(Exception):
    """A refused call: HTTP code, machine reason (may be empty), sentence, details."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: dict[str, Any] | None = None,
        *,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(f"{code} {reason}: {message}")
        self.code = code
        self.reason = reason
        self.message = message
        self.details: dict[str, Any] = details or {}
        self.headers: dict[str, str] = headers or {}

    def status(self) -> dict[str, Any]:
        """The body the server sends."""
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        if self.details:
            body["details"] = self.details
        body["code"] = self.code
        return body

    @classmethod
    def from_status(cls, body: dict[str, Any], code: int = 500) -> ApiError:
        """Read the body of a refused call (or of a watch's ERROR event)."""
        return cls(
            int(body.get("code") or code),
            str(body.get("reason") or ""),
            str(body.get("message") or ""),
            body.get("details") or {},
        )


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """One invalid field: its path, the machine reason and the sentence after the path."""

    field: str
    reason: str
    message: str


def required(field: str) -> FieldProblem:
    """The field is missing."""
    return FieldProblem(field, "FieldValueRequired", "Required value")


def invalid(field: str, value: Any, message: str) -> FieldProblem:
    """The field's value breaks a rule."""
    shown = f'"{value}"' if isinstance(value, str) else value
    return FieldProblem(field, "FieldValueInvalid", f"Invalid value: {shown}: {message}")


def _details(resource: Resource, name: str) -> dict[str, Any]:
    named = {"name": name} if name else {}
    group = {"group": resource.group} if resource.group else {}
    return {**named, **group, "kind": resource.plural}


def not_found(resource: Resource, name: str) -> ApiError:
    """404: no such object."""
    message = f'{resource.group_resource} "{name}" not found'
    return ApiError(404, "NotFound", message, _details(resource, name))


def no_such_path() -> ApiError:
    """404: no such collection."""
    return ApiError(404, "NotFound", "the server could not find the requested resource")


def already_exists(resource: Resource, name: str) -> ApiError:
    """409: the name is taken."""
    message = f'{resource.group_resource} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, _details(resource, name))


def conflict(resource: Resource, name: str, why: str = MODIFIED) -> ApiError:
    """409: somebody else was faster, or a precondition does not hold."""
    message = f'Operation cannot be fulfilled on {resource.group_resource} "{name}": {why}'
    return ApiError(409, "Conflict", message, _details(resource, name))


def bad_request(message: str) -> ApiError:
    """400: the request makes no sense."""
    return ApiError(400, "BadRequest", message)


def forbidden(resource: Resource, name: str, why: str) -> ApiError:
    """403: refused by admission or authorization."""
    subject = f'{resource.group_resource} "{name}"' if name else resource.group_resource
    return ApiError(403, "Forbidden", f"{subject} is forbidden: {why}", _details(resource, name))


def unprocessable(resource: Resource, name: str, problems: Sequence[FieldProblem]) -> ApiError:
    """422: the object is well formed but breaks rules; every broken rule is a cause."""
    sentences = [f"{one.field}: {one.message}" for one in problems]
    listed = sentences[0] if len(sentences) == 1 else "[" + ", ".join(sentences) + "]"
    subject = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    details = _details(resource, name) | {
        "kind": resource.kind,
        "causes": [
            {"reason": one.reason, "message": one.message, "field": one.field} for one in problems
        ],
    }
    return ApiError(422, "Invalid", f'{subject} "{name}" is invalid: {listed}', details)


def method_not_allowed() -> ApiError:
    """405: the collection or object has no such verb."""
    message = "the server does not allow this method on the requested resource"
    return ApiError(405, "MethodNotAllowed", message)


def unsupported_media(accepted: Sequence[str]) -> ApiError:
    """415: a body in a language the server does not read."""
    message = (
        "the body of the request was in an unknown format - accepted media types include: "
        + ", ".join(accepted)
    )
    return ApiError(415, "UnsupportedMediaType", message)
