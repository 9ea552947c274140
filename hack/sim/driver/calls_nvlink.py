"""NVML calls about how GPUs are joined: NVLink, fabric registration, distance over PCIe; and MIG.

Registered with `library`; called by `pynvml` through the simulated library only.
"""

from __future__ import annotations

import uuid
from typing import Any

import pynvml

from hack.sim.driver.calls_fields import link_up
from hack.sim.driver.calls_system import fill_pci
from hack.sim.driver.library import (
    ARGUMENT_VERSION_MISMATCH,
    INVALID_ARGUMENT,
    NOT_FOUND,
    NOT_SUPPORTED,
    SUCCESS,
    Handle,
    SimulatedLibrary,
    device_call,
    number_of,
    put,
    referenced,
)
from hack.sim.driver.node import Gpu
from hack.sim.driver.numbers import FABRIC_V3_BRANCH, REMOTE_TYPES


def _has_link(gpu: Gpu, link: Any) -> int:
    if number_of(link) >= pynvml.NVML_NVLINK_MAX_LINKS:
        return INVALID_ARGUMENT
    return SUCCESS if number_of(link) < gpu.nvlink.count else NOT_SUPPORTED


@device_call("nvmlDeviceGetNvLinkState")
def link_state(_: SimulatedLibrary, gpu: Gpu, link: Any, active: Any) -> int:
    return _has_link(gpu, link) or put(active, link_up(gpu.nvlink, number_of(link)))


@device_call("nvmlDeviceGetNvLinkVersion")
def link_version(_: SimulatedLibrary, gpu: Gpu, link: Any, version: Any) -> int:
    return _has_link(gpu, link) or put(version, gpu.nvlink.version)


def peer_of(gpu: Gpu, link: int) -> int | None:
    """The position of the GPU at the other end of a link; None for a switch or nothing."""
    return next((peer for peer, links in gpu.nvlink.peers.items() if link in links), None)


@device_call("nvmlDeviceGetNvLinkRemoteDeviceType")
def remote_type(_: SimulatedLibrary, gpu: Gpu, link: Any, kind: Any) -> int:
    if gpu.nvlink.remote == "switch":
        return _has_link(gpu, link) or put(kind, REMOTE_TYPES["switch"])
    found = peer_of(gpu, number_of(link)) is not None
    return _has_link(gpu, link) or put(kind, REMOTE_TYPES["gpu" if found else "unknown"])


@device_call("nvmlDeviceGetNvLinkRemotePciInfo_v2")
def remote_pci(library: SimulatedLibrary, gpu: Gpu, link: Any, info: Any) -> int:
    absent = _has_link(gpu, link)
    if absent:
        return absent
    if gpu.nvlink.remote == "switch":
        if not gpu.nvlink.switches:
            return NOT_SUPPORTED
        switch = gpu.nvlink.switches[number_of(link) % len(gpu.nvlink.switches)]
        fill_pci(referenced(info), switch, "22a3", "10de1796")
        return SUCCESS
    peer = peer_of(gpu, number_of(link))
    if peer is None:
        return NOT_SUPPORTED
    other = library.node.gpus[peer]
    fill_pci(referenced(info), other.pci, other.pci_view.device, other.pci_view.subsystem)
    return SUCCESS


@device_call("nvmlDeviceGetGpuFabricInfoV")
def fabric_info(library: SimulatedLibrary, gpu: Gpu, info: Any) -> int:
    info = referenced(info)
    third = info.version == pynvml.nvmlGpuFabricInfo_v3
    if info.version != pynvml.nvmlGpuFabricInfo_v2 and not (
        third and library.node.driver.branch >= FABRIC_V3_BRANCH
    ):
        return ARGUMENT_VERSION_MISMATCH
    if gpu.fabric is None:
        info.state = pynvml.NVML_GPU_FABRIC_STATE_NOT_SUPPORTED
        return SUCCESS
    info.clusterUuid[:] = uuid.UUID(gpu.fabric.cluster).bytes
    info.status = gpu.fabric.status
    info.cliqueId = gpu.fabric.clique
    info.state = gpu.fabric.state
    info.healthMask = gpu.fabric.health_mask
    if third:
        info.healthSummary = gpu.fabric.health_summary
    return SUCCESS


@device_call("nvmlDeviceGetTopologyCommonAncestor")
def common_ancestor(library: SimulatedLibrary, gpu: Gpu, other: Any, level: Any) -> int:
    handle = library.handle(other)
    peer = library.gpu(handle.uuid) if handle else None
    if peer is None:
        return INVALID_ARGUMENT
    shared = 0
    for mine, theirs in zip(gpu.slot.split("/"), peer.slot.split("/"), strict=True):
        if mine != theirs:
            break
        shared += 1
    levels = (
        pynvml.NVML_TOPOLOGY_SYSTEM,
        pynvml.NVML_TOPOLOGY_NODE,
        pynvml.NVML_TOPOLOGY_HOSTBRIDGE,
        pynvml.NVML_TOPOLOGY_MULTIPLE,
        pynvml.NVML_TOPOLOGY_SINGLE,
    )
    return put(level, levels[shared])


@device_call("nvmlDeviceGetMigMode")
def mig_mode(_: SimulatedLibrary, gpu: Gpu, current: Any, pending: Any) -> int:
    if gpu.mig is None:
        return NOT_SUPPORTED
    put(current, gpu.mig.enabled)
    return put(pending, gpu.mig.pending)


@device_call("nvmlDeviceGetMaxMigDeviceCount")
def mig_device_count(_: SimulatedLibrary, gpu: Gpu, count: Any) -> int:
    return put(count, 7 if gpu.mig else 0)


@device_call("nvmlDeviceGetMigDeviceHandleByIndex")
def mig_device(library: SimulatedLibrary, gpu: Gpu, index: Any, handle: Any) -> int:
    instances = gpu.mig.instances if gpu.mig and gpu.mig.enabled else []
    if number_of(index) >= len(instances):
        return NOT_FOUND
    return library.hand_out(handle, Handle(gpu.uuid, instances[number_of(index)]))


@device_call("nvmlDeviceGetGpuInstanceId", with_handle=True)
def gpu_instance(_: SimulatedLibrary, _gpu: Gpu, handle: Handle, value: Any) -> int:
    return put(value, handle.instance.gi) if handle.instance else INVALID_ARGUMENT


@device_call("nvmlDeviceGetComputeInstanceId", with_handle=True)
def compute_instance(_: SimulatedLibrary, _gpu: Gpu, handle: Handle, value: Any) -> int:
    return put(value, handle.instance.ci) if handle.instance else INVALID_ARGUMENT
