"""What each function of the simulated CUDA driver does. Registered with `library`."""

from __future__ import annotations

import ctypes
import sys
import time
from ctypes import POINTER, c_char_p, c_float, c_int, c_size_t, c_ubyte, c_uint, c_uint64, c_void_p
from typing import Any

from hack.sim.cuda.library import (
    SUCCESS,
    SimulatedCuda,
    cuda_call,
)
from hack.sim.cuda.memory import APART, DeviceMemory
from hack.sim.cuda.ptx import Entry, PtxError, compile_module

INVALID_VALUE, OUT_OF_MEMORY = 1, 2
NO_DEVICE, INVALID_DEVICE, INVALID_CONTEXT, INVALID_PTX = 100, 101, 201, 218
INVALID_HANDLE, NOT_FOUND, ILLEGAL_ADDRESS, ALREADY_ENABLED = 400, 500, 700, 704
NAMES = {
    SUCCESS: b"CUDA_SUCCESS",
    OUT_OF_MEMORY: b"CUDA_ERROR_OUT_OF_MEMORY",
    NO_DEVICE: b"CUDA_ERROR_NO_DEVICE",
    INVALID_PTX: b"CUDA_ERROR_INVALID_PTX",
    214: b"CUDA_ERROR_ECC_UNCORRECTABLE",
    ILLEGAL_ADDRESS: b"CUDA_ERROR_ILLEGAL_ADDRESS",
    719: b"CUDA_ERROR_LAUNCH_FAILED",
    802: b"CUDA_ERROR_SYSTEM_NOT_READY",
    999: b"CUDA_ERROR_UNKNOWN",
}
BLOCKS, THREADS = 1, 4
"""What is run of any grid: a kernel that strides over its grid does the same work with fewer."""
WAITED = 3.0
"""Times as long as its threads took here: a GPU computes by itself, who launched only waits."""

OUT = POINTER(c_void_p)


@cuda_call("cuInit", c_uint, needs="")
def initialise(library: SimulatedCuda, _flags: int) -> int:
    node = library.node
    gone = [gpu.unplugged or gpu.lost or bool(gpu.mig and gpu.mig.enabled) for gpu in node.gpus]
    library.places = [place for place, away in enumerate(gone) if not away]
    return SUCCESS if library.places and not node.init_error else NO_DEVICE


@cuda_call("cuGetErrorName", c_int, POINTER(c_char_p), needs="")
def error_name(_library: SimulatedCuda, code: int, name: Any) -> int:
    if code not in NAMES:
        return INVALID_VALUE
    name[0] = NAMES[code]
    return SUCCESS


@cuda_call("cuDeviceGetCount", POINTER(c_int), needs="init")
def device_count(library: SimulatedCuda, count: Any) -> int:
    count[0] = len(library.places or ())
    return SUCCESS


@cuda_call("cuDeviceGet", POINTER(c_int), c_int, needs="init")
def device_at(library: SimulatedCuda, device: Any, ordinal: int) -> int:
    if not 0 <= ordinal < len(library.places or ()):
        return INVALID_DEVICE
    device[0] = ordinal
    return SUCCESS


@cuda_call("cuDeviceGetUuid_v2", POINTER(c_ubyte * 16), c_int, needs="init")
def uuid_of(library: SimulatedCuda, uuid: Any, device: int) -> int:
    digits = library.gpu(library.place(device)).uuid.removeprefix("GPU-").replace("-", "")
    uuid[0] = (c_ubyte * 16)(*bytes.fromhex(digits))
    return SUCCESS


@cuda_call("cuDeviceCanAccessPeer", POINTER(c_int), c_int, c_int, needs="init")
def can_access(library: SimulatedCuda, can: Any, device: int, peer: int) -> int:
    can[0] = int(library.place(peer) not in library.gpu(library.place(device)).cuda.unreachable)
    return SUCCESS


@cuda_call("cuDevicePrimaryCtxRetain", OUT, c_int, needs="init")
def retain(library: SimulatedCuda, context: Any, device: int) -> int:
    place = library.place(device)
    code = library.trouble("cuDevicePrimaryCtxRetain", library.gpu(place))
    if not code:
        if place not in library.memories:
            library.memories[place] = DeviceMemory(place, lambda: library.gpu(place))
        context[0] = place + 1
    return code


@cuda_call("cuDevicePrimaryCtxRelease_v2", c_int, needs="init")
def release(_library: SimulatedCuda, _device: int) -> int:
    return SUCCESS


@cuda_call("cuCtxSetCurrent", c_void_p, needs="init")
def set_current(library: SimulatedCuda, context: int | None) -> int:
    if context is None or context - 1 not in library.memories:
        return INVALID_CONTEXT
    library.current = context - 1
    return SUCCESS


@cuda_call("cuCtxSynchronize")
def synchronise(_library: SimulatedCuda) -> int:
    return SUCCESS


@cuda_call("cuCtxEnablePeerAccess", c_void_p, c_uint)
def enable_peer(library: SimulatedCuda, context: int, _flags: int) -> int:
    assert library.current is not None
    pair = (library.current, context - 1)
    if pair in library.peers:
        return ALREADY_ENABLED
    library.peers.add(pair)
    return SUCCESS


