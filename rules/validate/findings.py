"""What the test brings home, unjudged: one value per thing done on a GPU, or why it was not done.

Made by `agent.validate.course`, judged by `judge`. UUIDs name GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec

from rules.catalog.signals import Signal


class CheckId(StrEnum):
    """Every check there is, in the order in which it is done."""

    INVENTORY = "inventory"
    START = "start"
    MEMORY = "memory"
    MEMORY_COVERED = "memory-covered"
    HOST_TO_DEVICE = "host-to-device"
    DEVICE_TO_HOST = "device-to-host"
    PEER = "peer"
    HOST_TO_DEVICE_TOGETHER = "host-to-device-together"
    DEVICE_TO_HOST_TOGETHER = "device-to-host-together"
    CHECKSUM = "checksum"
    PCIE_WIDTH = "pcie-width"
    PCIE_GENERATION = "pcie-generation"
    COUNTERS = "counters"


class Stop(StrEnum):
    """Why a step has no value."""

    HUNG = "hung"
    """No answer within its deadline."""
    DIED = "died"
    """The process that tests the GPU ended in the middle of it, with the status in `code`."""
    FAILED = "failed"
    """The CUDA driver gave an error."""


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU that NVML counts."""

    uuid: str
    index: int
    pci: str = ""
    product: str = ""
    mig: bool = False
    processes: tuple[int, ...] = ()
    """Processes of others that compute on it, as far as they are in sight."""


class Stopped(msgspec.Struct, frozen=True, kw_only=True):
    """A step without a value. `call` and `code` are the driver's, `seconds` the deadline."""

    check: CheckId
    gpu: str
    why: Stop
    peer: str = ""
    call: str = ""
    code: int = 0
    name: str = ""
    seconds: float = 0.0


class MemorySeen(msgspec.Struct, frozen=True, kw_only=True):
    """The pattern test of one GPU's memory. Bytes; a word has eight."""

    gpu: str
    tested: int
    total: int
    wrong_words: int = 0
    first_wrong: int | None = None
    """Where, in bytes from the beginning of what was tested."""
    bits: int = 0
    """Which bits of a word ever came back otherwise."""


class RateSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A copy's bandwidth, in 10^9 bytes per second, the median of some copies."""

    check: CheckId
    gpu: str
    gigabytes: float
    peer: str = ""
    link: str = ""
    """How the two are joined, as `nvidia-smi topo -m` spells it; empty where nobody knows."""


class SumsSeen(msgspec.Struct, frozen=True, kw_only=True):
    """The checksums of one GPU: of its first launch, and how many others differed from that."""

    gpu: str
    launches: int
    first: int
    differing: int = 0


class Counters(msgspec.Struct, frozen=True, kw_only=True):
    """NVML's readings of one GPU; what could not be read is absent."""

    gpu: str
    values: Mapping[Signal, float]


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one run brought home."""

    subjects: Sequence[Subject]
    chosen: Sequence[str] = ()
    """The GPUs that were to be tested."""
    expected: int | None = None
    """How many GPUs the node should have; None where nobody said, or only some are tested."""
    counted: int = 0
    """GPUs that NVML counts, those that it cannot describe among them."""
    seen_by_cuda: Sequence[str] | None = None
    """UUIDs; None where CUDA did not start."""
    stopped: Sequence[Stopped] = ()
    memory: Sequence[MemorySeen] = ()
    rates: Sequence[RateSeen] = ()
    sums: Sequence[SumsSeen] = ()
    before: Sequence[Counters] = ()
    during: Sequence[Counters] = ()
    """Read while every GPU computes: PCIe links rest at a lower generation otherwise."""
    after: Sequence[Counters] = ()
    after_read: bool = False
    """Whether NVML answered after the test."""
    trouble: Sequence[str] = ()
    """Why the test as a whole could not be done: sentences."""
