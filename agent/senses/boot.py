"""When the kernel started, in wall time: for the look at the host and the search for workloads."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
_MAX_BYTES: Final = 1 << 20
"""The file's line of interrupts grows with CPUs and devices: some 50 KiB on a large host."""
_BOOTED: Final = re.compile(rb"^btime (\d{1,12})$", re.MULTILINE)


def booted_at(proc: Path = PROC) -> float:
    """Wall time of the boot in whole seconds; 0 where the kernel does not say (proc_stat(5))."""
    try:
        with (proc / "stat").open("rb") as file:
            found = _BOOTED.search(file.read(_MAX_BYTES))
    except OSError:
        return 0.0
    return float(found[1]) if found else 0.0
