"""The simulated NVML shared library: an object with C-like functions as attributes.

`pynvml` gets functions from its `nvmlLib` and calls them with ctypes arguments. The functions that
the `calls_*` modules register here fill in those arguments and return NVML codes. A function that
is not registered, or is newer than the simulated driver, raises AttributeError, as in a real
library. Handles are numbers cast to pointers and are never dereferenced.
"""

import ctypes
import re
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import pynvml

from hack.sim.driver.node import Gpu, MigInstance, Node
from hack.sim.driver.numbers import SYMBOLS
from hack.sim.driver.store import NodeFile

SUCCESS = 0
UNINITIALIZED = 1
INVALID_ARGUMENT = 2
NOT_SUPPORTED = 3
NOT_FOUND = 6
INSUFFICIENT_SIZE = 7
TIMEOUT = 10
FUNCTION_NOT_FOUND = 13
CORRUPTED_INFOROM = 14
GPU_IS_LOST = 15
RESET_REQUIRED = 16
NO_DATA = 21
ARGUMENT_VERSION_MISMATCH = 25
GPU_NOT_FOUND = 28

Function = Callable[..., int]
_BYTE = re.compile(rb"\\x([0-9a-fA-F]{2})")


class Call(NamedTuple):
    """An NVML function, with flags whether it takes a device and whether it needs nvmlInit."""

    function: Function
    per_device: bool = False
    with_handle: bool = False
    needs_init: bool = True


CALLS: dict[str, Call] = {}


def system_call(*names: str, needs_init: bool = True) -> Callable[[Function], Function]:
    """Register `function(library, *arguments)` under these symbols."""

    def register(function: Function) -> Function:
        for name in names:
            CALLS[name] = Call(function, needs_init=needs_init)
        return function

    return register


def device_call(*names: str, with_handle: bool = False) -> Callable[[Function], Function]:
    """Register `function(library, gpu, *arguments after the handle)` under these symbols.

    `with_handle` adds the resolved `Handle` after the GPU, for calls that depend on MIG devices.
    """

    def register(function: Function) -> Function:
        for name in names:
            CALLS[name] = Call(function, per_device=True, with_handle=with_handle)
        return function

    return register


class Handle(NamedTuple):
    """The meaning of a device handle: a GPU, and its MIG instance if it is one."""

    uuid: str
    instance: MigInstance | None = None


WRAPPERS: list[Callable[[Function], Function]] = []
"""Applied to each function that `pynvml` gets. A benchmark measures the simulator with one."""


def _of_present_library(entry: Function, name: str) -> Function:
    """Return the function of the library that pynvml uses now, with the return type of `entry`."""
    library: Any = pynvml.nvmlLib
    found: Any = getattr(library, name, None)
    if found is None:
        return lambda *_: UNINITIALIZED if library is None else FUNCTION_NOT_FOUND
    if hasattr(entry, "restype"):
        found.restype = entry.restype
    present: Function = found
    return present


