"""Read PCI functions, driver services, network ports and identity of the host.

Called by the machine collector's thread. All access is read-only and bounded. A configuration
space that reads all ones means that the GPU left the bus, even if the driver still lists it. A
missing file is normal (a removed GPU, an adapter that resets). A file that cannot be opened
because descriptors or memory are exhausted is an error. Of a process only `/proc/<pid>/stat` is
read, which costs half of psutil (docs/performance.md), in slices to avoid a burst of CPU.
Processes that are not visible, as in an ordinary pod, are reported as unknown and never as
stopped.
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
from rules.judge.observation import HostSeen, NetworkPort, PciFunction, PortCounter, Service

EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Out of file descriptors or of the kernel's memory. Source: open(2), read(2)."""


def is_exhausted(error: BaseException) -> bool:
    """Whether the error means that descriptors or memory are exhausted."""
    return isinstance(error, OSError) and error.errno in EXHAUSTED


def raise_if_exhausted(error: BaseException) -> None:
    """Raise `error` again if it means that descriptors or memory are exhausted."""
    if is_exhausted(error):
        raise error


PCI_DEVICES = Path("/sys/bus/pci/devices")
_PCI_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def pci_functions(root: Path = PCI_DEVICES) -> tuple[PciFunction, ...]:
    """Return the NVIDIA GPUs and switches on the PCI bus.

    Raises OSError if there is no PCI bus, or if it cannot be read now (`is_exhausted`): a GPU must
    not seem to be gone because of a missing descriptor.
    """
    found = map(_function, sorted(root.iterdir()))
    return tuple(function for function in found if function is not None)


def _function(device: Path) -> PciFunction | None:
    try:
        vendor = int((device / "vendor").read_text(encoding="ascii"), 16)
        device_class = int((device / "class").read_text(encoding="ascii"), 16) >> 8
    except (OSError, ValueError) as error:
        raise_if_exhausted(error)
        # Removed while being read, or not a PCI function.
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
    """Return the bridges above the function, from the path that its entry links to."""
    try:
        path = device.readlink().parts[:-1]
    except OSError:
        return ()
    return tuple(part for part in path if _PCI_ADDRESS.fullmatch(part))


def _driver(device: Path) -> str:
    try:
        return (device / "driver").readlink().name
    except OSError as error:
        raise_if_exhausted(error)
        # No driver is bound.
        return ""


def _config_space_ok(device: Path) -> bool | None:
    """Whether the function answers; None if its configuration space cannot be read."""
    try:
        with (device / "config").open("rb") as config:
            start = config.read(4)
    except OSError:
        return None
    return None if len(start) < 4 else start != b"\xff\xff\xff\xff"


INFINIBAND: Final = Path("/sys/class/infiniband")
MAX_PORTS: Final = 64
PORTS_WITHIN_S: Final = 5.0
"""Ports that are not read by then have no data: an adapter with hung firmware delays each read."""
_PORT_BYTES: Final = 64
"""The longest text of a file that is read below a port."""
PORT_ACTIVE: Final = "4:"
"""The start of `state` of an active port (`4: PORT_ACTIVE`). Source: Linux RDMA sysfs."""
_MOST: Final = 1 << 64

_EFA_COUNTERS: Final = tuple(each for each in PortCounter if each.name.startswith("EFA_"))
_CABLE_COUNTERS: Final = tuple(
    each for each in PortCounter if each not in (*_EFA_COUNTERS, PortCounter.CARRIER_DOWN)
)


def network_ports(
    root: Path = INFINIBAND, clock: Callable[[], float] = time.monotonic
) -> tuple[NetworkPort, ...]:
    """Return every port with its state, device files and error counters.

    Virtual functions of this host are left out: they come and go with pods. Raises OSError if
    `is_exhausted`.
    """
    paths = [
        (device, port)
        for device in _entries(root)
        if not os.path.lexists(f"{root}/{device}/device/physfn")
        for port in _entries(root / device / "ports")
    ][:MAX_PORTS]
    if not paths:
        return ()
    verbs = _with_device_file(root, "verbs", "uverbs")
    umad = _with_device_file(root, "mad", "umad")
    until = clock() + PORTS_WITHIN_S
    return tuple(
        _network_port(root, device, port, verbs, umad)
        if clock() < until
        else NetworkPort(name=_port_name(device, port), active=None)
        for device, port in paths
    )


def _port_name(device: str, port: str) -> str:
    return f"{device}/{port}"[:MAX_PORTS]


def ports_move(root: Path = INFINIBAND) -> bool:
    """Whether each RDMA device belongs to one network namespace. Source: rdma-system(8)."""
    return _text(f"{root.parents[1]}/module/ib_core/parameters/netns_mode") == "N"


def _entries(folder: Path) -> list[str]:
    """Return the names in a folder of sysfs; none if it does not exist."""
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208 - names are enough, and cost less
    except OSError as error:
        raise_if_exhausted(error)
        return []


def _text(path: str) -> str:
    return _start_of(path, _PORT_BYTES).decode("ascii", "replace").strip()


def _with_device_file(root: Path, kind: str, prefix: str) -> frozenset[tuple[str, str]] | None:
    """Return device and port (empty: all) of each device file; None without the kernel module.

    The kernel creates `/dev/infiniband/umad0` for the class entry `infiniband_mad/umad0`.
    """
    folder = root.parent / f"infiniband_{kind}"
    names = _entries(folder)
    if not names:
        return None
    paths = [f"{folder}/{name}" for name in names if name.startswith(prefix)][: 4 * MAX_PORTS]
    return frozenset((_text(f"{path}/ibdev"), _text(f"{path}/port")) for path in paths)


