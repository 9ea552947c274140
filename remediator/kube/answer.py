"""What the API server answered, as a value: code, body, headers that matter, and what it means.

``remediator.kube.api`` produces these; the gateway and the rules classify them. A call that got no
answer at all has code 0: nobody knows whether it took effect.
"""

from dataclasses import dataclass
from typing import TypeVar

import msgspec

T = TypeVar("T")

NO_ANSWER = 0
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError)
"""What decoding raises for a body that is no JSON, not ours, or no text at all."""


class StatusCause(msgspec.Struct, frozen=True, kw_only=True):
    """One cause inside a Status, for example DisruptionBudget."""

    reason: str = ""
    message: str = ""


class StatusDetails(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The machine-readable part of a Status."""

    name: str = ""
    kind: str = ""
    causes: tuple[StatusCause, ...] = ()
    retry_after_seconds: int = 0


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """Kubernetes' `Status`: what a refused call says."""

    kind: str = ""
    reason: str = ""
    message: str = ""
    code: int = 0
    details: StatusDetails | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One HTTP answer, or the lack of one (`code` 0, `failure` says why)."""

    code: int
    body: bytes = b""
    content_type: str = ""
    retry_after_s: float | None = None
    failure: str = ""

    @property
    def ok(self) -> bool:
        """True for any success."""
        return 200 <= self.code < 300

    @property
    def from_kubernetes(self) -> bool:
        """True when the body is JSON: text means a proxy or priority and fairness spoke."""
        return self.content_type.startswith("application/json")

    def status(self) -> Status:
        """The Status of a refusal; an empty one when the body is something else."""
        if self.ok or not self.from_kubernetes:
            return Status()
        try:
            return msgspec.json.decode(self.body, type=Status)
        except UNREADABLE:
            return Status()

    def decode(self, kind: type[T]) -> T:
        """The object of a success; ApiError when it was a refusal or is not that object."""
        if not self.ok:
            raise ApiError(self)
        try:
            return msgspec.json.decode(self.body, type=kind)
        except UNREADABLE as error:
            raise ApiError(self, f"The API server sent an unreadable object: {error}") from error

    def sentence(self) -> str:
        """What happened, for a person, in at most 300 characters."""
        if self.code == NO_ANSWER:
            return f"no answer from the API server ({self.failure})"[:300]
        said = self.status().message or self.body[:200].decode("utf-8", "replace").strip()
        return f"{self.code} {' '.join(said.split())}".strip()[:300]


class ApiError(Exception):
    """An answer that the caller cannot go on with; `answer` keeps all of it."""

    def __init__(self, answer: Answer, sentence: str = "") -> None:
        super().__init__(sentence or answer.sentence())
        self.answer = answer
