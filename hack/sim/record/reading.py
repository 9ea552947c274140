"""Read a complete node once: the agent's readings, and more data for the simulator.

Called by the recorder with the real or the simulated library in `pynvml`. It reads versions,
clocks and distances in addition to the agent's readings. It is read-only and lists no processes.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pynvml as nvml
from msgspec.structs import replace

from agent.nvml.inventory import (
    Caller,
    DriverGoneError,
    Failed,
    Gpu,
    Value,
    enumerate_gpus,
    excluded,
    virtualization,
)
from agent.nvml.poller import Poller, Tier
from agent.nvml.reads import topology
from rules.catalog.signals import Signal, driver_branch
from rules.judge.observation import TopologySeen
from rules.text.pci_address import full_address

CLOCKS = {"graphics": 0, "sm": 1, "memory": 2, "video": 3}
"""nvmlClockType_t."""
INTERNAL = 0
"""nvmlGpuTopologyLevel_t of a GPU and itself."""


class ReadError(Exception):
    """NVML cannot be read; the text is one sentence."""


class GpuRead(NamedTuple):
    """One GPU: the agent's readings and more data for the simulator."""

    gpu: Gpu
    values: dict[Signal, Value]
    clocks: dict[str, int]
    compute_capability: str
    device: str
    subsystem: str
    """PCI IDs in the format of the simulator: `2330`, `10de16c1`."""
    gpu_max: int | None
    link_version: int | None
    remotes: list[str]
    """The PCI address at the other end of each NVLink; empty if it cannot be read."""
    mig_pending: bool
    instances: list[dict[str, Any]]


class NodeRead(NamedTuple):
    """The node. `distances` are NVML's topology levels between each two GPUs."""

    driver: str
    nvml: str
    cuda: str
    branch: int
    virtualization: str
    excluded: list[str]
    gpus: list[GpuRead]
    unreadable: int
    """Number of GPUs that NVML counts and that do not answer."""
    topology: TopologySeen
    distances: list[list[int | None]]


@contextmanager
def initialised() -> Iterator[None]:
    """Initialise NVML inside the context. Raises ReadError."""
    try:
        nvml.nvmlInitWithFlags(nvml.NVML_INIT_FLAG_NO_GPUS)
    except nvml.NVMLError as error:
        raise ReadError(f"cannot initialise NVML: {error}. Is the driver loaded?") from error
    try:
        yield
    finally:
        nvml.nvmlShutdown()


def read_node() -> NodeRead:
    """Read everything once. Raises ReadError if the driver is unloaded meanwhile."""
    call = Caller(lambda _: None)
    try:
        return _read(call)
    except DriverGoneError as error:
        raise ReadError(f"cannot read the driver: {error}") from error


def _read(call: Caller) -> NodeRead:
    driver = call.text("nvmlSystemGetDriverVersion", nvml.nvmlSystemGetDriverVersion)
    cuda = call.number("cuda", nvml.nvmlSystemGetCudaDriverVersion_v2) or 0
    branch = driver_branch(driver) or 0
    counted = enumerate_gpus(call, [])
    gpus = [gpu for gpu in counted if gpu.handle is not None]
    poller = Poller(call, branch)
    return NodeRead(
        driver=driver,
        nvml=call.text("nvmlSystemGetNVMLVersion", nvml.nvmlSystemGetNVMLVersion),
        cuda=f"{cuda // 1000}.{cuda % 1000 // 10}",
        branch=branch,
        virtualization=virtualization(call, gpus),
        excluded=excluded(call),
        gpus=[_gpu(call, poller, gpu) for gpu in gpus],
        unreadable=len(counted) - len(gpus),
        # Two reads of the same node are equal.
        topology=replace(topology(call, gpus, branch), at=0.0),
        distances=[[_distance(call, one, other) for other in gpus] for one in gpus],
    )


def _gpu(call: Caller, poller: Poller, gpu: Gpu) -> GpuRead:
    handle = gpu.handle
    values: dict[Signal, Value] = {}
    for tier in Tier:
        values |= poller.poll(gpu, tier, 0.0)

    def ask(function: Callable[..., Any], *arguments: Any) -> Any:
        """Return the result, or None."""
        found = call(function.__name__, function, handle, *arguments)
        return None if isinstance(found, Failed) else found

    capability = ask(nvml.nvmlDeviceGetCudaComputeCapability) or (0, 0)
    pci = ask(nvml.nvmlDeviceGetPciInfo)
    subsystem = f"{pci.pciSubSystemId:08x}" if pci else "00000000"
    mig = ask(nvml.nvmlDeviceGetMigMode)
    clocks = {name: ask(nvml.nvmlDeviceGetClockInfo, kind) for name, kind in CLOCKS.items()}
    links = range(gpu.device.links)
    remotes = [ask(nvml.nvmlDeviceGetNvLinkRemotePciInfo, link) for link in links]
    return GpuRead(
        gpu=gpu,
        values=values,
        clocks={name: clock for name, clock in clocks.items() if clock is not None},
        compute_capability="{}.{}".format(*capability),
        device=f"{pci.pciDeviceId >> 16:04x}" if pci else "0000",
        subsystem=subsystem[4:] + subsystem[:4],
        gpu_max=ask(
            nvml.nvmlDeviceGetTemperatureThreshold, nvml.NVML_TEMPERATURE_THRESHOLD_GPU_MAX
        ),
        link_version=ask(nvml.nvmlDeviceGetNvLinkVersion, 0) if links else None,
        remotes=["" if info is None else full_address(_text(info.busId)) for info in remotes],
        mig_pending=bool(mig[1]) if mig else False,
        instances=list(_instances(ask)) if mig and mig[0] else [],
    )


def _instances(ask: Callable[..., Any]) -> Iterator[dict[str, Any]]:
    for index in range(ask(nvml.nvmlDeviceGetMaxMigDeviceCount) or 0):
        device = ask(nvml.nvmlDeviceGetMigDeviceHandleByIndex, index)
        if device is None:
            continue
        try:
            yield {
                "uuid": nvml.nvmlDeviceGetUUID(device),
                "gi": nvml.nvmlDeviceGetGpuInstanceId(device),
                "ci": nvml.nvmlDeviceGetComputeInstanceId(device),
            }
        except nvml.NVMLError:
            continue  # removed while it was read


def _distance(call: Caller, one: Gpu, other: Gpu) -> int | None:
    if one is other:
        return INTERNAL
    return call.number(
        "nvmlDeviceGetTopologyCommonAncestor",
        nvml.nvmlDeviceGetTopologyCommonAncestor,
        one.handle,
        other.handle,
    )


def _text(raw: str | bytes) -> str:
    return raw.decode("ascii", "replace") if isinstance(raw, bytes) else raw
