"""Normalize PCI addresses of NVML, the kernel and exporters to one format."""

from functools import lru_cache


@lru_cache(maxsize=1024)
def normal_pci(address: str) -> str:
    """Return the address in lower case with a domain of four digits: `0000:1b:00.0`."""
    domain, colon, rest = address.lower().partition(":")
    if colon and len(domain) > 4:
        domain = domain.lstrip("0").rjust(4, "0")
    return domain + colon + rest


@lru_cache(maxsize=1024)
def plain_address(address: str) -> str:
    """Return `0000:1b:00` for `00000000:1B:00.0`: the GPU without its function."""
    return normal_pci(address).partition(".")[0]


def full_address(address: str) -> str:
    """Return `dddd:bb:dd.f` with every digit; empty if it is not an address."""
    try:
        domain, bus, rest = address.split(":")
        slot, _, function = rest.partition(".")
        numbers = (int(domain, 16), int(bus, 16), int(slot, 16), int(function or "0", 16))
    except ValueError:
        return ""
    return "{:04x}:{:02x}:{:02x}.{:x}".format(*numbers)
