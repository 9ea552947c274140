"""The kernels of the memory test and the checksum, as PTX text that the driver compiles.

Loaded by `device`. PTX is what a GPU of any architecture from Volta on understands through its own
driver, so no toolkit is needed. Nothing in here rounds or orders differently from one GPU to the
next: the checksum of the same work is the same number on every healthy GPU, of any product.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from rules.catalog.data_file import data_file

BLOCKS: Final = 2048
THREADS: Final = 256
"""One grid for every GPU, or the checksums could not be compared; it fills the largest part."""
BURN: Final = "burn"
BURN_ROUNDS: Final = 4096
"""Rounds of one launch: short enough that a sum comes many times a second, long enough to load."""
_ALL_ONES: Final = (1 << 64) - 1


class Pattern(NamedTuple):
    """One pass over the memory: `word` is the kernel pair, `shift` and `mask` its parameters."""

    word: str
    shift: int
    mask: int


PATTERNS: Final = (
    Pattern("address", 0, 0),
    Pattern("address", 0, _ALL_ONES),
    *(Pattern("walking", shift, mask) for shift in range(0, 64, 8) for mask in (0, _ALL_ONES)),
)
"""Each word holds its own number, and its complement: two addresses that reach one cell differ.
Then one bit walks through the words, as a one and as a zero, from eight starting places.
"""

_PARTS: Final = dict(
    part.split("\n", 1) for part in data_file("validate.ptx", "agent").decode().split("//: ")[1:]
)
"""`agent/data/validate.ptx`: `kernel` is filled in for each act (`fill`, `check`) and word.

A round of `burn` multiplies, shifts and multiplies and adds in floating point, and takes the
result's bits into the word that goes on: one wrong bit anywhere is in the sum at the end.
"""


def _kernel(act: str, word: str) -> str:
    text = _PARTS["kernel"].replace("{name}", f"{act}_{word}")
    return text.replace("{word}", _PARTS[word]).replace("{act}", _PARTS[act])


_KERNELS: Final = "".join(
    _kernel(act, word) for word in ("address", "walking") for act in ("fill", "check")
)
MODULE: Final = _PARTS["head"] + _KERNELS + _PARTS["burn"]