@cuda_call("cuMemGetInfo_v2", POINTER(c_size_t), POINTER(c_size_t))
def memory_info(library: SimulatedCuda, free: Any, total: Any) -> int:
    free[0], total[0] = library.here().free, library.here().total
    return SUCCESS


@cuda_call("cuMemAlloc_v2", POINTER(c_uint64), c_size_t)
def allocate(library: SimulatedCuda, address: Any, size: int) -> int:
    if not size:
        return INVALID_VALUE
    found = library.here().allocate(size)
    if found is None:
        return OUT_OF_MEMORY
    address[0] = found
    return SUCCESS


@cuda_call("cuMemFree_v2", c_uint64)
def free(library: SimulatedCuda, address: int) -> int:
    return SUCCESS if library.memory_at(address).release(address) else INVALID_VALUE


@cuda_call("cuMemHostAlloc", OUT, c_size_t, c_uint, needs="init")
def allocate_host(library: SimulatedCuda, address: Any, size: int, _flags: int) -> int:
    room = ctypes.create_string_buffer(size)
    library.objects[ctypes.addressof(room)] = room
    address[0] = ctypes.addressof(room)
    return SUCCESS


@cuda_call("cuMemFreeHost", c_void_p, needs="init")
def free_host(library: SimulatedCuda, address: int) -> int:
    return SUCCESS if library.objects.pop(address, None) is not None else INVALID_VALUE


@cuda_call("cuMemcpyHtoDAsync_v2", c_uint64, c_void_p, c_size_t, c_void_p)
def copy_to_device(library: SimulatedCuda, to: int, of: int, size: int, _stream: int) -> int:
    memory = library.memory_at(to)
    memory.refresh()
    memory.write_bytes(to, ctypes.string_at(of, size))
    library.took(size, library.gpu(to // APART - 1).cuda.to_device)
    return SUCCESS


@cuda_call("cuMemcpyDtoHAsync_v2", c_void_p, c_uint64, c_size_t, c_void_p)
def copy_to_host(library: SimulatedCuda, to: int, of: int, size: int, _stream: int) -> int:
    memory = library.memory_at(of)
    memory.refresh()
    ctypes.memmove(to, memory.read_bytes(of, size), size)
    library.took(size, library.gpu(of // APART - 1).cuda.to_host)
    return SUCCESS


@cuda_call("cuMemcpyPeerAsync", c_uint64, c_void_p, c_uint64, c_void_p, c_size_t, c_void_p)
def copy_to_peer(
    library: SimulatedCuda, to: int, _there: int, of: int, _here: int, size: int, _stream: int
) -> int:
    source, target = of // APART - 1, to // APART - 1
    code = library.trouble("cuMemcpyPeerAsync", library.gpu(target))
    if code:
        return code
    library.memory_at(to).write_bytes(to, library.memory_at(of).read_bytes(of, size))
    cuda = library.gpu(source).cuda
    library.took(size, cuda.to_peers.get(target, cuda.to_peer))
    return SUCCESS


@cuda_call("cuEventCreate", OUT, c_uint)
def event(library: SimulatedCuda, event: Any, _flags: int) -> int:
    event[0] = library.keep(None)
    return SUCCESS


@cuda_call("cuEventRecord", c_void_p, c_void_p)
def record(library: SimulatedCuda, event: int, _stream: int) -> int:
    library.objects[event] = library.clock_ms
    return SUCCESS


@cuda_call("cuEventElapsedTime", POINTER(c_float), c_void_p, c_void_p)
def elapsed(library: SimulatedCuda, milliseconds: Any, start: int, end: int) -> int:
    if library.objects.get(start) is None or library.objects.get(end) is None:
        return INVALID_HANDLE
    milliseconds[0] = library.objects[end] - library.objects[start]
    return SUCCESS


@cuda_call("cuModuleLoadData", OUT, c_char_p)
def load_module(library: SimulatedCuda, module: Any, text: bytes) -> int:
    try:
        module[0] = library.keep(compile_module(text.decode()))
    except PtxError as error:
        print(f"ptxas, simulated: {error}", file=sys.stderr)
        return INVALID_PTX
    return SUCCESS


@cuda_call("cuModuleGetFunction", OUT, c_void_p, c_char_p)
def function_of(library: SimulatedCuda, function: Any, module: int, name: bytes) -> int:
    entries: dict[str, Entry] = library.objects[module]
    if name.decode() not in entries:
        return NOT_FOUND
    function[0] = library.keep(entries[name.decode()])
    return SUCCESS


@cuda_call(
    "cuLaunchKernel", c_void_p, *(c_uint,) * 7, c_void_p, POINTER(c_void_p), POINTER(c_void_p)
)
def launch(library: SimulatedCuda, function: int, *given: Any) -> int:
    entry: Entry = library.objects[function]
    parameters = given[8]
    values = {
        name: (c_uint64 if kind.endswith("64") else c_uint).from_address(parameters[place]).value
        for place, (kind, name) in enumerate(entry.parameters)
    }
    memory = library.here()
    memory.refresh()
    began_s = time.thread_time()
    for thread in range(THREADS):
        entry.run(values, memory, 0, THREADS, thread, BLOCKS)
    time.sleep(WAITED * (time.thread_time() - began_s))
    return SUCCESS
