"""Which kernel modules of the driver's world are loaded, and the letters of their taint.

Called by `agent.senses.host`. Reads sysfs only, bounded; what cannot be read is left out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

SYSFS: Final = Path("/sys/module")
MODULES: Final = ("nvidia", "nvidia_peermem", "nv_peer_mem")
MAX_LETTERS: Final = 16


def kernel_modules(root: Path = SYSFS) -> dict[str, str]:
    """Each loaded module of `MODULES` with its taint: `OE` out of tree, unsigned; `P`
    proprietary.
    """
    found = {}
    for name in MODULES:
        try:
            with (root / name / "taint").open("rb") as file:
                letters = file.read(MAX_LETTERS)
        except OSError:
            # Not loaded, or a kernel that does not tell: nothing is said of it.
            continue
        found[name] = letters.decode("ascii", "replace").strip()
    return found
