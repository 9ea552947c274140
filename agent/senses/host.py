"""The host around the driver: its processes, services and modules, its ports, its identity.

Called by the host sensing thread, once a minute. Reads only; what is out of sight, as most of it
is in an ordinary pod, is said to be so and never taken for absent.
"""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from agent.senses.host_modules import kernel_modules
from agent.senses.host_processes import host_processes
from agent.senses.network import network_ports
from rules.judge.observation import HostSeen

DMI = Path("/sys/class/dmi/id")
NUMA = Path("/sys/devices/system/node")


def host_seen(at: float, *, dmi: Path = DMI, numa: Path = NUMA) -> HostSeen:
    """One look at the host."""
    looked = host_processes()
    too_many = looked is not None and looked.too_many
    processes = None if too_many else looked
    return replace(
        host_identity(at, dmi=dmi, numa=numa),
        processes=processes.stuck if processes else None,
        too_many_processes=too_many,
        services=processes.services if processes else {},
        modules=kernel_modules(),
        ports=network_ports(),
    )


def host_identity(at: float, *, dmi: Path = DMI, numa: Path = NUMA) -> HostSeen:
    """Boot and hardware alone: all that a simulated node leaves to the machine it runs on."""
    # Imported here, by the thread that looks: the first verdict does not wait for it.
    import psutil

    return HostSeen(
        at=at,
        booted_at=psutil.boot_time(),
        product_uuid=_product_uuid(dmi),
        cpu_numa_nodes=_cpu_numa_nodes(numa),
    )


def _product_uuid(dmi: Path) -> str:
    try:
        return (dmi / "product_uuid").read_text(encoding="ascii").strip()[:64]
    except (OSError, UnicodeDecodeError):
        # Readable by root only, and absent on many virtual machines.
        return ""


def _cpu_numa_nodes(root: Path) -> tuple[int, ...]:
    """The NUMA nodes that have CPUs; a GPU's own memory may be a node without any."""
    found = []
    for node in root.glob("node[0-9]*"):
        try:
            if (node / "cpulist").read_text(encoding="ascii").strip():
                found.append(int(node.name.removeprefix("node")))
        except (OSError, ValueError):
            # Without NUMA there is nothing to list; a node that goes offline has none either.
            continue
    return tuple(sorted(found))
