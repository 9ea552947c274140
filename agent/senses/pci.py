"""The PCI bus as sysfs shows it: which NVIDIA functions are there, bound to what, answering or
not.

Called by the host sensing thread. Reads only; a function's configuration space is read, never
written. A GPU that left the bus answers all ones there, whatever the driver says.
"""

from __future__ import annotations

import re
from pathlib import Path

from agent.senses.exhausted import raise_if_exhausted
from rules.judge.observation import PciFunction

SYSFS = Path("/sys/bus/pci/devices")
NVIDIA = 0x10DE
DISPLAY_CLASSES = (0x0300, 0x0302)
"""VGA controller and 3D controller, as the PCI code and ID assignment specification names them."""

_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")

BRIDGE_CLASS = 0x0680
"""NVSwitches."""


def pci_functions(root: Path = SYSFS) -> tuple[PciFunction, ...]:
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
    if vendor != NVIDIA or device_class not in (*DISPLAY_CLASSES, BRIDGE_CLASS):
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
    return tuple(part for part in way if _ADDRESS.fullmatch(part))


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
