"""The PCIe errors (AER) that the kernel counted on a GPU, as sysfs shows them.

Called by the host sensing thread once a minute. Reads only: the counters lie in the kernel's
memory, the device itself is not touched.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from agent.senses.pci import DISPLAY_CLASSES, SYSFS
from rules.judge.observation import AerCounters, PciFunction

MAX_BYTES = 4096
"""sysfs never gives more than a page."""

TOTAL = "TOTAL_ERR_"
"""How the line with the sum begins. Source: Linux ABI, sysfs-bus-pci-devices-aer_stats."""


def aer_counters(functions: Iterable[PciFunction], root: Path = SYSFS) -> tuple[AerCounters, ...]:
    """The counters of those functions that are GPUs; one without any is left out."""
    found = []
    for function in functions:
        if function.device_class not in DISPLAY_CLASSES:
            continue
        device = root / function.address
        correctable = _total(device / "aer_dev_correctable")
        nonfatal = _total(device / "aer_dev_nonfatal")
        fatal = _total(device / "aer_dev_fatal")
        if correctable is nonfatal is fatal is None:
            continue
        found.append(
            AerCounters(
                address=function.address,
                correctable=correctable,
                nonfatal=nonfatal,
                fatal=fatal,
            )
        )
    return tuple(found)


def _total(path: Path) -> int | None:
    try:
        with path.open("rb") as file:
            lines = file.read(MAX_BYTES).decode("ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        # The function has no AER, the kernel does not count it, or it is being unplugged.
        return None
    for line in lines:
        name, _, number = line.partition(" ")
        if name.startswith(TOTAL) and number.isdecimal() and len(number) <= 20:
            return int(number)
    return None
