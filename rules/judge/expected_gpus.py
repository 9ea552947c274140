"""The expected number of GPUs of a node and its source.

Never uses allocatable or `nvidia.com/gpu.count`: MIG and time-slicing multiply them, and the
device plugin lowers them even for an Xid that disrupts no workload.
"""

import hashlib
from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from rules.api import health
from rules.api.health import ExpectedGpus
from rules.judge import observation
from rules.judge.observation import PciFunction
from rules.text import pci_address

CONFIG: Final = "Config"
ANNOTATION: Final = "Annotation"
LEARNED: Final = "Learned"


class Learned(msgspec.Struct, frozen=True, kw_only=True):
    """The highest number of GPUs ever counted on this hardware.

    `key` is a digest of DMI product UUID and instance type, empty until both are known. Different
    hardware under the same node name starts a new count.
    """

    count: int = 0
    key: str = ""


def hardware_key(product_uuid: str, instance_type: str) -> str:
    """Return a digest that identifies the hardware; empty while the DMI UUID is unknown."""
    if not product_uuid:
        return ""
    text = f"{product_uuid.lower()}\0{instance_type}"
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:8]


def gpu_addresses(
    functions: Sequence[PciFunction], excluded: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return the addresses of the GPUs that this node's workloads can use.

    GPUs passed to a virtual machine (vfio-pci) or excluded by the driver are left out.
    """
    left_out = {pci_address.plain_address(address) for address in excluded}
    return tuple(
        sorted(
            {
                pci_address.plain_address(function.address)
                for function in functions
                if function.vendor == observation.NVIDIA_VENDOR
                and function.device_class in observation.GPU_CLASSES
                and function.driver != "vfio-pci"
            }
            - left_out
        )
    )


def given_away(functions: Sequence[PciFunction], excluded: Sequence[str] = ()) -> frozenset[str]:
    """Return the addresses of GPUs passed to virtual machines or excluded by the driver."""
    everything = [replace(function, driver="") for function in functions]
    return frozenset(gpu_addresses(everything)) - frozenset(gpu_addresses(functions, excluded))


def learn(learned: Learned, count: int, key: str) -> Learned:
    """Return the learned count after one count; another `key` than the known one resets it."""
    if key and learned.key and key != learned.key:
        return Learned(count=count, key=key)
    return Learned(count=max(learned.count, min(count, health.MAX_GPUS)), key=key or learned.key)


def expected_gpus(configured: int | None, annotation: str, learned: Learned) -> ExpectedGpus:
    """Return the count from the configuration, else the annotation, else the learned count.

    An annotation that is not a number from 0 to 64 is ignored.
    """
    if configured is not None:
        return ExpectedGpus(count=configured, source=CONFIG)
    if (annotated := health.annotated_count(annotation)) is not None:
        return ExpectedGpus(count=annotated, source=ANNOTATION)
    source = f"{LEARNED}:{learned.key}" if learned.key else LEARNED
    return ExpectedGpus(count=learned.count, source=source)


def learned_from(published: ExpectedGpus) -> Learned:
    """Return what an earlier agent on this node learned; nothing if an operator set the count."""
    source, _, key = published.source.partition(":")
    if source != LEARNED:
        return Learned()
    return Learned(count=max(0, min(published.count, health.MAX_GPUS)), key=key)
