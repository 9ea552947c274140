"""One simulated GPU's memory and arithmetic, with the faults of its description.

Used by the library for allocations and copies, by kernels for everything.
"""

from __future__ import annotations

from collections.abc import Callable

from hack.sim.cuda.ptx import rounded, to_bits, to_float
from hack.sim.driver.node import Gpu

WORD = 8
APART = 1 << 40
"""Between the addresses of two GPUs."""


class IllegalAddressError(Exception):
    """A load, store or copy outside of what was allocated."""


class DeviceMemory:
    """Memory of the GPU at `position`; `gpu` gives its description as it is now."""

    def __init__(self, position: int, gpu: Callable[[], Gpu]) -> None:
        self.base = APART * (position + 1)
        self._gpu = gpu
        self.total = gpu().cuda.memory_bytes
        self._words = [0] * (self.total // WORD)
        self._taken: dict[int, int] = {}
        self._faults = gpu().cuda

    @property
    def free(self) -> int:
        """Bytes that nobody holds."""
        return self.total - self._gpu().cuda.used_bytes - sum(self._taken.values())

    def refresh(self) -> None:
        """Take the faults as the description has them now: before each kernel and copy."""
        self._faults = self._gpu().cuda

    def allocate(self, size: int) -> int | None:
        """The address of so many bytes; None where there is no gap for them."""
        size = -(-size // WORD) * WORD
        if size > self.free:
            return None
        at = self.base
        for address in sorted(self._taken):
            if address - at >= size:
                break
            at = address + self._taken[address]
        if at + size > self.base + self.total:
            return None
        self._taken[at] = size
        return at

    def release(self, address: int) -> bool:
        """Whether it was allocated."""
        return self._taken.pop(address, None) is not None

    def load(self, address: int) -> int:
        """One word; a stuck bit reads as one."""
        place = self._place(address)
        return self._words[place] | self._faults.stuck_bits.get(place, 0)

    def store(self, address: int, value: int) -> None:
        """Write one word."""
        self._words[self._place(address)] = value

    def fma(self, one: float, other: float, added: float) -> float:
        """Multiply and add in single precision; a faulty unit flips bits of what comes out."""
        result, wrong = one * other + added, self._faults.wrong_bits_of_fma
        return to_float(to_bits(result) ^ wrong) if wrong else rounded(result)

    def read_bytes(self, address: int, size: int) -> bytes:
        """For a copy: whole words."""
        words = (self.load(address + offset) for offset in range(0, size, WORD))
        return b"".join(word.to_bytes(WORD, "little") for word in words)

    def write_bytes(self, address: int, data: bytes) -> None:
        """For a copy: whole words."""
        for offset in range(0, len(data), WORD):
            self.store(address + offset, int.from_bytes(data[offset : offset + WORD], "little"))

    def _place(self, address: int) -> int:
        for start, size in self._taken.items():
            if start <= address <= start + size - WORD and not (address - start) % WORD:
                return (address - self.base) // WORD
        raise IllegalAddressError(f"{address:#x} is not allocated here")
