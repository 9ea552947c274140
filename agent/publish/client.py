"""A small Kubernetes API client for the agent, based on urllib3.

It reads and watches the agent's Node, patches the Node's status, reads and writes its
GPUNodeHealth, and creates Events and GPUEvidence. Responses are decoded into the few fields that
are needed. An unexpected response raises `KubeError`. Its text never has parts of a request or a
credential.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote, unquote

import msgspec
import urllib3

from agent.publish.objects import HealthObject, NodeObject, StatusAnswer, WatchEvent
from rules.api import names, timestamps
from rules.api.kube_config import KubeConfig, KubeConfigError
from rules.text import tolerant

JSON: Final = "application/json"
METADATA: Final = f"{JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
"""Ask for metadata only: the full object has up to 900 KiB."""
MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"

UNREACHABLE: Final = 0
"""`KubeError.status` if there was no response."""

TIMEOUT: Final = urllib3.Timeout(connect=5.0, read=15.0)
WATCH_S: Final = 300
"""The server ends a watch after this time. A dead connection is detected earlier, because it
receives nothing."""

TOKEN_FOR_S: Final = 60.0
"""The token file is read again after this time, as client-go does. The kubelet renews a token long
before it expires."""

LONGEST_RETRY_AFTER_S: Final = 300.0
"""The longest Retry-After that is respected."""
ANSWER_WITHIN_S: Final = 30.0
"""Timeout for a complete response; `TIMEOUT` limits each read."""
RELOAD_EVERY_S: Final = 10.0
"""The least time between reloads of certificates and token after a refusal."""

MAX_ANSWER_BYTES: Final = 4 * 1024 * 1024
MAX_WATCH_LINE_BYTES: Final = 2 * 1024 * 1024
PIECE_BYTES: Final = 64 * 1024
MAX_ERROR_CHARS: Final = 256
HTTP_MULTIPLE_CHOICES: Final = 300

T = TypeVar("T")

_HEALTHS: Final = f"/apis/{names.GROUP}/{names.VERSION}/gpunodehealths"
_EVIDENCES: Final = f"/apis/{names.GROUP}/{names.VERSION}/gpuevidences"


class KubeError(Exception):
    """The API server refused a request or did not respond (`status` is `UNREACHABLE`)."""

    def __init__(self, status: int, reason: str, message: str, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        return f"{self.status or 'no response'} {self.reason}: {self.message}"


class Kube:
    """A client for one API server. Thread-safe; each call may raise `KubeError`."""

    def __init__(
        self,
        config: KubeConfig,
        *,
        user_agent: str,
        reread: Callable[[], KubeConfig] | None = None,
        answer_within_s: float = ANSWER_WITHIN_S,
        silence_s: float = timestamps.WATCH_SILENCE_S,
        reload_every_s: float = RELOAD_EVERY_S,
    ) -> None:
        """`reread` loads the configuration again after its files rotated. Without it only the
        files that `config` names are read again.
        """
        self._answer_within_s = answer_within_s
        self._silence_s = silence_s
        self._reload_every_s = reload_every_s
        self._config = config
        self._reread = reread or (lambda: config)
        self._user_agent = user_agent
        self._token = config.token
        self._token_until = 0.0
        self._pool = _pool(config)
        self._reloaded_at = time.monotonic()

    def close(self) -> None:
        """Close all connections, which ends a watch in progress."""
        self._pool.clear()

    def node(self, name: str) -> NodeObject:
        """Return the node; status 404 if it does not exist."""
        return self._call("GET", f"/api/v1/nodes/{quote(name)}", NodeObject)

    def watch_node(self, name: str, resource_version: str) -> Iterator[tuple[str, NodeObject]]:
        """Yield changes (ADDED, MODIFIED, DELETED, BOOKMARK) after `resource_version`.

        Ends when the server ends the watch or sends nothing for `silence_s`; status 410 if
        the version is too old.
        """
        query = (
            f"fieldSelector={quote(f'metadata.name={name}')}&watch=true&allowWatchBookmarks=true"
            f"&timeoutSeconds={WATCH_S}&resourceVersion={quote(resource_version)}"
        )
        response = self._send(
            "GET",
            f"/api/v1/nodes?{query}",
            timeout=urllib3.Timeout(connect=5.0, read=self._silence_s),
        )
        try:
            yield from _watch_events(response)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise KubeError(UNREACHABLE, "WatchBroken", _what(error)) from error
        finally:
            response.close()

    def patch_node_status(self, name: str, patch: Mapping[str, Any]) -> NodeObject:
        """Patch conditions and labels. The server does not store a patch that changes nothing."""
        path = f"/api/v1/nodes/{quote(name)}/status"
        return self._call("PATCH", path, NodeObject, body=patch, content_type=STRATEGIC)

    def health(self, name: str) -> HealthObject:
        """Return the node's GPUNodeHealth; status 404 if it or its CRD does not exist."""
        return self._call("GET", f"{_HEALTHS}/{quote(name)}", HealthObject)

    def has_health(self, name: str) -> bool:
        """Whether the node's GPUNodeHealth is in the server's cache; False without its CRD."""
        return self._is_there(f"{_HEALTHS}/{quote(name)}?resourceVersion=0")

    def create_health(self, body: Mapping[str, Any]) -> HealthObject:
        """Create the object; the server ignores its status."""
        return self._call("POST", _HEALTHS, HealthObject, body=body)

    def patch_health(self, name: str, patch: Mapping[str, Any]) -> HealthObject:
        """Patch the object's metadata."""
        path = f"{_HEALTHS}/{quote(name)}"
        return self._call("PATCH", path, HealthObject, body=patch, content_type=MERGE)

    def put_health_status(self, name: str, body: Mapping[str, Any]) -> HealthObject:
        """Replace the status; status 409 if `metadata.resourceVersion` is not the latest."""
        return self._call("PUT", f"{_HEALTHS}/{quote(name)}/status", HealthObject, body=body)

    def has_evidence(self, name: str) -> bool:
        """Whether a GPUEvidence of that name exists; False without its CRD."""
        return self._is_there(f"{_EVIDENCES}/{quote(name)}")

    def _is_there(self, path: str) -> bool:
        try:
            self._call("GET", path, StatusAnswer, accept=METADATA)
        except KubeError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            return False
        return True

    def create_evidence(self, body: Mapping[str, Any]) -> None:
        """Create a GPUEvidence; status 409 if it exists, 404 without its CRD."""
        self._call("POST", _EVIDENCES, StatusAnswer, body=body, accept=METADATA)

    def create_event(self, namespace: str, body: Mapping[str, Any]) -> None:
        """Create an Event."""
        path = f"/api/v1/namespaces/{quote(namespace)}/events"
        self._call("POST", path, StatusAnswer, body=body)

    def _call(
        self,
        method: str,
        path: str,
        answer: type[T],
        *,
        body: Mapping[str, Any] | None = None,
        content_type: str = JSON,
        accept: str = JSON,
    ) -> T:
        response = self._send(method, path, body=body, content_type=content_type, accept=accept)
        content = _read(response, self._answer_within_s)
        return _understood(content, answer, response.status, f"{method} {path}")

    def _send(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        timeout: urllib3.Timeout = TIMEOUT,
    ) -> urllib3.BaseHTTPResponse:
        """Send a request and return its response, with the body not read yet."""
        headers = {"Accept": accept, "User-Agent": self._user_agent}
        if token := self._current_token():
            headers["Authorization"] = f"Bearer {token}"
        if body is not None:
            headers["Content-Type"] = content_type
        try:
            response = self._pool.request(
                method,
                f"{self._config.server}{path}",
                body=None if body is None else msgspec.json.encode(body),
                headers=headers,
                timeout=timeout,
                retries=False,
                redirect=False,
                preload_content=False,
            )
        except (urllib3.exceptions.HTTPError, OSError) as error:
            if isinstance(error, urllib3.exceptions.SSLError):
                self._reload()
            raise KubeError(UNREACHABLE, "Unreachable", _what(error)) from error
        if response.status == HTTPStatus.UNAUTHORIZED:
            self._reload()
        if response.status >= HTTP_MULTIPLE_CHOICES:
            raise _refusal(response, _read(response, self._answer_within_s))
        return response

    def _reload(self) -> None:
        """Load token and certificates again: they may have been renewed."""
        now = time.monotonic()
        self._token_until = 0.0
        if now < self._reloaded_at + self._reload_every_s:
            return
        self._reloaded_at = now
        try:
            config = self._reread()
            if config.server != self._config.server:
                # The kubeconfig's current context has changed, maybe to another cluster.
                config = self._config
            self._pool = _pool(config)
        except KubeConfigError:
            # The file is being replaced: the next refusal tries again.
            return
        self._config = config
        self._token = config.token or self._token

    def _current_token(self) -> str:
        if self._config.token_file and time.monotonic() >= self._token_until:
            try:
                token = Path(self._config.token_file).read_text(encoding="ascii").strip()
            except (OSError, UnicodeDecodeError):
                # The file is being replaced: the old token is still valid.
                token = ""
            self._token = token or self._token
            self._token_until = time.monotonic() + TOKEN_FOR_S
        return self._token


