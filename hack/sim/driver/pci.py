"""What stands beside NVML on the simulated node: the PCI bus and the device files.

The agent's PCI sense in `sim:` mode reads this instead of sysfs, so that both views come from the
same file: a lost GPU answers with all ones, an unplugged one is gone.
"""

from pathlib import Path
from typing import NamedTuple

from hack.sim.driver.calls_system import normal_pci
from hack.sim.driver.node import Gpu, Node
from hack.sim.driver.store import NodeFile


class PciFunction(NamedTuple):
    """One NVIDIA display function as sysfs would show it."""

    address: str
    """Lower case `dddd:bb:dd.f`."""
    vendor: str
    device: str
    device_class: str
    driver: str | None
    """`nvidia`, `vfio-pci` or None when unbound."""
    config_space_ok: bool
    """False when reads of the configuration space give all ones."""
    numa: int

    @property
    def vfio(self) -> bool:
        """Passed through to a guest: not this host's to judge."""
        return self.driver == "vfio-pci"


def pci_functions(path: str | Path) -> list[PciFunction]:
    """The NVIDIA display functions of the node that the file describes, now."""
    return functions_of(NodeFile(path).current())


def functions_of(node: Node) -> list[PciFunction]:
    """The same from a description already read."""
    return [_function(gpu) for gpu in node.gpus if _view(gpu) != "absent"]


def device_files(path: str | Path) -> list[str]:
    """The `/dev/nvidiaN` that exist: one for each GPU the driver is bound to."""
    node = NodeFile(path).current()
    return sorted(
        f"/dev/nvidia{gpu.minor}"
        for gpu in node.gpus
        if _view(gpu) != "absent" and gpu.pci_view.driver == "nvidia"
    )


def _view(gpu: Gpu) -> str:
    if gpu.pci_view.view is not None:
        return gpu.pci_view.view
    if gpu.unplugged:
        return "absent"
    return "all_ones" if gpu.lost else "present"


def _function(gpu: Gpu) -> PciFunction:
    return PciFunction(
        address=normal_pci(gpu.pci),
        vendor=gpu.pci_view.vendor,
        device=gpu.pci_view.device,
        device_class=gpu.pci_view.device_class,
        driver=gpu.pci_view.driver,
        config_space_ok=_view(gpu) == "present",
        numa=gpu.numa,
    )
