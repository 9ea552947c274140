"""How the GPUs of the node are joined, spelled as `nvidia-smi topo -m` does. Run by the child.

By design, not by state: a link that is down still counts, so a fault does not change the picture.
"""

from __future__ import annotations

import pynvml as nvml

from agent.nvml.caller import Caller, Failed
from agent.nvml.inventory import Gpu
from agent.nvml.messages import NvmlTopology
from agent.nvml.reads import READS
from agent.nvml.table import FABRIC_V3_BRANCH, HOPPER
from rules.catalog.signals import Signal
from rules.text.pci_address import full_address

DISTANCES = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
"""nvmlGpuTopologyLevel_t, by its values."""
REMOTES = {0: "gpu", 1: "npu", 2: "switch"}
NO_CLUSTER = "00000000-0000-0000-0000-000000000000"


def topology(call: Caller, gpus: list[Gpu], branch: int) -> NvmlTopology:
    """How the GPUs are joined. Links count whether they are up or down: this is the design."""
    by_pci = {gpu.device.pci: gpu.device.index for gpu in gpus if gpu.device.pci}
    remote: list[list[str]] = []
    peers: list[dict[int, int]] = []
    for gpu in gpus:
        kinds, joined = _remotes(call, gpu, by_pci)
        remote.append(kinds)
        peers.append(joined)
    size = range(len(gpus))
    links = [
        ["X" if i == j else _join(call, gpus, i, j, remote, peers) for j in size] for i in size
    ]
    fabric = [_fabric(call, gpu, branch) for gpu in gpus]
    return NvmlTopology(
        gpus=[gpu.device.uuid or gpu.device.pci for gpu in gpus],
        links=links,
        remotes=remote,
        clusters=[cluster for cluster, _ in fabric],
        cliques=[clique for _, clique in fabric],
        numa=[gpu.device.numa for gpu in gpus],
    )


def _remotes(call: Caller, gpu: Gpu, by_pci: dict[str, int]) -> tuple[list[str], dict[int, int]]:
    kinds: list[str] = []
    joined: dict[int, int] = {}
    for link in range(gpu.device.links if gpu.handle is not None else 0):
        kind = call.number(
            "nvmlDeviceGetNvLinkRemoteDeviceType",
            nvml.nvmlDeviceGetNvLinkRemoteDeviceType,
            gpu.handle,
            link,
            gpu=gpu.key,
        )
        kinds.append("" if kind is None else REMOTES.get(kind, "unknown"))
        if kinds[-1] == "gpu":
            peer = by_pci.get(_remote_pci(call, gpu, link))
            if peer is not None:
                joined[peer] = joined.get(peer, 0) + 1
    if "switch" in kinds:
        # A link that is down cannot name its switch; where one goes to a switch, all do.
        kinds = ["switch"] * len(kinds)
    return kinds, joined


def _remote_pci(call: Caller, gpu: Gpu, link: int) -> str:
    return full_address(
        call.text(
            "nvmlDeviceGetNvLinkRemotePciInfo_v2",
            lambda: nvml.nvmlDeviceGetNvLinkRemotePciInfo(gpu.handle, link).busId,
            gpu=gpu.key,
        )
    )


def _join(
    call: Caller,
    gpus: list[Gpu],
    i: int,
    j: int,
    remote: list[list[str]],
    peers: list[dict[int, int]],
) -> str:
    through_switch = min(remote[i].count("switch"), remote[j].count("switch"))
    count = through_switch or peers[i].get(j, 0) or peers[j].get(i, 0)
    if count:
        return f"NV{count}"
    if gpus[i].handle is None or gpus[j].handle is None:
        return ""
    level = call.number(
        "nvmlDeviceGetTopologyCommonAncestor",
        nvml.nvmlDeviceGetTopologyCommonAncestor,
        gpus[i].handle,
        gpus[j].handle,
        gpu=gpus[i].key,
    )
    return "" if level is None else DISTANCES.get(level, "")


def _fabric(call: Caller, gpu: Gpu, branch: int) -> tuple[str, int | None]:
    """The NVLink cluster and clique; none on parts without a fabric, no cluster on one node."""
    if gpu.handle is None or (gpu.device.architecture or 0) < HOPPER:
        return "", None
    read = READS["fabric_v3" if branch >= FABRIC_V3_BRANCH else "fabric_v2"]
    values = call("nvmlDeviceGetGpuFabricInfoV", read, gpu.handle, 0, gpu=gpu.key)
    if isinstance(values, Failed) or values[Signal.FABRIC_STATE] == 0:
        return "", None
    cluster, clique = values[Signal.FABRIC_CLUSTER], values[Signal.FABRIC_CLIQUE]
    return (
        cluster if isinstance(cluster, str) and cluster != NO_CLUSTER else "",
        clique if isinstance(clique, int) else None,
    )
