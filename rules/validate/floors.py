"""What a product is known to reach, and who says so: bandwidth below this is too slow.

Read by `rates`. All of them are of cloud machines with SXM parts, whose links are alike
everywhere; a product that is not here is compared with its siblings alone.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from rules.validate.findings import CheckId

_AZURE: Final = "azurehpc-health-checks, conf of the nvbandwidth tests, 2026-05-01"


class Floor(NamedTuple):
    """10^9 bytes per second, and the source."""

    gigabytes: float
    source: str


_HOST: Final = (CheckId.HOST_TO_DEVICE, CheckId.DEVICE_TO_HOST)


class _Product(NamedTuple):
    """Products by their NVML name; the copies alone, and those between GPUs over NVLink."""

    name: re.Pattern[str]
    host: float
    peer: float | None


_PRODUCTS: Final = (
    _Product(re.compile(r"NVIDIA H100 80GB HBM3"), 48.0, 335.0),
    _Product(re.compile(r"NVIDIA H200"), 48.0, 335.0),
    _Product(re.compile(r"NVIDIA A100-SXM4-(40|80)GB"), 21.0, 238.0),
    _Product(re.compile(r"(NVIDIA |Tesla )V100-SXM[23]-(16|32)GB(-LS)?"), 9.0, None),
)


def floor_of(product: str, check: CheckId, link: str) -> Floor | None:
    """The least that this copy must reach; None where nobody published one.

    Copies that run together share the host, which differs from one machine to the next: they have
    no floor. A pair has one where NVLink joins it.
    """
    for known in _PRODUCTS:
        if known.name.fullmatch(product) is None:
            continue
        if check in _HOST:
            return Floor(known.host, _AZURE)
        if check is CheckId.PEER and link.startswith("NV") and known.peer is not None:
            return Floor(known.peer, _AZURE)
    return None


def is_known(product: str) -> bool:
    """Whether any floor is known for it."""
    return any(known.name.fullmatch(product) for known in _PRODUCTS)
