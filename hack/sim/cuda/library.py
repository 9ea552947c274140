"""The simulated `libcuda.so.1`: every function is a C function with the types of cuda.h.

An argument of another type, or one too many, fails as it would at the real library, since ctypes
marshals it. Time is simulated: a copy takes as long as the description's bandwidth says.
"""

from __future__ import annotations

import ctypes
import itertools
import sys
import time
import traceback
from collections.abc import Callable
from ctypes import c_int
from pathlib import Path
from typing import Any, Literal, NamedTuple

from hack.sim.cuda.memory import APART, DeviceMemory, IllegalAddressError
from hack.sim.driver.node import Gpu, Node
from hack.sim.driver.store import NodeFile, set_gpu

SUCCESS, NOT_INITIALIZED, INVALID_CONTEXT, ILLEGAL_ADDRESS, UNKNOWN = 0, 3, 201, 700, 999


class Call(NamedTuple):
    """A function: its argument types, and whether it wants cuInit or a current context first."""

    name: str
    types: tuple[Any, ...]
    function: Callable[..., int]
    needs: str


CALLS: dict[str, Call] = {}


def cuda_call(
    name: str, *types: Any, needs: Literal["", "init", "context"] = "context"
) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Register `function(library, *arguments)` under this symbol; the types are those of
    cuda.h.
    """

    def register(function: Callable[..., int]) -> Callable[..., int]:
        CALLS[name] = Call(name, types, function, needs)
        return function

    return register


class SimulatedCuda:
    """One process's view of CUDA on the node that a file describes."""

    def __init__(self, path: str | Path) -> None:
        self._path = path
        self._file = NodeFile(path)
        self.places: list[int] | None = None
        """Positions in the description of the GPUs that CUDA saw when it started."""
        self.memories: dict[int, DeviceMemory] = {}
        self.current: int | None = None
        self.clock_ms = 0.0
        self._numbers = itertools.count(0x5000, 0x10)
        self.objects: dict[int, Any] = {}
        self.peers: set[tuple[int, int]] = set()
        self._functions: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        call = CALLS.get(name)
        if call is None or name in self.node.missing:
            raise AttributeError(f"undefined symbol: {name}")
        if name not in self._functions:
            kind = ctypes.CFUNCTYPE(c_int, *call.types)
            self._functions[name] = kind(lambda *given: self._entered(call, given))
        return self._functions[name]

    @property
    def node(self) -> Node:
        """The node as its file describes it now."""
        return self._file.current()

    def _entered(self, call: Call, given: tuple[Any, ...]) -> int:
        """A call from outside: an exception cannot go through C."""
        try:
            return self._enter(call, given)
        except IllegalAddressError:
            return ILLEGAL_ADDRESS
        except Exception:  # noqa: BLE001 - whatever it is, the caller gets a code
            traceback.print_exc(file=sys.stderr)
            return UNKNOWN

    def _enter(self, call: Call, given: tuple[Any, ...]) -> int:
        name = call.name
        node = self.node
        time.sleep(node.hang_s.get(name, 0.0))
        if name in node.errors:
            return node.errors[name]
        if self.places is None and call.needs:
            return NOT_INITIALIZED
        if self.current is None and call.needs == "context":
            return INVALID_CONTEXT
        if self.current is not None and call.needs:
            code = self.trouble(name, self.gpu(self.current))
            if code:
                return code
        return call.function(self, *given)

    def trouble(self, name: str, gpu: Gpu) -> int:
        """What the faults of the current GPU make of this call."""
        if gpu.cuda.lost_at == name and not gpu.lost:
            # Everybody sees a GPU that falls off the bus, NVML too.
            set_gpu(self._path, self.node.gpus.index(gpu), lost=True)
            return UNKNOWN
        if gpu.lost:
            return UNKNOWN
        time.sleep(gpu.hang_s.get(name, 0.0))
        return gpu.errors.get(name, SUCCESS)

    def gpu(self, place: int) -> Gpu:
        return self.node.gpus[place]

    def keep(self, thing: Any) -> int:
        number = next(self._numbers)
        self.objects[number] = thing
        return number

    def memory_at(self, address: int) -> DeviceMemory:
        memory = self.memories.get(address // APART - 1)
        if memory is None:
            raise IllegalAddressError(f"{address:#x} is no GPU's")
        return memory

    def here(self) -> DeviceMemory:
        assert self.current is not None
        return self.memories[self.current]

    def took(self, size: int, gigabytes: float) -> None:
        self.clock_ms += size / gigabytes / 1e6

    def place(self, device: int) -> int:
        assert self.places is not None
        return self.places[device]
