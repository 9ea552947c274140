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

_DEVICE: Final = re.compile(r".*/dev/nvidia(\d{1,4})( \(deleted\))?", re.DOTALL)
"""With whatever stands before it: of a process in a chroot, such as that of a driver container,
the kernel says the whole path.
"""
_MINOR: Final = re.compile(r"^Device Minor:\s+(\d{1,4})\s*$", re.MULTILINE)


class UnseenError(Exception):
    """Whether a process has a GPU open cannot be seen; the text is a clause."""


def minor_of(proc: Path, pci: str) -> int | None:
    """The number N of `/dev/nvidia<N>` of the GPU at this address; None where nobody says it."""
    try:
        text = (proc / "driver/nvidia/gpus" / pci / "information").read_text(errors="replace")
    except OSError:
        return None
    found = _MINOR.search(text)
    return int(found[1]) if found is not None else None


def holders(proc: Path, minors: Collection[int]) -> tuple[Holder, ...]:
    """Who has one of these GPUs open, this process left out. UnseenError where that is not known
    of every process: no sight of its files is not the same as no files.
    """
    numbers = sorted(int(name) for name in _names(proc) if name.isdecimal())
    found = (pid for pid in numbers if pid != os.getpid() and _holds(proc, pid, minors))
    return tuple(Holder(pid=pid, name=_name(proc, pid)) for pid in found)


def _holds(proc: Path, pid: int, minors: Collection[int]) -> bool:
    try:
        return any(
            (device := _DEVICE.fullmatch(target)) is not None and int(device[1]) in minors
            for target in _open_files(proc / str(pid))
        )
    except PermissionError as error:
        name = _name(proc, pid)
        raise UnseenError(f"the open files of {name} (process {pid}) cannot be read") from error


def _open_files(process: Path) -> Iterator[str]:
    """What each descriptor points to; nothing of a process that has ended meanwhile.
    PermissionError of one that lives.
    """
    folders = [f"{process}/fd"]
    if not _names(folders[0]):
        # Of one whose first thread has ended the others still have them.
        folders = [f"{process}/task/{thread}/fd" for thread in _names(f"{process}/task")]
    for folder in folders:
        for name in _names(folder):
            try:
                yield os.readlink(f"{folder}/{name}")  # noqa: PTH115 - tens of thousands of them
            except PermissionError:
                # The kernel says so of a process that is just ending, too.
                if os.path.lexists(f"{folder}/{name}"):
                    raise
            except OSError:
                continue


def _names(folder: str | Path) -> list[str]:
    """What is in it; nothing of a process that has ended meanwhile."""
    try:
        return os.listdir(folder)  # noqa: PTH208 - thousands of processes, each with many files
    except (FileNotFoundError, ProcessLookupError):
        return []


def _name(proc: Path, pid: int) -> str:
    try:
        return (proc / str(pid) / "comm").read_text(errors="replace").strip()[:15] or "?"
    except OSError:
        return "?"
