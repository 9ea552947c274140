"""aiohttp, imported without the system's authorities: whoever comes first imports it from here."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def _without_authorities() -> Iterator[None]:
    """aiohttp makes two TLS contexts with all authorities of the system when it is imported: a
    tenth of a command's time for what no call of ours uses (`Access.tls` goes with each). Here
    they trust nobody.
    """
    read = ssl.SSLContext.set_default_verify_paths
    ssl.SSLContext.set_default_verify_paths = lambda _: None  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        ssl.SSLContext.set_default_verify_paths = read  # type: ignore[method-assign]


with _without_authorities():
    import aiohttp
    from aiohttp.http import HttpProcessingError

__all__ = ("HttpProcessingError", "aiohttp")
