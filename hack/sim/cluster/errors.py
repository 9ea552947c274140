"""The one error of the API: what a Kubernetes `Status` of failure says, as a value.

Raised by the simulated server's logic and by both clients; the HTTP layer writes it as a Status.
Must never carry anything but what goes over the wire.
"""

from __future__ import annotations

from typing import Any


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
