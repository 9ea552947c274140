"""The CUDA driver API, as much of it as the test needs: `libcuda.so.1` through ctypes, no toolkit.

Used by `device` in a process of its own. Every function is declared with its types, or ctypes
would cut 64-bit addresses; every failure is a `CudaError` with the call and its code.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any, Final

LIBRARY: Final = "libcuda.so.1"
_SYMBOL_MISSING: Final = 500
"""CUDA_ERROR_NOT_FOUND, for a library that lacks a function."""


class Uuid(ctypes.Structure):
    """CUuuid."""

    _fields_ = (("bytes", ctypes.c_ubyte * 16),)

    def __str__(self) -> str:
        """As NVML spells it: `GPU-` and the groups."""
        digits = bytes(self.bytes).hex()
        groups = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
        return "GPU-" + "-".join(groups)


_POINTER: Final = POINTER(c_void_p)
_TYPES: Final[dict[str, tuple[Any, ...]]] = {
    "cuInit": (c_uint,),
    "cuGetErrorName": (c_int, POINTER(c_char_p)),
    "cuDeviceGetCount": (POINTER(c_int),),
    "cuDeviceGet": (POINTER(c_int), c_int),
    "cuDeviceGetUuid_v2": (POINTER(Uuid), c_int),
    "cuDeviceCanAccessPeer": (POINTER(c_int), c_int, c_int),
    "cuDevicePrimaryCtxRetain": (_POINTER, c_int),
    "cuDevicePrimaryCtxRelease_v2": (c_int,),
    "cuCtxSetCurrent": (c_void_p,),
    "cuCtxSynchronize": (),
    "cuCtxEnablePeerAccess": (c_void_p, c_uint),
    "cuMemGetInfo_v2": (POINTER(c_size_t), POINTER(c_size_t)),
    "cuMemAlloc_v2": (POINTER(c_uint64), c_size_t),
    "cuMemFree_v2": (c_uint64,),
    "cuMemHostAlloc": (_POINTER, c_size_t, c_uint),
    "cuMemFreeHost": (c_void_p,),
    "cuMemcpyHtoDAsync_v2": (c_uint64, c_void_p, c_size_t, c_void_p),
    "cuMemcpyDtoHAsync_v2": (c_void_p, c_uint64, c_size_t, c_void_p),
    "cuMemcpyPeerAsync": (c_uint64, c_void_p, c_uint64, c_void_p, c_size_t, c_void_p),
    "cuEventCreate": (_POINTER, c_uint),
    "cuEventRecord": (c_void_p, c_void_p),
    "cuEventElapsedTime": (POINTER(c_float), c_void_p, c_void_p),
    "cuModuleLoadData": (_POINTER, c_char_p),
    "cuModuleGetFunction": (_POINTER, c_void_p, c_char_p),
    "cuLaunchKernel": (
        c_void_p,
        *((c_uint,) * 6),
        c_uint,
        c_void_p,
        POINTER(c_void_p),
        POINTER(c_void_p),
    ),
}
"""Arguments, from cuda.h; all return a CUresult."""


class CudaError(Exception):
    """A call that did not succeed."""

    def __init__(self, call: str, code: int, name: str = "") -> None:
        super().__init__(f"{call} gave {name or code}")
        self.call = call
        self.code = code
        self.name = name


def load() -> Any:
    """The driver's library. Raises OSError where there is none."""
    return ctypes.CDLL(LIBRARY)


class Cuda:
    """Calls into `library`, checked; what they hand out is returned."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._functions: dict[str, Callable[..., int]] = {}

    def call(self, name: str, *arguments: Any) -> None:
        """Make one call. Raises CudaError where it fails, or where the library lacks it."""
        code = self._function(name)(*arguments)
        if code:
            raise CudaError(name, code, self._name_of(code))

    def number(self, name: str, *arguments: Any) -> int:
        """The int that a call puts through its first argument."""
        found = c_int()
        self.call(name, byref(found), *arguments)
        return found.value

    def handle(self, name: str, *arguments: Any) -> c_void_p:
        """The handle or host address that a call puts through its first argument."""
        found = c_void_p()
        self.call(name, byref(found), *arguments)
        return found

    def allocate(self, size: int) -> int:
        """The address of so many bytes of device memory."""
        found = c_uint64()
        self.call("cuMemAlloc_v2", byref(found), size)
        return found.value

    def memory(self) -> tuple[int, int]:
        """Bytes free and in all on the current GPU."""
        free, total = c_size_t(), c_size_t()
        self.call("cuMemGetInfo_v2", byref(free), byref(total))
        return free.value, total.value

    def milliseconds(self, start: c_void_p, end: c_void_p) -> float:
        """Between two events that were reached."""
        found = c_float()
        self.call("cuEventElapsedTime", byref(found), start, end)
        return found.value

    def uuids(self) -> dict[str, int]:
        """The ordinal of each GPU that CUDA sees, by UUID."""
        found = {}
        for place in range(self.number("cuDeviceGetCount")):
            device = self.number("cuDeviceGet", place)
            uuid = Uuid()
            self.call("cuDeviceGetUuid_v2", byref(uuid), device)
            found[str(uuid)] = device
        return found

    def launch(self, function: c_void_p, blocks: int, threads: int, *parameters: Any) -> None:
        """Start a kernel on the current GPU. The parameters are ctypes values."""
        addresses = (c_void_p * len(parameters))(
            *(ctypes.addressof(parameter) for parameter in parameters)
        )
        grid = (blocks, 1, 1, threads, 1, 1)
        self.call("cuLaunchKernel", function, *grid, 0, None, addresses, None)

    def _function(self, name: str) -> Callable[..., int]:
        if name not in self._functions:
            try:
                function = getattr(self._library, name)
            except AttributeError:
                raise CudaError(name, _SYMBOL_MISSING, "not in this driver's library") from None
            function.argtypes = _TYPES[name]
            function.restype = c_int
            self._functions[name] = function
        return self._functions[name]

    def _name_of(self, code: int) -> str:
        name = c_char_p()
        if self._function("cuGetErrorName")(code, byref(name)) or name.value is None:
            return ""
        return name.value.decode("ascii", "replace")[:60]
