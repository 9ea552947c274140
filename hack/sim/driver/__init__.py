"""A simulated NVIDIA driver: it replaces the NVML shared library inside `pynvml`.

After `install("node.yaml")` the real `pynvml` code of this process reads the node that the file
describes; edits of the file take effect at once. Used by tests, the demo, the benchmarks and
`--nvml sim:FILE`; the image does not contain it.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

import pynvml

from hack.sim.driver import (  # noqa: F401 - importing registers the calls
    calls_device,
    calls_events,
    calls_fabric,
    calls_fields,
)
from hack.sim.driver.library import SimulatedLibrary
from hack.sim.driver.node import Node
from hack.sim.driver.store import (
    NodeFile,
    device_files,
    edit,
    functions_of,
    host_of,
    pci_functions,
    push_event,
    set_gpu,
    set_node,
)

__all__ = [
    "NODES",
    "Node",
    "NodeFile",
    "SimulatedDriver",
    "device_files",
    "edit",
    "functions_of",
    "host_of",
    "install",
    "pci_functions",
    "push_event",
    "set_gpu",
    "set_node",
]

NODES = Path(__file__).parent / "nodes"
"""The node descriptions of the simulator."""


class SimulatedDriver:
    """A context manager that replaces the library in `pynvml`, from its creation to its exit."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.library = SimulatedLibrary(NodeFile(path))
        self._before: Any = pynvml.nvmlLib
        pynvml.nvmlLib = self.library

    def uninstall(self) -> None:
        """Restore the real library."""
        pynvml.nvmlLib = self._before

    def __enter__(self) -> SimulatedDriver:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.uninstall()


def install(path: str | Path) -> SimulatedDriver:
    """Simulate the node that the file describes.

    Raises OSError or ValueError for an invalid file.
    """
    return SimulatedDriver(path)
