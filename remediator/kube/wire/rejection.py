"""How long this process and the API server have not accepted each other.

They reject each other when the server does not take our token or client certificate (401, a TLS
alert) or we do not take its certificate. Then what this process read from its files may be the
cause, and a restart reads all of it again. A server that is down, slow or overloaded rejects
nobody: a restart could not help.
"""

from __future__ import annotations

import ssl
from typing import Final

from remediator.kube.wire.aiohttp_alone import aiohttp

LONGEST_S: Final = 600.0
"""Kubelet resets a container's restart back-off after ten minutes of running, so restarts that do
not help never become a CrashLoopBackOff. All files that kubelet swaps (about every minute) were
read again dozens of times by then."""
_STILL_S: Final = 60.0
"""Watches try again every 30 s at least: without a rejection for this long the reason is another.
"""
_UNAUTHORIZED: Final = 401


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
