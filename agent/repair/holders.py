"""Which processes of the host have a GPU open: by their open files, wherever they run.

Called by `agent.repair.reset`. NVML lists those that compute, but not those that only watch
(exporters, the device plugin, the persistence daemon), and a reset minds all of them. Needs the
host's processes in sight and the right to read every one's open files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

from rules.repair.reset import Holder

_DEVICE: Final = re.compile(r"/dev/nvidia(\d{1,4})( \(deleted\))?")
_MINOR: Final = re.compile(r"^Device Minor:\s+(\d{1,4})\s*$", re.MULTILINE)


def minor_of(proc: Path, pci: str) -> int | None:
    """The number N of `/dev/nvidia<N>` of the GPU at this address; None where nobody says it."""
    try:
        text = (proc / "driver/nvidia/gpus" / pci / "information").read_text(errors="replace")
    except OSError:
        return None
    found = _MINOR.search(text)
    return int(found[1]) if found is not None else None


def holders(proc: Path, minors: Collection[int]) -> tuple[Holder, ...]:
    """Who has one of these GPUs open, this process left out."""
    numbers = sorted(int(name) for name in os.listdir(proc) if name.isdecimal())  # noqa: PTH208 - thousands
    found = (pid for pid in numbers if pid != os.getpid() and _holds(proc, pid, minors))
    return tuple(Holder(pid=pid, name=_name(proc, pid)) for pid in found)


def _holds(proc: Path, pid: int, minors: Collection[int]) -> bool:
    return any(
        (device := _DEVICE.fullmatch(target)) is not None and int(device[1]) in minors
        for target in _open_files(proc / str(pid) / "fd")
    )


def _open_files(folder: Path) -> Iterator[str]:
    """What each descriptor points to; nothing of a process that has ended meanwhile."""
    try:
        names = os.listdir(folder)  # noqa: PTH208 - tens of thousands of them
    except FileNotFoundError:
        return
    for name in names:
        try:
            yield os.readlink(f"{folder}/{name}")  # noqa: PTH115 - as above
        except OSError:
            continue


def _name(proc: Path, pid: int) -> str:
    try:
        return (proc / str(pid) / "comm").read_text(errors="replace").strip()[:15] or "?"
    except OSError:
        return "?"