def _network_port(
    root: Path,
    device: str,
    port: str,
    verbs: frozenset[tuple[str, str]] | None,
    umad: frozenset[tuple[str, str]] | None,
) -> NetworkPort:
    path = f"{root}/{device}/ports/{port}"
    state, layer = _text(f"{path}/state"), _text(f"{path}/link_layer")
    expected = [("uverbs", verbs, (device, ""))]
    if layer == "InfiniBand":
        expected.append(("umad", umad, (device, port)))
    known = [(name, own in files) for name, files, own in expected if files is not None]
    cabled = layer in ("InfiniBand", "Ethernet")
    counters = {
        counter: value
        for counter in (_CABLE_COUNTERS if cabled else _EFA_COUNTERS)
        if (value := _number(f"{path}/{counter}")) is not None
    }
    interfaces = _entries(root / device / "device/net") if layer == "Ethernet" else []
    if len(interfaces) == 1:
        carrier = _number(f"{root}/{device}/device/net/{interfaces[0]}/carrier_down_count")
        if carrier is not None:
            counters[PortCounter.CARRIER_DOWN] = carrier
    return NetworkPort(
        name=_port_name(device, port),
        active=state.startswith(PORT_ACTIVE) if state else None,
        missing_files=tuple(name for name, exists in known if not exists) if known else None,
        counters=counters,
    )


def _number(path: str) -> int | None:
    """Return a counter; None if it is absent or not a number of at most 64 bits."""
    text = _text(path)
    value = int(text) if text.isdecimal() else _MOST
    return value if value < _MOST else None


PROC: Final = Path("/proc")
MAX_PROCESSES: Final = 20_000
"""Processes of a host with more than this are not read: that would take 0.3 % of a core."""
SLICE: Final = 250
PAUSE_S: Final = 0.02
"""The pause after each slice, which takes about 3 ms of CPU."""
STAT_BYTES: Final = 128
"""Enough for number, name (at most 64 bytes) and state."""

KERNEL_THREADS_PARENT: Final = "2", "kthreadd"
"""Only visible in the host's PID namespace."""

SERVICES: Final = {
    "nv-fabricmanage": Service.FABRIC_MANAGER,
    "nvidia-persiste": Service.PERSISTENCED,
    "nvidia-imex": Service.IMEX,
}
"""Services by process name, of which the kernel keeps 15 characters."""


class Processes(NamedTuple):
    """The services that run.

    `too_many`: there are more than `MAX_PROCESSES`, so none was read.
    """

    services: dict[Service, bool]
    too_many: bool = False


def sees_host_processes(root: Path = PROC) -> bool:
    """Whether process IDs here are the host's, as in the kernel log."""
    number, parent = KERNEL_THREADS_PARENT
    return _name_and_state(root, number)[0] == parent


def host_processes(
    root: Path = PROC,
    pause: Callable[[float], object] = time.sleep,
    max_processes: int = MAX_PROCESSES,
) -> Processes | None:
    """Return the services that run; None if the host's processes are not visible.

    Raises OSError if they cannot be read now (`is_exhausted`): a service must not seem stopped.
    """
    if not sees_host_processes(root):
        return None
    # Names only: thousands of Path objects would cost more than reading the files.
    numbers = [name for name in os.listdir(root) if name.isdecimal()]  # noqa: PTH208 - see above
    if len(numbers) > max_processes:
        return Processes({}, too_many=True)
    running = dict.fromkeys(SERVICES.values(), False)
    for name, state in _names_and_states(root, numbers, pause):
        service = SERVICES.get(name)
        if service is not None and state != "Z":
            running[service] = True
    return Processes(running)


def _names_and_states(
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
    """Return name and state of a process; both empty if it has ended."""
    stat = _start_of(f"{root}/{number}/stat", STAT_BYTES)
    # A name may contain brackets; the last one ends it. Source: proc_pid_stat(5).
    head, _, tail = stat.rpartition(b") ")
    name = head.partition(b"(")[2]
    return name.decode("ascii", "backslashreplace"), tail[:1].decode("ascii", "replace")


def _start_of(path: str, size: int) -> bytes:
    """Return the first bytes of a file; empty if it cannot be read."""
    try:
        # Not pathlib, for speed: this runs for every process of the host, every minute.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise_if_exhausted(error)
        return b""
    try:
        return os.read(fd, size)
    except OSError as error:
        raise_if_exhausted(error)
        return b""
    finally:
        os.close(fd)


DMI = Path("/sys/class/dmi/id")
NUMA = Path("/sys/devices/system/node")


def host_seen(at: float, *, dmi: Path = DMI, numa: Path = NUMA) -> HostSeen:
    """Return boot, hardware, services and network ports of the host."""
    processes = host_processes()
    return replace(
        host_identity(at, dmi=dmi, numa=numa),
        too_many_processes=processes is not None and processes.too_many,
        services=processes.services if processes else {},
        ports=network_ports(),
        ports_move=ports_move(),
    )


def host_identity(at: float, *, dmi: Path = DMI, numa: Path = NUMA) -> HostSeen:
    """Return boot and hardware only, which a simulated node takes from the real machine."""
    # Imported here, in the collector's thread, so that the first health status does not wait.
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
        # Only root can read it, and many virtual machines have none.
        return ""


def _cpu_numa_nodes(root: Path) -> tuple[int, ...]:
    """Return the NUMA nodes with CPUs; the memory of a GPU may be a node without."""
    found = []
    for node in root.glob("node[0-9]*"):
        try:
            if (node / "cpulist").read_text(encoding="ascii").strip():
                found.append(int(node.name.removeprefix("node")))
        except (OSError, ValueError):
            # The node is offline.
            continue
    return tuple(sorted(found))
