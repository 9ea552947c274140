"""The host around the driver: its processes in a bad state, its services, its identity.

Called by the host sensing thread. Processes are looked at by name and state alone, through psutil;
nothing is sent to any of them.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil

from agent.network import network_ports
from rules.observation import HostProcess, HostSeen

DMI = Path("/sys/class/dmi/id")
NUMA = Path("/sys/devices/system/node")
MAX_PROCESSES = 64
MAX_NAME_CHARS = 64

BAD_STATES = {psutil.STATUS_DISK_SLEEP: "D", psutil.STATUS_ZOMBIE: "Z"}

SERVICES = {
    "nv-fabricmanager": "nvidia-fabricmanager",
    "nvidia-persistenced": "nvidia-persistenced",
    "nvidia-imex": "nvidia-imex",
}
"""Process name (15 characters of it) of each service that judgement may ask for."""

KERNEL_THREAD = "kthreadd"
"""Its presence says that the host's processes are the ones that are seen."""

_OURS = re.compile(r"nv[-_]|nvidia|nvc:|nvsm|dcgm|nccl|cuda", re.IGNORECASE)


def host_seen(at: float, *, dmi: Path = DMI, numa: Path = NUMA) -> HostSeen:
    """One look at the host."""
    names: set[str] = set()
    bad = tuple(_bad_processes(names, _processes()))[:MAX_PROCESSES]
    services = {
        service: "running" if process[:15] in names else "stopped"
        for process, service in SERVICES.items()
        # In a pod's own process namespace the host's services are not stopped but out of sight.
        if KERNEL_THREAD in names
    }
    return HostSeen(
        at=at,
        booted_at=psutil.boot_time(),
        product_uuid=_product_uuid(dmi),
        cpu_numa_nodes=_cpu_numa_nodes(numa),
        processes=bad,
        services=services,
        ports=network_ports(),
    )


def _processes() -> Iterator[tuple[int, str, str]]:
    for process in psutil.process_iter(["name", "status"]):
        yield process.pid, process.info["name"] or "", process.info["status"] or ""


def _bad_processes(
    names: set[str], processes: Iterable[tuple[int, str, str]]
) -> Iterator[HostProcess]:
    for pid, name, status in processes:
        names.add(name[:15])
        state = BAD_STATES.get(status)
        if state is not None and _OURS.search(name):
            yield HostProcess(pid=pid, name=name[:MAX_NAME_CHARS], state=state)


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
