"""Calls without an answer: what is raised, and how long the API server and we reject each other.

They reject each other when the server does not take our token or client certificate (401, a TLS
alert) or we do not take its certificate. Then what this process read from its files may be the
cause, and a restart reads all of it again. A server that is down, slow or overloaded rejects
nobody: a restart could not help.
"""

from __future__ import annotations

import re
import ssl
from typing import Final

import aiohttp

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
    """Raised by a look before sending, so that the request is not written to its connection."""


class TooLargeError(aiohttp.ClientError):
    """The answer is larger than this is ever read."""

    def __init__(self, largest: int) -> None:
        super().__init__(f"the answer is larger than {largest >> 20} MiB")


class Rejection:
    """The last answers that count, in CLOCK_BOOTTIME seconds."""

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
