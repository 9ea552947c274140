"""The host around the driver: its services, ports and identity.

Called by the machine's thread once a minute. Reads `/proc/<pid>/stat` and nothing else of a
process (half the cost of asking psutil for the same, docs/performance.md), in slices, so that a
host with thousands of processes costs no burst. What is out of sight, as most of it is in an
ordinary pod, is said to be so and never taken for absent.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from msgspec.structs import replace

from agent.sources.sysfs import network_ports, raise_if_exhausted
from rules.judge.observation import HostSeen, Service

PROC: Final = Path("/proc")
MAX_LOOKED_AT: Final = 20_000
"""A host with more processes than this is not looked at: that would cost 0.3 % of a core."""
SLICE: Final = 250
PAUSE_S: Final = 0.02
"""After each slice, some 3 ms of CPU, others get their turn."""
STAT_BYTES: Final = 128
"""Number, name of at most 64 bytes and state stand at the beginning."""

KERNEL_THREADS_PARENT: Final = "2", "kthreadd"
"""Seen only where the process numbers are the host's, and not those of a pod."""

SERVICES: Final = {
    "nv-fabricmanage": Service.FABRIC_MANAGER,
    "nvidia-persiste": Service.PERSISTENCED,
    "nvidia-imex": Service.IMEX,
}
"""Process name, of which the kernel keeps 15 characters."""


class Processes(NamedTuple):
    """Which services one poll found running.

    `too_many`: no process was read, since there are more than `MAX_LOOKED_AT`.
    """

    services: dict[Service, bool]
    too_many: bool = False


def sees_host_processes(root: Path = PROC) -> bool:
    """Whether the process numbers here are the host's, which the kernel log speaks of."""
    number, parent = KERNEL_THREADS_PARENT
    return _name_and_state(root, number)[0] == parent


def host_processes(
    root: Path = PROC, pause: Callable[[float], object] = time.sleep
) -> Processes | None:
    """One look; None where the host's processes are out of sight, as in an ordinary pod.

    Raises OSError where they cannot be read now (`exhausted`): a service must not look stopped.
    """
    if not sees_host_processes(root):
        return None
    # Names alone: thousands of Path objects would cost more than what they name.
    numbers = [name for name in os.listdir(root) if name.isdecimal()]  # noqa: PTH208 - see above
    if len(numbers) > MAX_LOOKED_AT:
        return Processes({}, too_many=True)
    running = dict.fromkeys(SERVICES.values(), False)
    for name, state in _walk(root, numbers, pause):
        service = SERVICES.get(name)
        if service is not None and state != "Z":
            running[service] = True
    return Processes(running)


def _walk(
    root: Path, numbers: Sequence[str], pause: Callable[[float], object]
) -> Iterator[tuple[str, str]]:
    for begin in range(0, len(numbers), SLICE):
        if begin:
            pause(PAUSE_S)
        for number in numbers[begin : begin + SLICE]:
            name, state = _name_and_state(root, number)
            if state:
                yield name, state


def _name_and_state(root: Path, number: str) -> tuple[str, str]:
    """Both empty for a process that has ended meanwhile."""
    try:
        # Not through pathlib: this is done for every process of the host, every minute.
        fd = os.open(f"{root}/{number}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise_if_exhausted(error)
        return "", ""
    try:
        stat = os.read(fd, STAT_BYTES)
    except OSError as error:
        raise_if_exhausted(error)
        return "", ""
    finally:
        os.close(fd)
    # A name may hold anything, brackets too; the last one ends it. Source: proc_pid_stat(5).
    head, _, tail = stat.rpartition(b") ")
    name = head.partition(b"(")[2]
    return name.decode("ascii", "backslashreplace"), tail[:1].decode("ascii", "replace")


DMI = Path("/sys/class/dmi/id")
NUMA = Path("/sys/devices/system/node")


def host_seen(at: float, *, dmi: Path = DMI, numa: Path = NUMA) -> HostSeen:
    """One look at the host."""
    looked = host_processes()
    return replace(
        host_identity(at, dmi=dmi, numa=numa),
        too_many_processes=looked is not None and looked.too_many,
        services=looked.services if looked else {},
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
