"""Labels of the GPU Operator that deploy its pods on a node, and which of them a reset pauses.

Every label `nvidia.com/gpu.deploy.*` may deploy a pod that keeps GPUs open, so all are paused
except those in `rules/data/gpu_operator.json`. Undoing a pause never depends on that list: it uses
the record (`rules.api.repair_writes`).
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from rules.api import names, repair_writes
from rules.catalog.data_file import data_file

ALL: Final = f"{names.PREFIX_GPU_DEPLOY}*"
"""Stands for all these labels in the data of an adapter."""


class Operands(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is known about the operator's labels, each with the reason."""

    version: str
    source: str
    stays: dict[str, str]
    """Labels whose pods may stay: they do not keep a GPU open, or are the driver."""
    last: dict[str, str]
    """Labels that are paused after the pods with ResourceClaims of all others have terminated."""


OPERANDS: Final = msgspec.json.decode(data_file("gpu_operator.json"), type=Operands)
STAYS: Final = tuple(f"{names.PREFIX_GPU_DEPLOY}{name}" for name in sorted(OPERANDS.stays))
LAST: Final = frozenset(f"{names.PREFIX_GPU_DEPLOY}{name}" for name in OPERANDS.last)


def to_pause(labels: Mapping[str, str], clears: tuple[str, ...]) -> tuple[str, ...]:
    """Return the deploying labels that the adapter's `clears` covers, those of `LAST` at the end.

    At most `MAX_MOVED`, those of `LAST` always among them.
    """
    found = sorted(
        key
        for key, value in labels.items()
        if value == names.DEPLOYED and (key in clears or (ALL in clears and _is_operand(key)))
    )
    last = [key for key in found if key in LAST]
    first = [key for key in found if key not in LAST]
    return (*first[: repair_writes.MAX_MOVED - len(last)], *last)


def _is_operand(key: str) -> bool:
    return key.startswith(names.PREFIX_GPU_DEPLOY) and key not in STAYS
