"""Checks before a GPU reset: the driver's list of GPUs and the processes that use them.

Called by `gpuward-agent reset-gpu`. A reset ends every process that has the GPU open, or fails
because of it, so no process may have it open. GPUs behind shared NVSwitches may have to be reset
together. `rules.repair.ladder` proves a reset; the status of the driver's tool does not.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from rules.api import names

QUERY: Final = ("uuid", "pci.bus_id", "persistence_mode", "mig.mode.current", "compute_cap")
"""Fields of `nvidia-smi --query-gpu`, in this order; drivers from R510 on have all of them."""
MAX_GPUS: Final = 32
SWITCHED_ALONE: Final = 9.0
"""Compute capability (Hopper) from which a GPU behind NVSwitches can be reset alone, without the
fabric manager. Source: nvidia-smi(1), --gpu-reset."""
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
    """Persistence mode: the driver keeps it initialised without a client."""
    partitioned: bool
    """MIG is on."""
    capability: float | None
    """Compute capability; None if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Holder:
    """A process that has a GPU open."""

    pid: int
    name: str


class NotListedError(Exception):
    """The driver's list of GPUs cannot be understood; the text is a clause."""


def uuids_of(text: str) -> tuple[str, ...]:
    """Parse a comma-separated list of GPU UUIDs; ValueError with a clause if it is invalid."""
    found = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not found or len(found) > MAX_GPUS:
        raise ValueError(f"names {len(found)} GPUs; name 1 to {MAX_GPUS} by UUID")
    if bad := next((each for each in found if _UUID.fullmatch(each) is None), None):
        raise ValueError(f"names {bad!r:.80}, which is no UUID of an entire GPU (GPU-...)")
    return found


def listed(text: str) -> tuple[ListedGpu, ...]:
    """Parse the output of `nvidia-smi --query-gpu=... --format=csv,noheader`; NotListedError if it
    is invalid.
    """
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
    """Return why these GPUs cannot be reset by themselves, as a clause; "" if they can.

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
            f"{len(wanted)} of {len(known)} GPUs behind NVSwitches of that generation cannot be "
            "reset without the others"
        )
    return ""


def held(holders: Iterable[Holder]) -> str:
    """Return which processes have the GPUs open, as a clause; "" if none has."""
    found = sorted(set(holders))
    if not found:
        return ""
    named = ", ".join(f"{each.name} (process {each.pid})" for each in found[:5])
    more = f" and {len(found) - 5} more" if len(found) > 5 else ""
    verb = "has" if len(found) == 1 else "have"
    return f"{named}{more} {verb} a GPU open"


_DRA_PLUGIN: Final = "gpu-kubelet-plu"
"""The process name of the DRA driver's gpu-kubelet-plugin; the kernel keeps 15 characters."""


def remedy(holders: Iterable[Holder]) -> str:
    """Return what makes a process close the GPUs that gpuward could not move, as a clause; ""
    without one.
    """
    if all(each.name != _DRA_PLUGIN for each in holders):
        return ""
    label = f"{names.PREFIX_GPU_DEPLOY}dra-driver"
    return (
        f"give the DRA driver's kubelet plugin the node selector {label}=true and the nodes that "
        "label, which gpuward pauses before a reset"
    )
