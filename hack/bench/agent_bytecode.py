"""Lets a bench's agents run on the bytecode of the image, which has no docstrings.

Called by `hack.bench.agent`: it is compiled as the image's Dockerfile does, into a folder of its
own, and found there through PYTHONPYCACHEPREFIX by every interpreter that is started after.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from hack.bench.agent_processes import ROOT

_LIBRARIES = ("msgspec", "prometheus_client", "psutil", "pynvml.py", "pyudev", "urllib3", "yaml")


@contextmanager
def image_bytecode() -> Iterator[None]:
    """The image's bytecode for all processes that are started within."""
    paths = sysconfig.get_paths()
    installed = [Path(paths["purelib"]) / name for name in _LIBRARIES]
    # The simulator as well: an agent that had to compile it would be a larger one.
    ours = [ROOT / name for name in ("agent", "rules", "hack")]
    places = [*ours, Path(paths["stdlib"]), *installed]
    with TemporaryDirectory(prefix="gpuward-bench-") as folder:
        os.environ["PYTHONPYCACHEPREFIX"] = folder
        program = str(ROOT / "daemonset" / "bytecode.py")
        command = [sys.executable, "-X", "no_debug_ranges", program, *map(str, places)]
        subprocess.run(command, check=True)
        try:
            yield
        finally:
            del os.environ["PYTHONPYCACHEPREFIX"]
