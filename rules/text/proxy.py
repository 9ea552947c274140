"""Choose the HTTP proxy of a URL from the environment, as kubectl does.

The rules are those of Go's package golang.org/x/net/http/httpproxy, which kubectl and other
Kubernetes programs use.
"""

import ipaddress
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

_PORTS: Final = {"http": 80, "https": 443}
_EVERY: Final = "*"

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class ProxyError(ValueError):
    """A proxy that cannot be used; the message contains no credentials."""


def proxy_for(url: str, environ: Mapping[str, str]) -> str | None:
    """Return the proxy for requests to `url`; None for a direct connection.

    HTTPS_PROXY or HTTP_PROXY by the scheme of `url`, then NO_PROXY; upper case wins over lower
    case. localhost and loopback addresses are never proxied. NO_PROXY is a list of addresses,
    CIDR ranges and domains with their subdomains (`.domain`, `*.domain`: only those), each but a
    range also with a port; `*` is everything. Raises ProxyError.
    """
    parts = urlsplit(url)
    host, default = parts.hostname, _PORTS.get(parts.scheme)
    if host is None or default is None:
        return None
    proxy = _variable(environ, f"{parts.scheme}_proxy")
    if not proxy or _is_direct(host, parts.port or default, _variable(environ, "no_proxy")):
        return None
    return usable_proxy(proxy)


def usable_proxy(text: str) -> str:
    """Return the URL of a proxy, with scheme http if it has none. Raises ProxyError."""
    url = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise ProxyError("the proxy is not a URL: write http://HOST:PORT") from None
    if parts.scheme not in _PORTS:
        raise ProxyError(
            f"a proxy of the kind {parts.scheme[:20]} is not supported: use an http or https proxy"
        )
    if not host:
        raise ProxyError("the proxy has no host: write http://HOST:PORT")
    return url


def _variable(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name.upper()) or environ.get(name) or ""


def _is_direct(host: str, port: int, no_proxy: str) -> bool:
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    entries = [entry.strip().lower() for entry in no_proxy.split(",")]
    return any(entry and _covers(entry, host.lower(), port, address) for entry in entries)


def _covers(entry: str, host: str, port: int, address: _Address | None) -> bool:
    """Return whether an entry of NO_PROXY matches this host and port."""
    if entry == _EVERY:
        return True
    if (network := _network(entry)) is not None:
        return address is not None and address in network
    name, its_port = _split_port(entry)
    if its_port and its_port != str(port):
        return False
    if (its_address := _address(name)) is not None:
        return address == its_address
    if address is not None or not name:
        return False
    name = name[1:] if name.startswith("*.") else name
    return host.endswith(name) if name.startswith(".") else f".{host}".endswith(f".{name}")


def _split_port(entry: str) -> tuple[str, str]:
    """Return host and port of `host:port` or `[IPv6]:port`; anything else is a host."""
    host, colon, port = entry.rpartition(":")
    if colon and host.startswith("[") and host.endswith("]"):
        return host[1:-1], port
    return (host, port) if colon and ":" not in host else (entry, "")


def _address(text: str) -> _Address | None:
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return mapped or found


def _network(entry: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    _, slash, bits = entry.partition("/")
    if not slash or not (bits.isascii() and bits.isdecimal()):
        return None
    try:
        return ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return None
