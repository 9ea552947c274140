"""Parse the address that a server listens on, as a person writes it."""

from __future__ import annotations

EVERY_ADDRESS = ""
"""The host of an address like `:9412`: all addresses of the machine, IPv6 and IPv4."""


def listen_address(text: str) -> tuple[str, int]:
    """Host and port of `:9412`, `127.0.0.1:9412`, `localhost:0` or `[::1]:9412`.

    Raises ValueError for anything else; an IPv6 address needs its brackets, since its last group
    could be a port.
    """
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    number = int(port) if port.isascii() and port.isdecimal() and len(port) <= 5 else 65536
    if not colon or number > 65535 or (":" in host) != bracketed:
        raise ValueError(f"{text!r} is not HOST:PORT")
    return (host[1:-1] if bracketed else host), number
