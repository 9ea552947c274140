"""What the API server answered, as a value: code, body, headers that matter, and what it means.

`remediator.kube.api` produces these; gateway and rules classify them. A call without an answer has
code 0: it may or may not have taken effect.
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
from rules.api.refusal import KubeStatus
from rules.text import tolerant
from rules.text.printable import printable

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
    """A list or a page of one: what was understood, and the names of what was not at all."""

    found: tuple[T, ...]
    unread: tuple[str, ...] = ()
    more: str = ""
    """Where the next page begins; "" after the last one."""


def name_of(raw: bytes | msgspec.Raw) -> str:
    """`namespace/name` of an object of which nothing else is understood, as far as it has them."""
    return key_of((tolerant.understand(raw, _Named).value or _Named()).metadata)[:_MAX_KEY]


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
        return refusal.read_status(self.body) or KubeStatus()

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
        found = tolerant.understand(self.body, kind)
        if found.value is None:
            raise ApiError(self, f"The API server sent an unreadable object: {found.doubt}")
        return found.value

    def items(self, kind: type[T]) -> Items[T]:
        """One page of a list, its items understood one by one; ApiError as `decode`."""
        page = self.envelope()
        found = [(raw, tolerant.understand(raw, kind)) for raw in page.items or ()]
        return Items(
            found=tuple(one.value for _, one in found if one.value is not None),
            unread=tuple(name_of(raw) for raw, one in found if one.value is None),
            more=page.metadata.continue_,
        )

    def envelope(self) -> RawPage:
        """A list with its items unread; ApiError for anything else, since half a list would say
        that the rest is gone.
        """
        if not self.ok:
            raise ApiError(self)
        try:
            return msgspec.json.decode(self.body, type=RawPage)
        except tolerant.UNREADABLE as error:
            raise ApiError(self, f"The API server sent an unreadable list: {error}") from error

    def sentence(self) -> str:
        """What happened, for an operator: one printable line of at most 300 characters."""
        if self.code == NO_ANSWER:
            return f"no answer from the API server ({self.failure})"[:300]
        said = self.status().message or self.body[:200].decode("utf-8", "replace").strip()
        return printable(f"{self.code} {' '.join(said.split())}".strip())[:300]


class Result(StrEnum):
    """What became of a write."""

    DONE = "done"
    HELD = "held"
    """Not sent: `Sent.why` says what forbids it."""
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
    """A write and what became of it; `answer` is None when it was not sent."""

    result: Result
    answer: Answer | None = None
    why: str = ""

    @property
    def done(self) -> bool:
        """It took effect."""
        return self.result is Result.DONE


def classify(answer: Answer) -> Result:
    """What an answer means for a write in general; evictions are judged by
    `rules.drain.eviction`.
    """
    code = answer.code
    if answer.ok:
        return Result.DONE
    if code == 409:
        return Result.CONFLICT
    if code in {404, 410}:
        return Result.GONE
    if code == 429:
        return Result.THROTTLED
    if code == NO_ANSWER or code >= 500:
        return Result.UNKNOWN
    return Result.REFUSED


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


EXCHANGE_ERRORS: Final = (aiohttp.ClientError, OSError)
"""What a call raises when there is no answer; TimeoutError is an OSError."""
NO_ANSWER_ERRORS: Final = (aiohttp.ClientError, ConnectionError, TimeoutError)
"""The same where another OSError may come from a file."""
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
    said = _TLS_OBJECT.sub("", " ".join(str(error).split()))
    if isinstance(error, aiohttp.ClientConnectorError) and said:
        return said[:200]  # it says all that there is to know, and its class nothing more
    return f"{type(error).__name__}: {said}"[:200] if said else type(error).__name__
