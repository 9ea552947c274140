"""What the API server answered, as a value: code, body, headers that matter, and what it means.

`remediator.kube.api` produces these; the gateway and the rules classify them. A call that got no
answer at all has code 0: nobody knows whether it took effect.
"""

from __future__ import annotations

from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Generic, TypeVar

import msgspec

from rules.api.metadata import ListMeta, ObjectMeta
from rules.api.refusal import KubeStatus, read_status
from rules.text.printable import printable
from rules.text.tolerant import UNREADABLE, understand

T = TypeVar("T")

NO_ANSWER = 0
_MAX_KEY = 512


class RawPage(msgspec.Struct, frozen=True, kw_only=True):
    """A list whose items are decoded one by one."""

    items: list[msgspec.Raw] | None
    """Always there in a list, if only as null: any other JSON is not an empty list."""
    metadata: ListMeta = ListMeta()


class _Named(msgspec.Struct, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()


@dataclass(frozen=True, slots=True, kw_only=True)
class Items(Generic[T]):
    """A whole list: what was understood of it, and the names of what was not at all."""

    found: tuple[T, ...]
    unread: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """A page of a list: what was understood, and the names of what was not at all."""

    items: tuple[T, ...]
    unread: tuple[str, ...]
    metadata: ListMeta


def name_of(raw: bytes | msgspec.Raw) -> str:
    """`namespace/name` of an object of which nothing else is understood, as far as it has them."""
    return key_of((understand(raw, _Named).value or _Named()).metadata)[:_MAX_KEY]


def key_of(metadata: ObjectMeta) -> str:
    """`namespace/name`, or the name of a cluster-scoped object."""
    return f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One HTTP answer, or the lack of one (`code` 0, `failure` says why)."""

    code: int
    body: bytes = b""
    content_type: str = ""
    retry_after_s: float | None = None
    failure: str = ""
    untrusted: bool = False
    """The TLS handshake failed, before anything was sent."""

    @property
    def ok(self) -> bool:
        """True for any success."""
        return 200 <= self.code < 300

    @property
    def from_kubernetes(self) -> bool:
        """True when the body is JSON: text means a proxy or priority and fairness spoke."""
        return self.content_type.startswith("application/json")

    def status(self) -> KubeStatus:
        """The Status of a refusal; an empty one when the body is something else."""
        if self.ok or not self.from_kubernetes:
            return KubeStatus()
        return read_status(self.body) or KubeStatus()

    def says_gone(self, name: str) -> bool:
        """Whether the API server itself says that there is no object of that name: a proxy, a
        missing CustomResourceDefinition and a path nobody serves answer 404 as well.
        """
        status = self.status()
        named = status.details is not None and status.details.name == name
        return self.code == 404 and status.reason == "NotFound" and named

    def decode(self, kind: type[T]) -> T:
        """The object of a success, as far as it is understood (`rules.text.tolerant`).

        ApiError when it was a refusal or is not that object at all.
        """
        if not self.ok:
            raise ApiError(self)
        found = understand(self.body, kind)
        if found.value is None:
            raise ApiError(self, f"The API server sent an unreadable object: {found.doubt}")
        return found.value

    def page(self, kind: type[T]) -> Page[T]:
        """One page of a list, its items understood one by one; ApiError as `decode`."""
        page = self.envelope()
        found = [(raw, understand(raw, kind)) for raw in page.items or ()]
        return Page(
            items=tuple(one.value for _, one in found if one.value is not None),
            unread=tuple(name_of(raw) for raw, one in found if one.value is None),
            metadata=page.metadata,
        )

    def envelope(self) -> RawPage:
        """A list with its items unread; ApiError for anything else, since half a list would say
        that the rest is gone.
        """
        if not self.ok:
            raise ApiError(self)
        try:
            return msgspec.json.decode(self.body, type=RawPage)
        except UNREADABLE as error:
            raise ApiError(self, f"The API server sent an unreadable list: {error}") from error

    def sentence(self) -> str:
        """What happened, for a person: one printable line of at most 300 characters."""
        if self.code == NO_ANSWER:
            return f"no answer from the API server ({self.failure})"[:300]
        said = self.status().message or self.body[:200].decode("utf-8", "replace").strip()
        return printable(f"{self.code} {' '.join(said.split())}".strip())[:300]


class ApiError(Exception):
    """An answer that the caller cannot go on with; `answer` keeps all of it."""

    def __init__(self, answer: Answer, sentence: str = "") -> None:
        super().__init__(sentence or answer.sentence())
        self.answer = answer


@lru_cache(maxsize=16)
def served_at(date: str) -> float | None:
    """The Date header in seconds since the epoch; it is the same for all answers of a second."""
    try:
        return parsedate_to_datetime(date).timestamp()
    except (ValueError, TypeError):
        return None


def seconds(header: str) -> float | None:
    """What `Retry-After` asks for, an hour at most; None where it gives no number."""
    try:
        return max(0.0, min(float(header), 3600.0))
    except ValueError:
        return None
