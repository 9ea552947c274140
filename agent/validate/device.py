"""What is done to one GPU: patterns through its memory, copies, and work with a checksum.

Run by `worker`. Everything allocated by a step is freed by it; whatever the driver refuses ends
the step as a `CudaError`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from ctypes import c_uint, c_uint64, c_void_p, memmove
from typing import Final, NamedTuple

from agent.validate.cuda import Cuda, CudaError
from agent.validate.kernels import BLOCKS, BURN, BURN_ROUNDS, MODULE, PATTERNS, THREADS

WORD: Final = 8
REPORT_BYTES: Final = 3 * WORD
"""What a checking kernel counts: wrong words, the least index of one, and the bits in doubt."""
ASKED_SHARE: Final = 0.92
"""Of the memory: a little over the nine tenths that must be tested."""
CHUNK_BYTES: Final = 4 << 30
"""Memory is asked for in parts of this size, and smaller ones where it is in pieces."""
RESERVE_BYTES: Final = 256 << 20
COPY_BYTES: Final = 256 << 20
"""Five milliseconds at 50 GB/s; each GPU's process pins as much of the host's memory."""
COPIES: Final = 5
"""After one that warms up."""
SEED: Final = 0x6770_7577_6172_6421
OUT_OF_MEMORY: Final = 2
ALREADY_ENABLED: Final = 704
NO_WORD: Final = (1 << 64) - 1


class Patterns(NamedTuple):
    """The pattern test: bytes tested and in all, words that came back otherwise and where."""

    tested: int
    total: int
    wrong: int
    first: int | None
    bits: int


class Sums(NamedTuple):
    """The checksum of the first launch, and how many of all differed from it."""

    launches: int
    first: int
    differing: int


class Device:
    """One GPU, opened by this process."""

    def __init__(self, cuda: Cuda, uuid: str) -> None:
        self._cuda = cuda
        cuda.call("cuInit", 0)
        self.seen = cuda.uuids()
        if uuid not in self.seen:
            raise CudaError("cuDeviceGetCount", 100, f"{uuid} is not among its GPUs")
        self._device = self.seen[uuid]
        self._context = self._open(self._device)
        self._module = cuda.handle("cuModuleLoadData", MODULE.encode())
        self._start = cuda.handle("cuEventCreate", 0)
        self._end = cuda.handle("cuEventCreate", 0)
        self._staging = cuda.handle("cuMemHostAlloc", REPORT_BYTES, 0)

    def memory(self) -> tuple[int, int]:
        """Bytes free and in all."""
        return self._cuda.memory()

    def patterns(self) -> Patterns:
        """Write and read back every pattern over nine tenths of the memory."""
        _, total = self._cuda.memory()
        wrong, first, bits = 0, None, 0
        with self._chunks() as chunks, self._room(REPORT_BYTES) as report:
            for pattern in PATTERNS:
                self._over("fill_" + pattern.word, chunks, pattern.shift, pattern.mask, report)
                began = 0
                for address, size in chunks:
                    self._write(report, (0, NO_WORD, 0))
                    self._pass(
                        "check_" + pattern.word,
                        (address, size),
                        pattern.shift + began // WORD,
                        pattern.mask,
                        report,
                    )
                    count, index, differing = self._read(report, 3)
                    wrong += count
                    bits |= differing
                    if count:
                        place = began + index * WORD
                        first = place if first is None else min(first, place)
                    began += size
            tested = sum(size for _, size in chunks)
        return Patterns(tested, total, wrong, first, bits)

    def copies(self, *, to_host: bool, seconds: float) -> float:
        """Gigabytes per second between pinned host memory and the GPU, the median copy."""
        size = self._copy_size()
        with self._room(size) as address, self._host_room(size) as host:
            if to_host:
                return self._rate("cuMemcpyDtoHAsync_v2", size, seconds, host, address, size)
            return self._rate("cuMemcpyHtoDAsync_v2", size, seconds, address, host, size)

    def peer(self, uuid: str) -> float:
        """Gigabytes per second from this GPU to the other, directly where the driver can."""
        other = self.seen[uuid]
        direct = self._cuda.number("cuDeviceCanAccessPeer", self._device, other)
        size = self._copy_size()
        context = self._open(other)
        try:
            with self._room(size) as there:
                self._cuda.call("cuCtxSetCurrent", self._context)
                if direct:
                    self._enable(context)
                with self._room(size) as here:
                    return self._rate(
                        "cuMemcpyPeerAsync", size, 0.0, there, context, here, self._context, size
                    )
        finally:
            self._free("cuDevicePrimaryCtxRelease_v2", other)
            self._free("cuCtxSetCurrent", self._context)

    def sums(self, seconds: float) -> Sums:
        """Compute for so long, the same again and again, and compare the results."""
        function = self._kernel(BURN)
        ends_at = time.monotonic() + seconds
        launches, first, differing = 0, 0, 0
        with self._room(WORD) as total:
            while not launches or time.monotonic() < ends_at:
                self._write(total, (0,))
                parameters = (c_uint64(total), c_uint64(SEED), c_uint(BURN_ROUNDS))
                self._cuda.launch(function, BLOCKS, THREADS, *parameters)
                (found,) = self._read(total, 1)
                first = first if launches else found
                differing += found != first
                launches += 1
        return Sums(launches, first, differing)

    def _open(self, device: int) -> c_void_p:
        context = self._cuda.handle("cuDevicePrimaryCtxRetain", device)
        self._cuda.call("cuCtxSetCurrent", context)
        return context

    def _enable(self, context: c_void_p) -> None:
        try:
            self._cuda.call("cuCtxEnablePeerAccess", context, 0)
        except CudaError as error:
            if error.code != ALREADY_ENABLED:
                raise

    def _copy_size(self) -> int:
        _, total = self._cuda.memory()
        return min(COPY_BYTES, total // 8)

    def _rate(self, call: str, size: int, seconds: float, *arguments: object) -> float:
        """Bytes per nanosecond of a copy, again and again for so long."""
        self._timed(lambda: self._cuda.call(call, *arguments, None))
        ends_at = time.monotonic() + seconds
        rates: list[float] = []
        while len(rates) < COPIES or time.monotonic() < ends_at:
            milliseconds = self._timed(lambda: self._cuda.call(call, *arguments, None))
            rates.append(size / milliseconds / 1e6 if milliseconds > 0 else 0.0)
        return statistics.median(rates)

    def _timed(self, act: Callable[[], None]) -> float:
        self._cuda.call("cuEventRecord", self._start, None)
        act()
        self._cuda.call("cuEventRecord", self._end, None)
        self._cuda.call("cuCtxSynchronize")
        return self._cuda.milliseconds(self._start, self._end)

    def _kernel(self, name: str) -> c_void_p:
        return self._cuda.handle("cuModuleGetFunction", self._module, name.encode())

    def _over(
        self, kernel: str, chunks: list[tuple[int, int]], shift: int, mask: int, report: int
    ) -> None:
        began = 0
        for chunk in chunks:
            self._pass(kernel, chunk, shift + began // WORD, mask, report)
            began += chunk[1]

    def _pass(
        self, kernel: str, chunk: tuple[int, int], shift: int, mask: int, report: int
    ) -> None:
        address, size = chunk
        given = (address, size // WORD, shift, mask, report)
        self._cuda.launch(self._kernel(kernel), BLOCKS, THREADS, *map(c_uint64, given))

    @contextmanager
    def _chunks(self) -> Iterator[list[tuple[int, int]]]:
        """Address and size of parts that together are the share of the memory that is tested."""
        free, total = self._cuda.memory()
        left = min(int(ASKED_SHARE * total), free - min(RESERVE_BYTES, total // 50)) & -WORD
        size, smallest = CHUNK_BYTES, max(total // 256, WORD) & -WORD
        chunks: list[tuple[int, int]] = []
        try:
            while left >= smallest:
                size = min(size, left) & -WORD
                try:
                    chunks.append((self._cuda.allocate(size), size))
                    left -= size
                except CudaError as error:
                    if error.code != OUT_OF_MEMORY:
                        raise
                    size //= 2
                    if size < smallest:
                        break
            yield chunks
        finally:
            for address, _ in chunks:
                self._free("cuMemFree_v2", address)

    @contextmanager
    def _room(self, size: int) -> Iterator[int]:
        address = self._cuda.allocate(size)
        try:
            yield address
        finally:
            self._free("cuMemFree_v2", address)

    @contextmanager
    def _host_room(self, size: int) -> Iterator[c_void_p]:
        host = self._cuda.handle("cuMemHostAlloc", size, 0)
        try:
            yield host
        finally:
            self._free("cuMemFreeHost", host)

    def _write(self, address: int, words: tuple[int, ...]) -> None:
        size = WORD * len(words)
        memmove(self._staging, b"".join(word.to_bytes(WORD, "little") for word in words), size)
        self._cuda.call("cuMemcpyHtoDAsync_v2", address, self._staging, size, None)
        self._cuda.call("cuCtxSynchronize")

    def _read(self, address: int, count: int) -> tuple[int, ...]:
        words = (c_uint64 * count)()
        self._cuda.call("cuMemcpyDtoHAsync_v2", self._staging, address, WORD * count, None)
        self._cuda.call("cuCtxSynchronize")
        memmove(words, self._staging, WORD * count)
        return tuple(words)

    def _free(self, call: str, address: object) -> None:
        """Give back. A GPU that cannot even do this fails its next step; the error before
        counts.
        """
        with suppress(CudaError):
            self._cuda.call(call, address)
