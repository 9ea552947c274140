"""Find out which GPUs each pod of a node holds, from the kubelet's list and from ResourceClaims.

The agent publishes the kubelet's list as `holders` of the GPUNodeHealth. It has no UIDs, so it
applies to the pod of that name that started before it was read. What any source reports counts as
held. A pod that requests more than the sources report is unknown, because the kubelet does not
list the devices of ordinary init containers.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from rules.api import health, timestamps, workloads
from rules.api.health import Holder, Holders
from rules.api.pods import PodView
from rules.api.resource_slices import GPU_DRIVER, DeviceAddress, NodeDevices
from rules.api.workloads import ResourceClaimView

Claims = Mapping[str, ResourceClaimView | None]
"""The claims of one pod by name; None for one that cannot be read."""
Listed = Mapping[tuple[str, str], Sequence[Holder]]
"""Entries of the kubelet's list by namespace and name of the pod."""


def listed_by_pod(holders: Holders | None) -> Listed:
    """Return the entries by namespace and name of their pods. Empty if there are too many."""
    found: defaultdict[tuple[str, str], list[Holder]] = defaultdict(list)
    if holders is not None and len(holders.pods) <= health.MAX_HOLDERS:
        for holder in holders.pods:
            found[holder.namespace, holder.pod].append(holder)
    return found


def entries_of(pod: PodView, read_at: str, listed: Listed) -> Sequence[Holder]:
    """Return the pod's entries in the list; none if it may be about an earlier pod."""
    started = timestamps.parse_time(pod.status.start_time or "")
    read = timestamps.parse_time(read_at)
    if started is None or read is None or started >= read:
        return ()
    return listed.get((pod.metadata.namespace, pod.metadata.name), ())


def held_by(
    pod: PodView, entries: Iterable[Holder], claims: Claims, devices: NodeDevices
) -> frozenset[str] | None:
    """Return the UUIDs of the GPUs that the pod holds; a MIG device counts as its GPU.

    `entries` are the pod's (`entries_of`), `devices` those of its node. None if it is unknown.
    """
    if pod.finished:
        return frozenset()
    own = [claims.get(name) for name in claim_names(pod)]
    readable = [claim for claim in own if claim is not None and not claim.doubt]
    claimed = {result.address for claim in readable for result in claim.gpus}
    monitored = {result.address for claim in readable for result in claim.monitored_gpus}
    listed = {
        DeviceAddress(device.driver, device.pool, device.device)
        for entry in entries
        for device in entry.devices
        if device.driver == GPU_DRIVER
    }
    of_plugin = {uuid for entry in entries for uuid in entry.gpus}
    held = of_plugin | {devices.gpu_of(address) for address in claimed | (listed - monitored)}
    extended = claims.get(workloads.extended_claim(pod))
    for_containers = len(of_plugin) + (len(extended.gpus) if extended is not None else 0)
    unknown = (
        bool(pod.doubt)
        or len(readable) < len(own)
        or "" in held
        or for_containers < pod.gpus - pod.claimed_gpus
    )
    return None if unknown else frozenset(held)


def claim_names(pod: PodView) -> tuple[str, ...]:
    """Return the names of all existing claims of the pod."""
    names = {*workloads.claim_names(pod), workloads.extended_claim(pod)}
    return tuple(sorted(names - {""}))


def as_listed(pod: PodView, listed: Iterable[PodView]) -> PodView:
    """Return the pod with what the last list of the node's pods found out about its GPUs.

    A pod that is read alone comes without it. The devices of a pod never change.
    """
    for other in listed:
        if other.uid == pod.uid:
            return msgspec.structs.replace(pod, claimed_gpus=other.claimed_gpus, held=other.held)
    return pod
