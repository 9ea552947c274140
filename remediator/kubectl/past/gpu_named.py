"""What somebody typed of a GPU (its UUID or serial number, or how one begins) becomes one GPU.

Records and verdicts are searched, so also one that never failed is found, and one that is gone.
All of it is what nodes say: escaped and cut where it is printed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from remediator.kubectl.cluster import Cluster
from remediator.kubectl.command import CommandError
from rules.api.nodes import HealthView
from rules.ledger.record import (
    GPU_SCOPE,
    RecordPlace,
    RecordStatus,
    RecordView,
    gpu_record_name,
    node_record_name,
)
from rules.text.printable import printable

_NAMED: Final = 5
"""So many of several are spelled out."""
_LOOKS_SO: Final = re.compile(r"(?i)(gpu-)?[0-9a-f-]{4,}|[0-9]{4,}")
_PREFIX: Final = "gpu-"


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedGpu:
    """One GPU, or a node's own record: as it stands on record, or as its node's verdict says."""

    name: str
    """What its record is called, whether there is one or not."""
    seen: RecordStatus
    record: RecordView | None = None

    @property
    def serial(self) -> str:
        """The number on its board; "" where nobody knows."""
        return self.seen.serial

    @property
    def called(self) -> str:
        """`GPU-... (serial 165, in gpu-1)`."""
        more = [f"serial {self.serial}"] if self.serial else []
        more += [f"in {self.seen.node}"] if self.seen.node else []
        aside = f" ({', '.join(more)})" if more else ""
        return printable(f"{self.seen.uuid[:96]}{aside}"[:300])


def looks_like_a_gpu(text: str) -> bool:
    """Whether it may be a UUID or serial number, or enough of one to look for."""
    return _LOOKS_SO.fullmatch(text) is not None


async def gpu_named(cluster: Cluster, text: str) -> NamedGpu | None:
    """The one GPU that it names; None where it names none. CommandError where it names several."""
    for name in dict.fromkeys((gpu_record_name(text), node_record_name(text))):
        if (found := await cluster.record(name)) is not None:
            return NamedGpu(name=found.name, seen=found.status, record=found)
    known = _known(await cluster.records(), await cluster.healths())
    matches = _matching(known, text)
    if len(matches) > 1:
        named = ", ".join(one.called for one in matches[:_NAMED])
        more = f" and {len(matches) - _NAMED} more" if len(matches) > _NAMED else ""
        alike = matches[0].serial.lower() == text.lower()  # the GPUs of one board
        how = f"have the serial number {text}" if alike else f"begin with {text}"
        what = "the UUID" if alike else "more"
        raise CommandError(
            f"{len(matches)} GPUs {how}: {named}{more}; give {what} of the one you mean"
        )
    return matches[0] if matches else None


def _known(records: Iterable[RecordView], healths: Iterable[HealthView]) -> list[NamedGpu]:
    """Every GPU that records or verdicts tell of, once; what is on record first."""
    found: dict[str, NamedGpu] = {}
    for record in records:
        if record.status.scope == GPU_SCOPE and record.status.uuid:
            found[record.name] = NamedGpu(name=record.name, seen=record.status, record=record)
    for health in healths:
        node, gpus = health.metadata.name, {gpu.uuid: gpu for gpu in health.status.gpus}
        named = [uuid for one in health.status.incidents for uuid in one.gpus]
        for uuid in filter(None, (*gpus, *named)):
            gpu = gpus.get(uuid)
            place = RecordPlace(node=node, slot=gpu.pci if gpu is not None else "")
            seen = RecordStatus(
                uuid=uuid,
                serial=gpu.serial if gpu is not None else "",
                product=gpu.product if gpu is not None else "",
                places=(place,),
            )
            name = gpu_record_name(uuid)
            found.setdefault(name, NamedGpu(name=name, seen=seen))
    return sorted(found.values(), key=lambda one: one.seen.uuid)


def _matching(known: list[NamedGpu], text: str) -> list[NamedGpu]:
    """Those that are called so; else those whose UUID or serial number begins so."""
    asked = text.lower()
    whole = [one for one in known if asked in {one.seen.uuid.lower(), one.serial.lower()}]
    return whole or [
        one
        for one in known
        if one.serial.lower().startswith(asked)
        or one.seen.uuid.lower().startswith(asked)
        or one.seen.uuid.lower().removeprefix(_PREFIX).startswith(asked)
    ]
