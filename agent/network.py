"""The ports of InfiniBand and RoCE adapters as sysfs shows them.

Called by the host sensing thread. Reads only, bounded; a host without such adapters has no port.
"""

from pathlib import Path

from rules.observation import NetworkPort

SYSFS = Path("/sys/class/infiniband")
MAX_PORTS = 64
ACTIVE = "4:"
"""How the file ``state`` of an active port begins (``4: ACTIVE``). Source: Linux RDMA sysfs."""


def network_ports(root: Path = SYSFS) -> tuple[NetworkPort, ...]:
    """Every port with its state; one that cannot be read is left out."""
    found = []
    for port in sorted(root.glob("*/ports/*"))[:MAX_PORTS]:
        try:
            state = (port / "state").read_text(encoding="ascii")
        except (OSError, UnicodeDecodeError):
            # The adapter is being reset or unplugged.
            continue
        name = f"{port.parent.parent.name}/{port.name}"[:MAX_PORTS]
        found.append(NetworkPort(name=name, active=state.startswith(ACTIVE)))
    return tuple(found)
