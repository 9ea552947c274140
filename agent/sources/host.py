"""The machine around the driver: PCI functions, services, network ports and identity.

Called by the machine's thread. Reads only, bounded; a configuration space is read and never
written: a GPU that left the bus answers all ones there, whatever the driver says. A file that is
gone is ordinary news (a GPU left, an adapter is being reset); one that cannot be opened now, for
want of descriptors or memory, is an error. Of a process `/proc/<pid>/stat` is read and nothing
else (half the cost of asking psutil for the same, docs/performance.md), in slices, so that a host
with thousands of them costs no burst. What is out of sight, as most of it is in an ordinary pod,
is said to be so and never taken for absent.
"""

import errno
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from msgspec.structs import replace

from rules.judge import observation
from rules.judge.observation import HostSeen, NetworkPort, PciFunction, Service

EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Out of file descriptors or of the kernel's memory. Source: open(2), read(2)."""


def is_exhausted(error: BaseException) -> bool:
    """Whether the error is about this process or machine and not about the file."""
    return isinstance(error, OSError) and error.errno in EXHAUSTED


def raise_if_exhausted(error: BaseException) -> None:
    """Raise `error` again where it does not mean that the file is gone."""
    if is_exhausted(error):
        raise error


PCI_DEVICES = Path("/sys/bus/pci/devices")
_PCI_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def pci_functions(root: Path = PCI_DEVICES) -> tuple[PciFunction, ...]:
    """The NVIDIA GPUs and switches on the bus. Raises OSError when there is no PCI bus to see, or
    when it cannot be read now (`exhausted`): a GPU must not look gone for lack of a descriptor.
    """
    found = map(_function, sorted(root.iterdir()))
    return tuple(function for function in found if function is not None)


def _function(device: Path) -> PciFunction | None:
    try:
        vendor = int((device / "vendor").read_text(encoding="ascii"), 16)
        device_class = int((device / "class").read_text(encoding="ascii"), 16) >> 8
    except (OSError, ValueError) as error:
        raise_if_exhausted(error)
        # Unplugged while being read, or not a PCI function.
        return None
    if vendor != observation.NVIDIA_VENDOR or device_class not in {
        *observation.GPU_CLASSES,
        observation.NVSWITCH_CLASS,
    }:
        return None
    return PciFunction(
        address=device.name.lower(),
        vendor=vendor,
        device_class=device_class,
        driver=_driver(device),
        config_space_ok=_config_space_ok(device),
        upstream=_upstream(device),
    )


def _upstream(device: Path) -> tuple[str, ...]:
    """The bridges above the function: its entry is a link whose way leads through them."""
    try:
        way = device.readlink().parts[:-1]
    except OSError:
        return ()
    return tuple(part for part in way if _PCI_ADDRESS.fullmatch(part))


def _driver(device: Path) -> str:
    try:
        return (device / "driver").readlink().name
    except OSError as error:
        raise_if_exhausted(error)
        # No driver is bound.
        return ""


def _config_space_ok(device: Path) -> bool | None:
    """Whether the function answers; None when its configuration space cannot be read."""
    try:
        with (device / "config").open("rb") as config:
            start = config.read(4)
    except OSError:
        return None
    return None if len(start) < 4 else start != b"\xff\xff\xff\xff"


INFINIBAND_PORTS = Path("/sys/class/infiniband")
MAX_PORTS = 64
PORT_ACTIVE = "4:"
"""How the file `state` of an active port begins (`4: PORT_ACTIVE`). Source: Linux RDMA sysfs."""


def network_ports(root: Path = INFINIBAND_PORTS) -> tuple[NetworkPort, ...]:
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
        found.append(NetworkPort(name=name, active=state.startswith(PORT_ACTIVE)))
    return tuple(found)


PROC: Final = Path("/proc")
MAX_LOOKED_AT: Final = 20_000
"""A host with more processes than this is not checked: that would cost 0.3 % of a core."""
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
    """One check; None where the host's processes are out of sight, as in an ordinary pod.

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
    """One check at the host."""
    looked = host_processes()
    return replace(
        host_identity(at, dmi=dmi, numa=numa),
        too_many_processes=looked is not None and looked.too_many,
        services=looked.services if looked else {},
        ports=network_ports(),
    )


def host_identity(at: float, *, dmi: Path = DMI, numa: Path = NUMA) -> HostSeen:
    """Boot and hardware alone: all that a simulated node leaves to the machine it runs on."""
    # Imported here, by the thread that looks: the first health status does not wait for it.
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
