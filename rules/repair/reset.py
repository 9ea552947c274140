"""Whether a reset of some GPUs may begin: what the driver and the processes show, judged.

Called by `gpuward-agent reset-gpu`. A reset ends every process that has the GPU open, or fails
because of it, so nobody may; and where a single reset breaks switches that GPUs share, all are or
none is. What the driver's tool says of a reset proves nothing (`rules.repair.ladder` does).
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

QUERY: Final = ("uuid", "pci.bus_id", "persistence_mode", "mig.mode.current", "compute_cap")
"""What `nvidia-smi --query-gpu` is asked for, in this order; drivers from R510 on know all."""
MAX_GPUS: Final = 32
SWITCHED_ALONE: Final = 9.0
"""Compute capability (Hopper) from which a GPU behind NVSwitches can be reset alone without the
fabric manager's part in it. Source: nvidia-smi(1), --gpu-reset."""
_UUID: Final = re.compile(r"GPU-[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_BUS_ID: Final = re.compile(r"([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-9a-fA-F])")
_ON: Final = "enabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedGpu:
    """One GPU as the driver's tool lists it."""

    uuid: str
    pci: str
    """Address with a domain of four digits, as /proc/driver/nvidia spells it."""
    persistent: bool
    """The driver keeps it initialised although nobody uses it."""
    partitioned: bool
    """MIG is on."""
    capability: float | None
    """Compute capability; None where it is not said."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Holder:
    """A process that has a GPU open."""

    pid: int
    name: str


class NotListedError(Exception):
    """The driver's list of GPUs cannot be understood; the text is a clause."""


def uuids_of(text: str) -> tuple[str, ...]:
    """The UUIDs in a list with commas. ValueError, a clause, for what is none."""
    found = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not found or len(found) > MAX_GPUS:
        raise ValueError(f"names {len(found)} GPUs; name 1 to {MAX_GPUS} by UUID")
    if bad := next((each for each in found if _UUID.fullmatch(each) is None), None):
        raise ValueError(f"names {bad!r:.80}, which is no UUID of an entire GPU (GPU-...)")
    return found


def listed(text: str) -> tuple[ListedGpu, ...]:
    """The GPUs of `nvidia-smi --query-gpu=... --format=csv,noheader`. NotListedError otherwise."""
    return tuple(_listed(line) for line in text.splitlines() if line.strip())


def _listed(line: str) -> ListedGpu:
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) != len(QUERY):
        raise NotListedError(f"nvidia-smi lists a GPU as {line!r:.120}")
    uuid, bus_id, persistence, mig, capability = cells
    address = _BUS_ID.fullmatch(bus_id)
    if _UUID.fullmatch(uuid) is None or address is None:
        raise NotListedError(f"nvidia-smi lists a GPU as {line!r:.120}")
    domain, bus, device, function = address.groups()
    try:
        known = float(capability)
    except ValueError:
        known = None
    return ListedGpu(
        uuid=uuid,
        pci=f"{domain[-4:]}:{bus}:{device}.{function}".lower(),
        persistent=persistence.lower() == _ON,
        partitioned=mig.lower() == _ON,
        capability=known,
    )


def unfit(wanted: Sequence[str], gpus: Sequence[ListedGpu], *, switches: bool) -> str:
    """Why these GPUs cannot be reset by themselves, a clause; "" where they can.

    `switches`: the node has NVSwitches.
    """
    known = {gpu.uuid: gpu for gpu in gpus}
    if missing := [uuid for uuid in wanted if uuid not in known]:
        return f"the driver does not list GPU {missing[0]}"
    if split := [uuid for uuid in wanted if known[uuid].partitioned]:
        return f"GPU {split[0]} is partitioned (MIG), and a reset would lose its partitions"
    alone = set(wanted) != set(known)
    old = [gpu for gpu in gpus if gpu.capability is None or gpu.capability < SWITCHED_ALONE]
    if switches and alone and old:
        return (
            f"{len(wanted)} of {len(known)} GPUs behind NVSwitches of that generation are not "
            "reset without the others"
        )
    return ""


def held(holders: Iterable[Holder]) -> str:
    """Who has the GPUs open, a clause; "" where nobody has."""
    found = sorted(set(holders))
    if not found:
        return ""
    named = ", ".join(f"{each.name} (process {each.pid})" for each in found[:5])
    more = f" and {len(found) - 5} more" if len(found) > 5 else ""
    verb = "has" if len(found) == 1 else "have"
    return f"{named}{more} {verb} a GPU open"
