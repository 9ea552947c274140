"""Puts this process beside its GPU: pinned memory from the far socket is slower than the link.

Called by `worker` before CUDA starts. Where the machine does not say what is near, or a pod may
not run there, everything stays as it is.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

PCI_DEVICES: Final = Path("/sys/bus/pci/devices")
MAX_CPUS: Final = 1 << 14


def move_near(pci: str, devices: Path = PCI_DEVICES) -> None:
    """Run on the CPUs of the GPU's socket from now on, those of them that we may use."""
    with suppress(OSError, ValueError):
        near = cpus_of((devices / pci / "local_cpulist").read_text(encoding="ascii"))
        usable = near & os.sched_getaffinity(0)
        if usable:
            os.sched_setaffinity(0, usable)


def cpus_of(text: str) -> set[int]:
    """The numbers in a list of the kernel's: `0-3,8`. Raises ValueError for what is none."""
    found: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        numbers = range(int(first), int(last or first) + 1)
        if len(numbers) > MAX_CPUS:
            raise ValueError(f"{part} is no range of CPUs")
        found.update(numbers)
    return found
