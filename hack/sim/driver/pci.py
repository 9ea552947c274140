"""What stands beside NVML on the simulated node: the PCI bus, the device files, the host.

The agent's PCI sense in `sim:` mode reads this instead of sysfs, so that both views come from the
same file: a lost GPU answers with all ones, an unplugged one is gone.
"""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from hack.sim.driver.node import Gpu, Node
from hack.sim.driver.store import NodeFile
from rules.judge.observation import HostSeen, NetworkPort, PciFunction, Service
from rules.text.pci_address import full_address


def pci_functions(path: str | Path) -> list[PciFunction]:
    """The NVIDIA display functions of the node that the file describes, now."""
    return functions_of(NodeFile(path).current())


def functions_of(node: Node) -> list[PciFunction]:
    """The same from a description already read."""
    return [_function(gpu) for gpu in node.gpus if _view(gpu) != "absent"]


def device_files(path: str | Path) -> list[str]:
    """The `/dev/nvidiaN` that exist: one for each GPU the driver is bound to."""
    return [
        f"/dev/nvidia{gpu.minor}"
        for gpu in sorted(NodeFile(path).current().gpus, key=lambda gpu: gpu.minor)
        if _view(gpu) != "absent" and gpu.pci_view.driver == "nvidia"
    ]


def host_of(node: Node, identity: HostSeen) -> HostSeen:
    """A look at the node's host; `identity` is of the machine that simulates it."""
    host = node.host
    ports = range(host.infiniband_ports)
    seen = replace(
        identity,
        ports=tuple(NetworkPort(name=f"mlx5_{n}/1", active=True) for n in ports),
    )
    if host.running is None:
        return seen
    return replace(
        seen,
        services={service: service.value in host.running for service in Service},
    )


def _view(gpu: Gpu) -> str:
    if gpu.pci_view.view is not None:
        return gpu.pci_view.view
    if gpu.unplugged:
        return "absent"
    return "all_ones" if gpu.lost else "present"


def _function(gpu: Gpu) -> PciFunction:
    return PciFunction(
        address=full_address(gpu.pci),
        vendor=int(gpu.pci_view.vendor, 16),
        device_class=int(gpu.pci_view.device_class, 16) >> 8,
        driver=gpu.pci_view.driver or "",
        config_space_ok=_view(gpu) == "present",
        upstream=tuple(gpu.pci_view.upstream),
    )
