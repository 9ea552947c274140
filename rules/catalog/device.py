"""What an address in an incident is the address of: a GPU, an NVSwitch, a network adapter.

An address alone does not say, the incident's reason does. Called wherever people read where a
fault is: the agent's sentences, `check`, `kubectl gpuward why`. Alerts say it in the templates
of `rules/alerts/gpu.yaml`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

GPU: Final = "GPU"
NVSWITCH: Final = "NVSwitch"

_OTHERS: Final = (
    ("SXid", NVSWITCH),
    ("Nic", "network adapter"),
    ("PcieAer", "PCI device"),  # a GPU, or a port above it
    ("PcieContainment", "PCI device"),
)
"""How reasons begin whose lines name something else (`rules.judge.facts.kernel`)."""


def device_kind(reason: str) -> str:
    """What an incident of this reason is about, as far as its address alone is known."""
    return next((kind for start, kind in _OTHERS if reason.startswith(start)), GPU)


def device_at(reason: str, address: str) -> str:
    """A device that is known by its address alone: `NVSwitch at 0000:0a:00`."""
    return f"{device_kind(reason)} at {address}"


def places(reason: str, pci: Sequence[str], gpus: Sequence[str]) -> tuple[str, ...]:
    """Where an incident is: addresses and UUIDs of GPUs, or what else the addresses are of."""
    return (*pci, *gpus) if gpus else tuple(device_at(reason, address) for address in pci)