def _pool(config: KubeConfig) -> urllib3.PoolManager:
    if not config.server.startswith(("https://", "http://")):
        raise KubeConfigError(f"server {config.server!r} is not an http or https URL")
    if config.login:
        raise KubeConfigError(
            f"the kubeconfig for {config.server} logs in with {config.login}, which the agent does"
            " not support: use a token, a token file or a client certificate"
        )
    if not config.server.startswith("https://"):
        return _manager(config)
    try:
        context = config.tls()
    except OSError as error:
        raise KubeConfigError(
            f"the certificates for {config.server} are not valid ({_what(error)}):"
            " correct the kubeconfig"
        ) from error
    if not config.verify:
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    return _manager(
        config,
        ssl_context=context,
        cert_reqs="CERT_REQUIRED" if config.verify else "CERT_NONE",
        assert_hostname=config.server_name or None,
        server_hostname=config.server_name or None,
    )


def _manager(config: KubeConfig, **tls: Any) -> urllib3.PoolManager:
    if config.proxy is None:
        return urllib3.PoolManager(maxsize=2, retries=False, **tls)
    login = urllib3.util.parse_url(config.proxy).auth
    headers = urllib3.make_headers(proxy_basic_auth=unquote(login)) if login else None
    return urllib3.ProxyManager(
        config.proxy, maxsize=2, retries=False, proxy_headers=headers, **tls
    )


