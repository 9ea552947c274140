"""NVML calls about the registration of a GPU with its NVLink fabric, in all their versions.

Registered in `library`; `pynvml` calls them through the simulated library.
"""

import uuid
from typing import Any

import pynvml

from hack.sim.driver.library import (
    ARGUMENT_VERSION_MISMATCH,
    SUCCESS,
    SimulatedLibrary,
    device_call,
    referenced,
)
from hack.sim.driver.node import Fabric, Gpu
from hack.sim.driver.numbers import FABRIC_MASK_BITS, FABRIC_V3_BRANCH


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
    info.cliqueId = gpu.fabric.clique
    if third:
        info.healthSummary = gpu.fabric.health_summary
    return _fill_fabric(library, gpu.fabric, info)


@device_call("nvmlDeviceGetGpuFabricInfo_v4")
def fabric_info_v4(library: SimulatedLibrary, gpu: Gpu, info: Any) -> int:
    info = referenced(info)
    if gpu.fabric is None:
        info.state = pynvml.NVML_GPU_FABRIC_STATE_NOT_SUPPORTED
        return SUCCESS
    for place, kind in enumerate(
        (
            pynvml.NVML_GPU_FABRIC_CLIQUE_TYPE_UNICAST_POINTER,
            pynvml.NVML_GPU_FABRIC_CLIQUE_TYPE_MULTICAST_POINTER,
        )
    ):
        info.cliques[place].type = kind
        info.cliques[place].id = gpu.fabric.clique + place
        info.numCliques = place + 1
    info.healthSummary = gpu.fabric.health_summary
    return _fill_fabric(library, gpu.fabric, info)


def _fill_fabric(library: SimulatedLibrary, fabric: Fabric, info: Any) -> int:
    """Fill the fields that all versions of the structure have."""
    branch = library.node.driver.branch
    bits = next(count for first, count in FABRIC_MASK_BITS if branch >= first)
    info.clusterUuid[:] = uuid.UUID(fabric.cluster).bytes
    info.status = fabric.status
    info.state = fabric.state
    info.healthMask = fabric.health_mask & ((1 << bits) - 1)
    return SUCCESS
