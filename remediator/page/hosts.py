"""Under which names the page may be asked for: none that a stranger can point at this machine.

Somebody who port-forwards and visits a hostile site could otherwise have that site's name resolved
to 127.0.0.1, and its script would read the fleet ("DNS rebinding"). Addresses and names that only
a cluster or this machine resolves are safe; a name in public DNS has to be allowed by a setting.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection

_INSIDE = (".localhost", ".svc", ".svc.cluster.local")


def hosts_of(setting: str) -> frozenset[str]:
    """Host names of a comma-separated setting."""
    return frozenset(name for part in setting.split(",") if (name := part.strip().lower()))


def may_ask(header: str, allowed: Collection[str]) -> bool:
    """Whether a request with this Host header is answered; no header means no browser."""
    name = _without_port(header.strip().lower())
    if not name or "." not in name or name in allowed:
        return ":" not in name or _is_address(name)
    return name.endswith(_INSIDE) or _is_address(name)


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if host.count(":") == 1 else host


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
