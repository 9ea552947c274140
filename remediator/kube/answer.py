"""Answers of the API server as values: code, body, relevant headers, and their classification.

`remediator.kube.api` returns them; the gateway and the rules classify them. A call without an
answer has code 0: it may or may not have taken effect.
"""

import re
import ssl
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from enum import StrEnum
from functools import lru_cache
from typing import Final, Generic, TypeVar

import aiohttp
import msgspec

from rules.api import refusal
from rules.api.metadata import ListMeta, ObjectMeta
from rules.api.refusal import ErrorKind, KubeStatus
from rules.text import tolerant
from rules.text.printable import printable

T = TypeVar("T")

NO_ANSWER = 0
_MAX_KEY = 512


class RawPage(msgspec.Struct, frozen=True, kw_only=True):
    """A list whose items are decoded one by one."""

    items: list[msgspec.Raw] | None
    """Every list has this field, even if null: other JSON is not an empty list."""
    metadata: ListMeta = ListMeta()


class _Named(msgspec.Struct, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()


@dataclass(frozen=True, slots=True, kw_only=True)
class Items(Generic[T]):
    """A list or one page of it: the decoded items, and the names of items that failed."""

    found: tuple[T, ...]
    unread: tuple[str, ...] = ()
    more: str = ""
    """The continue token of the next page; "" after the last one."""


def name_of(raw: bytes | msgspec.Raw) -> str:
    """`namespace/name` of an object that cannot be decoded otherwise."""
    return key_of((tolerant.understand(raw, _Named).value or _Named()).metadata)[:_MAX_KEY]


def key_of(metadata: ObjectMeta) -> str:
    """`namespace/name`, or the name of a cluster-scoped object."""
    return f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One HTTP answer, or none (`code` 0, with the cause in `failure`)."""

    code: int
    body: bytes = b""
    content_type: str = ""
    retry_after_s: float | None = None
    failure: str = ""
    untrusted: bool = False
    """The TLS handshake failed, before anything was sent."""
    late: bool = False
    """The timeout ended before the answer."""

    @property
    def ok(self) -> bool:
        """True for any success."""
        return 200 <= self.code < 300

    @property
    def from_kubernetes(self) -> bool:
        """True if the body is JSON. Text comes from a proxy or from priority and fairness."""
        return self.content_type.startswith("application/json")

    @property
    def overloaded(self) -> bool:
        """Whether the API server throttles gpuward or is too slow. A 429 of a PodDisruptionBudget
        or of a webhook has another message.
        """
        if self.code == 429:
            kinds = refusal.error_kinds(self.status().message)
            return not self.from_kubernetes or refusal.ErrorKind.BUSY in kinds
        return self.code == 504 or self.late

    def status(self) -> KubeStatus:
        """The Status of a refusal; an empty one when the body is something else."""
        if self.ok or not self.from_kubernetes:
            return KubeStatus()
        return refusal.read_status(self.body) or KubeStatus()

    def is_not_found(self, name: str) -> bool:
        """Whether the API server itself reports that no object has that name. A proxy, a missing
        CustomResourceDefinition and an unknown path answer 404, too.
        """
        status = self.status()
        named = status.details is not None and status.details.name == name
        return self.code == 404 and status.reason == "NotFound" and named

    def decode(self, kind: type[T]) -> T:
        """The decoded object of a success (`rules.text.tolerant`).

        ApiError if the call was refused or the body is not that object.
        """
        if not self.ok:
            raise ApiError(self)
        found = tolerant.understand(self.body, kind)
        if found.value is None:
            raise ApiError(self, f"The API server sent an unreadable object: {found.doubt}")
        return found.value

    def items(self, kind: type[T]) -> Items[T]:
        """One page of a list, its items decoded one by one; ApiError as `decode`."""
        page = self.envelope()
        found = [(raw, tolerant.understand(raw, kind)) for raw in page.items or ()]
        return Items(
            found=tuple(one.value for _, one in found if one.value is not None),
            unread=tuple(name_of(raw) for raw, one in found if one.value is None),
            more=page.metadata.continue_,
        )

    def envelope(self) -> RawPage:
        """A list with its items not decoded; ApiError for anything else, because a partial list
        would report the other objects as gone.
        """
        if not self.ok:
            raise ApiError(self)
        try:
            return msgspec.json.decode(self.body, type=RawPage)
        except tolerant.UNREADABLE as error:
            raise ApiError(self, f"The API server sent an unreadable list: {error}") from error

    def sentence(self) -> str:
        """The answer as one printable line of at most 300 characters."""
        if self.code == NO_ANSWER:
            return f"no answer from the API server ({self.failure})"[:300]
        text = self.status().message or self.body[:200].decode("utf-8", "replace").strip()
        return printable(f"{self.code} {' '.join(text.split())}".strip())[:300]


class Result(StrEnum):
    """The result of a write."""

    DONE = "done"
    HELD = "held"
    """Not sent, for the cause in `Sent.why`."""
    CONFLICT = "conflict"
    """The object changed since it was read, or exists already."""
    GONE = "gone"
    REFUSED = "refused"
    """Permission or validation: sending it again cannot help."""
    THROTTLED = "throttled"
    UNKNOWN = "unknown"
    """No answer or a server error: it may or may not have happened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """The result of a write; `answer` is None if it was not sent."""

    result: Result
    answer: Answer | None = None
    why: str = ""

    @property
    def done(self) -> bool:
        """It took effect."""
        return self.result is Result.DONE


def classify(answer: Answer) -> Result:
    """Classify the answer to a write; `rules.drain.eviction` classifies evictions."""
    code = answer.code
    if answer.ok:
        return Result.DONE
    other = code == 422 and ErrorKind.OTHER_UID in refusal.error_kinds(answer.status().message)
    if code == 409 or other:
        return Result.CONFLICT
    if code in {404, 410}:
        return Result.GONE
    if code == 429:
        return Result.THROTTLED
    if code == NO_ANSWER or code >= 500:
        return Result.UNKNOWN
    return Result.REFUSED


class ApiError(Exception):
    """An answer that the caller cannot use; `answer` has all of it."""

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
    """The seconds of `Retry-After`, at most an hour; None if it is no number."""
    try:
        return max(0.0, min(float(header), 3600.0))
    except ValueError:
        return None


EXCHANGE_ERRORS: Final = (aiohttp.ClientError, OSError)
"""What a call raises when there is no answer; TimeoutError is an OSError."""
NO_ANSWER_ERRORS: Final = (aiohttp.ClientError, ConnectionError, TimeoutError)
"""The same for code in which another OSError may come from a file."""
LONGEST_S: Final = 600.0
"""Kubelet resets a container's restart back-off after ten minutes of running, so restarts that do
not help never become a CrashLoopBackOff. All files that kubelet swaps (about every minute) were
read again dozens of times by then."""
_STILL_S: Final = 60.0
"""Watches try again every 30 s at least: without a rejection for this long the reason is another.
"""
_UNAUTHORIZED: Final = 401
_TLS_OBJECT: Final = re.compile(r" ssl:(<[^>]*>|\w+)")
"""What aiohttp prints of the TLS context: an address in memory."""


class HeldError(Exception):
    """Raised by a check before sending, so that the request is not written to its connection."""


class TooLargeError(aiohttp.ClientError):
    """The answer is larger than this is ever read."""

    def __init__(self, largest: int) -> None:
        super().__init__(f"the answer is larger than {largest >> 20} MiB")


class Rejection:
    """For how long the API server and we reject each other, in CLOCK_BOOTTIME seconds.

    They do when the server does not take our token or client certificate (401, a TLS alert) or we
    do not take its certificate. Then what this process read from its files may be the cause, and a
    restart reads all of it again. A server that is down, slow or overloaded rejects nobody: a
    restart could not help.
    """

    def __init__(self, now: float) -> None:
        self._accepted_at = now
        self._rejected_at = float("-inf")

    def answered(self, code: int, now: float) -> None:
        """The API server answered with this status."""
        if code == _UNAUTHORIZED:
            self._rejected_at = now
        else:
            self._accepted_at = now

    def failed(self, error: BaseException, now: float) -> None:
        """There was no answer."""
        if is_tls_failure(error):
            self._rejected_at = now

    def lasts_s(self, now: float) -> float:
        """For how long nothing was accepted; 0 where rejections are not the reason."""
        return now - self._accepted_at if now - self._rejected_at <= _STILL_S else 0.0


def is_tls_failure(error: BaseException) -> bool:
    """Whether a certificate was refused, by us or by the server."""
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, aiohttp.ClientSSLError | ssl.SSLError):
            return True
        found = getattr(found, "os_error", None) or found.__cause__
    return False


def why(error: Exception) -> str:
    """Why nothing was answered, in a clause."""
    text = _TLS_OBJECT.sub("", " ".join(str(error).split()))
    if isinstance(error, aiohttp.ClientConnectorError) and text:
        return text[:200]  # the message is complete without the class
    return f"{type(error).__name__}: {text}"[:200] if text else type(error).__name__
