"""The device files of the NVIDIA driver: one more witness of how many GPUs there are.

Called by the host sensing thread; lists a directory and opens nothing.
"""

from __future__ import annotations

import re
from pathlib import Path

DEV = Path("/dev")
_DEVICE = re.compile(r"nvidia(\d{1,3})")


def nvidia_minors(root: Path = DEV) -> tuple[int, ...]:
    """The minor numbers of `/dev/nvidia<N>`, sorted. Raises OSError when there is no directory."""
    found = (_DEVICE.fullmatch(entry.name) for entry in root.iterdir())
    return tuple(sorted(int(match[1]) for match in found if match))
