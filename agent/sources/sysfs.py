"""Read sysfs and /dev: PCI functions, device files, network ports.

Called by `agent.sources.machine`. Reads only, bounded; a configuration space
is read and never written. A GPU that left the bus answers all ones there, whatever the driver
says. A file that is gone is ordinary news (a GPU left, an adapter is being reset); one that cannot
be opened now, for want of descriptors or memory, is an error.
"""

from __future__ import annotations

import errno
import re
from pathlib import Path

from rules.judge.observation import (
    GPU_CLASSES,
    NVIDIA_VENDOR,
    NVSWITCH_CLASS,
    NetworkPort,
    PciFunction,
)

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
    when it cannot be read now (`exhausted`): a GPU must not look gone for want of a descriptor.
    """
    found = []
    for device in sorted(root.iterdir()):
        function = _function(device)
        if function is not None:
            found.append(function)
    return tuple(found)


def _function(device: Path) -> PciFunction | None:
    try:
        vendor = int((device / "vendor").read_text(encoding="ascii"), 16)
        device_class = int((device / "class").read_text(encoding="ascii"), 16) >> 8
    except (OSError, ValueError) as error:
        raise_if_exhausted(error)
        # Unplugged while being read, or not a PCI function.
        return None
    if vendor != NVIDIA_VENDOR or device_class not in {*GPU_CLASSES, NVSWITCH_CLASS}:
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
"""What the file `link_layer` holds where it is not Ethernet. Source: Linux RDMA sysfs."""


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
        found.append(
            NetworkPort(
                name=name,
                active=state.startswith(PORT_ACTIVE),
            )
        )
    return tuple(found)
