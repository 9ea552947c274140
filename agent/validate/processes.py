"""How a module of ours is started as a process of its own, from a wheel or a checkout.

Used by `crew` and `reading`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

DIE_WITHIN_S: Final = 2.0
"""For a process that was killed. One that sits in the kernel beyond that is left and named."""
_ROOT: Final = Path(__file__).resolve().parents[2]
_HIDES_GPUS: Final = "CUDA_VISIBLE_DEVICES"


def module_command(module: str, *arguments: str) -> list[str]:
    """The command line of `module`."""
    return [sys.executable, "-m", module, *arguments]


def module_environment() -> dict[str, str]:
    """The environment: ours, without what hides GPUs from CUDA, and with ourselves on the path."""
    kept = {name: value for name, value in os.environ.items() if name != _HIDES_GPUS}
    path = os.pathsep.join(filter(None, (str(_ROOT), kept.get("PYTHONPATH"))))
    return {**kept, "PYTHONPATH": path}
