"""How many GPUs a node should have, and who reports it.

Called by `judge` whenever configuration, the Node or the PCI bus is seen. Never uses
allocatable or `nvidia.com/gpu.count`: MIG and time-slicing multiply them, and the device
plugin lowers them for an Xid that disrupts nobody.
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
    """The highest count ever seen on this hardware.

    `key` identifies the hardware (a digest of DMI product UUID and instance type), empty until
    both were read: a node of another shape under the same name starts to learn again.
    """

    count: int = 0
    key: str = ""


def hardware_key(product_uuid: str, instance_type: str) -> str:
    """Digest of what makes two nodes the same hardware; empty while the DMI UUID is unknown."""
    if not product_uuid:
        return ""
    text = f"{product_uuid.lower()}\0{instance_type}"
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:8]


def gpu_addresses(
    functions: Sequence[PciFunction], excluded: Sequence[str] = ()
) -> tuple[str, ...]:
    """Addresses of the GPUs that this node's workloads may count on.

    A GPU handed to a virtual machine (vfio-pci) or left out by the driver on request is none.
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
    """Addresses of the GPUs that virtual machines have or that the driver leaves out."""
    everything = [replace(function, driver="") for function in functions]
    return frozenset(gpu_addresses(everything)) - frozenset(gpu_addresses(functions, excluded))


def learn(learned: Learned, count: int, key: str) -> Learned:
    """Take one count; another `key` than the known one forgets what was learned."""
    if key and learned.key and key != learned.key:
        return Learned(count=count, key=key)
    return Learned(count=max(learned.count, min(count, health.MAX_GPUS)), key=key or learned.key)


def expected_gpus(configured: int | None, annotation: str, learned: Learned) -> ExpectedGpus:
    """Configuration, else the annotation, else what was learned.

    An annotation that is no number from 0 to 64 counts as missing.
    """
    if configured is not None:
        return ExpectedGpus(count=configured, source=CONFIG)
    if (said := health.said_count(annotation)) is not None:
        return ExpectedGpus(count=said, source=ANNOTATION)
    source = f"{LEARNED}:{learned.key}" if learned.key else LEARNED
    return ExpectedGpus(count=learned.count, source=source)


def learned_from(published: ExpectedGpus) -> Learned:
    """What an earlier agent on this node had learned; nothing when an operator had said it."""
    source, _, key = published.source.partition(":")
    if source != LEARNED:
        return Learned()
    return Learned(count=max(0, min(published.count, health.MAX_GPUS)), key=key)
