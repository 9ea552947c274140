"""Resolve the devices of pods to GPUs, and decide when to publish who holds them.

The list is published while an active incident asks for a cordon or drain. It comes from the
kubelet's PodResources API, which the agent reads through `agent.sources.pod_resources`.
"""

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from rules.api import accelerators, health, object_name, resource_slices, timestamps
from rules.api.health import HeldDevice, Holder, Holders
from rules.catalog.reason import Level
from rules.judge.incident import Incident
from rules.judge.observation import PodDevices, SourceName, SourceState
from rules.judge.state import NodeState
from rules.text import pci_address
from rules.text.printable import printable

FRESH_S: Final = 30.0
"""An older list is not published: three polls. Source: gpuward."""
MAX_BYTES: Final = 16 * 1024
"""The most that the list takes of the object, which has 60 KiB."""
NOT_READ: Final = "NotRead"
UNKNOWN_DEVICE: Final = "UnknownDevice"
TOO_MANY: Final = "TooMany"

_VENDOR: Final = "nvidia.com/"
_UUID: Final = "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_GPU_ID: Final = re.compile(f"(?:MIG-)?(GPU-{_UUID})")
"""The GPU, one of its shares (`GPU-...::3`), or a MIG device before R470 (`MIG-GPU-.../7/0`)."""
_MIG_ID: Final = re.compile(f"MIG-{_UUID}")
_NODE_ID: Final = re.compile(r"nvidia(\d{1,3})(?:/.*)?")
"""The device node of a GPU, as the device plugin of GKE names it: `nvidia0/gi3`."""


def wanted(state: NodeState) -> bool:
    """Return whether an active incident asks for a cordon or drain."""
    return any(_asks(incident) for incident in state.incidents)


def _asks(incident: Incident) -> bool:
    return incident.active and incident.row.level > Level.REPORT


def published(state: NodeState, now: float) -> Holders | None:
    """Return the holders to publish; None if they are not wanted or the API is not there."""
    source = state.sources.get(SourceName.POD_RESOURCES)
    if source is None or source.state is SourceState.ABSENT or not wanted(state):
        return None
    seen = state.pod_resources
    if seen is None or not 0 <= now - seen.at <= FRESH_S:
        return Holders(reason=source.reason or NOT_READ)
    found = [_resolved(state, pod) for pod in seen.pods]
    faulty = {uuid for i in state.incidents if _asks(i) for uuid in i.gpus}
    pods = sorted(
        (holder for holder, _ in found if holder is not None),
        key=lambda pod: (faulty.isdisjoint(pod.gpus), pod.namespace, pod.pod),
    )
    kept = _fitting(pods)
    reason = source.reason
    if seen.cut or len(kept) < len(pods):
        reason = reason or TOO_MANY
    if not all(known for _, known in found):
        reason = reason or UNKNOWN_DEVICE
    return Holders(
        read_at=timestamps.format_time(seen.at), complete=not reason, reason=reason, pods=kept
    )


def incomplete(known: Holders, reason: str) -> Holders:
    """Return the holders without pods, for this reason."""
    return msgspec.structs.replace(known, complete=False, reason=reason, pods=())


def _resolved(state: NodeState, pod: PodDevices) -> tuple[Holder | None, bool]:
    """Return the pod with its GPUs, None without any, and whether every device is known."""
    gpus: dict[str, None] = {}
    known = True
    for resource, device in pod.plugin:
        gpu = _gpu_of(state, device)
        if gpu:
            gpus[gpu] = None
        elif resource.startswith(_VENDOR) and accelerators.is_accelerator(resource):
            known = False
    devices = tuple(_devices(pod))
    if not gpus and not devices:
        return None, known
    if not (object_name.is_object_name(pod.pod) and object_name.is_object_name(pod.namespace)):
        return None, False
    holder = Holder(
        namespace=pod.namespace[:63],
        pod=pod.pod,
        gpus=tuple(sorted(gpus)[: health.MAX_HELD]),
        devices=devices[: health.MAX_HELD],
    )
    return holder, known and max(len(gpus), len(devices)) <= health.MAX_HELD


def _gpu_of(state: NodeState, device: str) -> str:
    """Return the UUID of the GPU of a device ID; "" if it is not a known GPU."""
    if found := _GPU_ID.match(device):
        return found[1]
    if found := _MIG_ID.match(device):
        return _first(v.seen.uuid for v in state.gpus.values() if found[0] in v.seen.mig_devices)
    if found := _NODE_ID.fullmatch(device):
        minor = int(found[1])
        return _first(v.seen.uuid for v in state.gpus.values() if v.seen.minor == minor)
    address = pci_address.plain_address(device)
    return _first(v.seen.uuid for v in state.gpus.values() if v.pci and v.pci == address)


def _first(uuids: Iterator[str]) -> str:
    return next(uuids, "")


def _devices(pod: PodDevices) -> Iterator[HeldDevice]:
    for each in pod.dra:
        if each.driver == resource_slices.GPU_DRIVER:
            yield HeldDevice(
                driver=each.driver,
                pool=printable(each.pool)[:253],
                device=printable(each.device)[:128],
                claim=printable(each.claim)[:253],
            )


def _fitting(pods: list[Holder]) -> tuple[Holder, ...]:
    """Return as many of the first pods as the object has room for."""
    left = MAX_BYTES
    kept = []
    for pod in pods[: health.MAX_HOLDERS]:
        left -= len(msgspec.json.encode(pod))
        if left < 0:
            break
        kept.append(pod)
    return tuple(kept)
