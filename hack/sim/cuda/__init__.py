"""A simulated CUDA driver at the boundary of `libcuda.so.1`: C functions that real ctypes code
calls.

`SimulatedCuda("node.yaml")` stands where `ctypes.CDLL` would give the library. It reads the same
description as the simulated NVML; the faults are in `Cuda` and `Gpu` of `hack.sim.driver.node`. It
runs the PTX that it is given, on a memory of some kilobytes and a grid of four threads.
"""

from __future__ import annotations

from hack.sim.cuda import calls  # noqa: F401 - importing registers the calls
from hack.sim.cuda.library import SimulatedCuda

__all__ = ["SimulatedCuda"]