def _read(response: urllib3.BaseHTTPResponse, within_s: float) -> bytes:
    """Return the body. Size and time are limited, since any server may be at that address."""
    deadline = time.monotonic() + within_s
    content = bytearray()
    complete = False
    try:
        while piece := response.read1(PIECE_BYTES):
            content += piece
            if len(content) > MAX_ANSWER_BYTES:
                raise KubeError(response.status, "TooLarge", "the response is larger than 4 MiB")
            if time.monotonic() > deadline:
                raise KubeError(UNREACHABLE, "TooSlow", "the response did not end in time")
        complete = True
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise KubeError(UNREACHABLE, "Unreachable", _what(error)) from error
    finally:
        # A connection with unread data must not be reused.
        response.release_conn() if complete else response.close()
    return bytes(content)


def _watch_events(response: urllib3.BaseHTTPResponse) -> Iterator[tuple[str, NodeObject]]:
    rest = b""
    for chunk in response.stream(PIECE_BYTES):
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > MAX_WATCH_LINE_BYTES:
            raise KubeError(response.status, "TooLarge", "a watch event is larger than 2 MiB")
        for line in filter(None, lines):
            event = tolerant.understand(line, WatchEvent)
            if event.value is None:
                raise KubeError(response.status, "NotUnderstood", event.doubt)
            if event.value.type == "ERROR":
                error = (
                    tolerant.understand(event.value.object, StatusAnswer).value or StatusAnswer()
                )
                raise KubeError(error.code, "WatchError", error.message[:MAX_ERROR_CHARS])
            node = _understood(event.value.object, NodeObject, response.status, "the watch")
            yield event.value.type, node


def _understood(content: bytes | msgspec.Raw, kind: type[T], status: int, where: str) -> T:
    """Return the object, without invalid fields. Raises KubeError if its metadata is invalid."""
    found = tolerant.understand(content, kind)
    nameless = any(doubt.path in {"metadata", "items"} for doubt in found.doubts)
    if found.value is None or nameless:
        raise KubeError(status, "NotUnderstood", f"{where}: {found.doubt}")
    return found.value


def _refusal(response: urllib3.BaseHTTPResponse, content: bytes) -> KubeError:
    # Text of another server, such as a proxy, is not quoted.
    unknown = StatusAnswer(message="the response is not a Kubernetes Status")
    answer = tolerant.understand(content, StatusAnswer).value or unknown
    return KubeError(
        response.status,
        answer.reason or "Refused",
        answer.message[:MAX_ERROR_CHARS],
        _seconds(response.headers.get("Retry-After", "")),
    )


def _seconds(retry_after: str) -> float:
    """Return Retry-After in seconds; 0 for a date or an implausible number."""
    plain = retry_after.isascii() and retry_after.isdecimal() and len(retry_after) < 6
    return min(float(retry_after), LONGEST_RETRY_AFTER_S) if plain else 0.0


def _what(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:MAX_ERROR_CHARS]