class SimulatedLibrary:
    """NVML in one process, on the node that `file` describes."""

    def __init__(self, file: NodeFile) -> None:
        self.file = file
        self.references = 0
        self.attached: list[str] = []
        self.sets: dict[int, Any] = {}
        self._restart = 0
        self._handles: dict[int, Handle] = {}
        self._numbers: dict[Handle, int] = {}
        self._next_number = 0x7F00_0000_0010
        self._lock = threading.Lock()

    @property
    def node(self) -> Node:
        """The node that the file describes now."""
        return self.file.current()

    def __getattr__(self, name: str) -> Function:
        call = CALLS.get(name)
        node = self.node
        if call is None or name in node.missing or node.driver.branch < SYMBOLS.get(name, 0):
            raise AttributeError(f"undefined symbol: {name}")

        def entry(*arguments: Any) -> int:
            in_use: bool = pynvml.nvmlLib is self
            if in_use:
                return self._enter(name, call, arguments)
            # pynvml caches functions, also those of an earlier library.
            return _of_present_library(entry, name)(*arguments)

        entry.__name__ = name
        for wrap in WRAPPERS:
            entry = wrap(entry)
        return entry

    def attach(self) -> None:
        """Enumerate the GPUs, as nvmlInit does: each gets an index, also a lost one."""
        node = self.node
        self.references += 1
        if self.references == 1 or self._restart != node.driver_restart:
            self.references = 1
            self._restart = node.driver_restart
            self.attached = [gpu.uuid for gpu in node.gpus if not gpu.unplugged]
            self._handles.clear()
            self._numbers.clear()
            self.sets.clear()

    def detach(self) -> None:
        """Decrement the count of initialisations, as nvmlShutdown does."""
        self.references -= 1

    def stale(self, node: Node) -> bool:
        """Whether NVML is not initialised, or the driver has restarted since."""
        return self.references == 0 or self._restart != node.driver_restart

    def gpu(self, uuid: str, node: Node | None = None) -> Gpu | None:
        """Return the GPU with this UUID; None if it was unplugged or removed from the file."""
        gpus = (node or self.node).gpus
        return next((gpu for gpu in gpus if gpu.uuid == uuid and not gpu.unplugged), None)

    def number(self, handle: Handle) -> int:
        """Return the pointer value of `handle`, valid until the next initialisation."""
        with self._lock:
            if handle not in self._numbers:
                self._numbers[handle] = self.new_number()
                self._handles[self._numbers[handle]] = handle
            return self._numbers[handle]

    def new_number(self) -> int:
        """Return a new pointer value."""
        self._next_number += 0x10
        return self._next_number

    def handle(self, argument: Any) -> Handle | None:
        """Return the meaning of a handle from the caller; None if it is stale or invalid."""
        return self._handles.get(pointer_value(argument))

    def hand_out(self, argument: Any, handle: Handle, call: str = "") -> int:
        """Fill in a device handle and return the code; a lost GPU or a failing `call` has none."""
        gpu = self.gpu(handle.uuid)
        if gpu is None or gpu.lost:
            return GPU_IS_LOST
        if call in gpu.errors:
            return gpu.errors[call]
        fill_pointer(argument, self.number(handle))
        return SUCCESS

    def _enter(self, name: str, call: Call, arguments: tuple[Any, ...]) -> int:
        node = self.node
        self._hang(node.hang_s.get(name, 0.0))
        if name in node.errors:
            return node.errors[name]
        if call.needs_init and self.stale(node):
            return UNINITIALIZED
        if not call.per_device:
            return call.function(self, *arguments)
        handle = self.handle(arguments[0])
        if handle is None:
            return INVALID_ARGUMENT
        gpu = self.gpu(handle.uuid, node)
        if gpu is None:
            return GPU_IS_LOST
        self._hang(gpu.hang_s.get(name, 0.0))
        if name in gpu.errors:
            return gpu.errors[name]
        if gpu.lost:
            return GPU_IS_LOST
        if gpu.reset_required and name not in STILL_ANSWERED:
            return RESET_REQUIRED
        own = (handle,) if call.with_handle else ()
        return call.function(self, gpu, *own, *arguments[1:])

    def _hang(self, seconds: float) -> None:
        if seconds:
            time.sleep(seconds)


STILL_ANSWERED = frozenset(
    (
        "nvmlDeviceGetUUID",
        "nvmlDeviceGetIndex",
        "nvmlDeviceGetPciInfo_v3",
        "nvmlDeviceGetMinorNumber",
    )
)
"""Calls that work on a GPU that needs a reset: the driver answers them from memory."""


def referenced(argument: Any) -> Any:
    """Return the object of `byref(object)`, or the object itself."""
    return getattr(argument, "_obj", argument)


def pointer_value(argument: Any) -> int:
    """Return the number of a handle, passed by value or by reference."""
    return ctypes.cast(referenced(argument), ctypes.c_void_p).value or 0


def fill_pointer(argument: Any, number: int) -> None:
    """Write a handle into a `byref` argument or a pointer object."""
    ctypes.memmove(
        ctypes.addressof(referenced(argument)),
        ctypes.byref(ctypes.c_void_p(number)),
        ctypes.sizeof(ctypes.c_void_p),
    )


def number_of(argument: Any) -> int:
    """Return an integer argument, plain or as a ctypes object."""
    return int(getattr(argument, "value", argument))


def put(argument: Any, value: float) -> int:
    """Write a number through a `byref` argument."""
    referenced(argument).value = value
    return SUCCESS


def as_bytes(text: str) -> bytes:
    """Return the text in UTF-8, each `\\xHH` in it as that byte."""
    return _BYTE.sub(lambda match: bytes.fromhex(match[1].decode()), text.encode())


def put_text(buffer: Any, text: str, size: Any) -> int:
    """Write a C string; return 7 if it does not fit. `\\xHH` in the text becomes that byte."""
    data = as_bytes(text)
    if len(data) >= number_of(size):
        return INSUFFICIENT_SIZE
    buffer.value = data
    return SUCCESS
