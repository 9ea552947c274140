"""A pod's containers, and how many GPUs they ask for.

What counts as a GPU is what NVIDIA's device plugin hands out: whole GPUs, GPUs shared by
time-slicing or MPS, and MIG devices. Other resources of that vendor (network adapters, virtual
functions, counters of other plugins) hold no GPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from rules.api.metadata import View

_GPU: Final = frozenset({"nvidia.com/gpu", "nvidia.com/gpu.shared"})
_VENDOR: Final = "nvidia.com/"
_MIG: Final = "nvidia.com/mig-"
# As the API server writes whole numbers: 1000 comes back as 1k.
_SUFFIX: Final = {"k": 1_000, "M": 1_000_000, "Ki": 1_024, "Mi": 1_048_576}


class ResourceNeeds(View, frozen=True, kw_only=True):
    """Requests and limits as quantity strings."""

    requests: dict[str, str] = msgspec.field(default_factory=dict)
    limits: dict[str, str] = msgspec.field(default_factory=dict)


class Container(View, frozen=True, kw_only=True):
    """One container's name and needs."""

    name: str = ""
    resources: ResourceNeeds = ResourceNeeds()
    restart_policy: str = ""
    """`Always` makes an init container a sidecar: it runs as long as the pod."""


def passed_through(containers: Iterable[Container]) -> int:
    """GPUs of a virtual machine's pod, passed through or cut into virtual ones.

    KubeVirt's administrator names those resources (`nvidia.com/GA102GL_A10`), so any device of the
    vendor counts: a network adapter taken for a GPU costs a wait, a GPU taken for none a machine.
    """
    devices = (
        _whole(amount)
        for container in containers
        for name, amount in container.resources.limits.items()
        if name.startswith(_VENDOR) and name not in _GPU and not name.startswith(_MIG)
    )
    return sum(devices)


def gpu_amounts(amounts: Mapping[str, str]) -> dict[str, int]:
    """The GPU resources among `amounts`, by name."""
    found = {}
    for name, amount in amounts.items():
        if name in _GPU or name.startswith(_MIG):
            found[name] = _whole(amount)
    return found


def gpus_of(containers: Iterable[Container], init: Iterable[Container] = ()) -> int:
    """GPUs that the pod holds at its peak, as the scheduler counts them.

    Containers and sidecars run together; an init container runs before the containers, beside the
    sidecars that started earlier.
    """
    needs = [_needs(container) for container in containers]
    sidecars: list[dict[str, int]] = []
    starting: list[Sequence[dict[str, int]]] = []
    for container in init:
        if container.restart_policy == "Always":
            sidecars.append(_needs(container))
        else:
            starting.append((*sidecars, _needs(container)))
    moments = [_total([*needs, *sidecars]), *(_total(moment) for moment in starting)]
    names = {name for moment in moments for name in moment}
    return sum(max(moment.get(name, 0) for moment in moments) for name in names)


def _needs(container: Container) -> dict[str, int]:
    return gpu_amounts({**container.resources.limits, **container.resources.requests})


def _total(needs: Iterable[Mapping[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for one in needs:
        for name, count in one.items():
            found[name] = found.get(name, 0) + count
    return found


def _whole(amount: str) -> int:
    """A whole number of devices; 0 for anything that is none."""
    number = amount.rstrip("kKMi")
    factor = _SUFFIX.get(amount[len(number) :], 0) if number != amount else 1
    if not (number.isascii() and number.isdigit() and len(number) <= 9):
        return 0
    return int(number) * factor
