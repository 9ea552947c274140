"""The ports of InfiniBand and RoCE adapters as sysfs shows them.

Called by the host sensing thread. Reads only, bounded; a host without such adapters has no port.
"""

from __future__ import annotations

from pathlib import Path

from agent.senses.exhausted import raise_if_exhausted
from rules.judge.observation import NetworkPort

SYSFS = Path("/sys/class/infiniband")
MAX_PORTS = 64
MAX_DIGITS = 20
"""No counter of the kernel is wider than 64 bits."""
COUNTERS = ("symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors")
"""Files below `counters`. Source: Linux ABI, stable/sysfs-class-infiniband."""
ACTIVE = "4:"
"""How the file `state` of an active port begins (`4: ACTIVE`). Source: Linux RDMA sysfs."""
INFINIBAND = "InfiniBand"
"""What the file `link_layer` holds where it is not Ethernet. Source: Linux RDMA sysfs."""


def network_ports(root: Path = SYSFS) -> tuple[NetworkPort, ...]:
    """Every port with its state; one that is gone is left out. Raises OSError where none can be
    read now (`exhausted`).
    """
    found = []
    for port in sorted(root.glob("*/ports/*"))[:MAX_PORTS]:
        try:
            state = (port / "state").read_text(encoding="ascii")
        except (OSError, UnicodeDecodeError) as error:
            raise_if_exhausted(error)
            # The adapter is being reset or unplugged.
            continue
        name = f"{port.parent.parent.name}/{port.name}"[:MAX_PORTS]
        found.append(
            NetworkPort(
                name=name,
                active=state.startswith(ACTIVE),
                infiniband=_link_layer(port) == INFINIBAND,
                errors=_errors(port / "counters"),
            )
        )
    return tuple(found)


def _link_layer(port: Path) -> str:
    try:
        return (port / "link_layer").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        # The adapter leaves; what it was is not known.
        return ""


def _errors(counters: Path) -> dict[str, int]:
    """The error counters that this port has."""
    found = {}
    for name in COUNTERS:
        try:
            text = (counters / name).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            # Not every adapter has every counter, and a virtual function may refuse them all.
            continue
        if text.isdecimal() and len(text) <= MAX_DIGITS:
            found[name] = int(text)
    return found
