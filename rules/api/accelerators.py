"""Resources and DRA drivers of accelerators: GPUs, their partitions, other chips.

`rules/data/accelerators.json` has a row for each resource of a device plugin and each driver.
Other resources of the same vendors (network adapters, virtual functions, monitoring) are no
accelerators.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from rules.catalog.data_file import data_file


class _Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    source: str
    resource: str = ""
    """A name; `*` at its end stands for any text."""
    driver: str = ""
    """A DRA driver whose devices are accelerators."""
    same: str = ""
    """The resource that counts the same devices in another unit."""
    excluded: tuple[str, ...] = msgspec.field(name="except", default=())
    """Ends of names that are no devices."""


_ROWS: Final = msgspec.json.decode(data_file("accelerators.json"), type=tuple[_Row, ...])
DRIVERS: Final = frozenset(row.driver for row in _ROWS if row.driver)
"""DRA drivers whose devices are accelerators."""
_NAMED: Final = {r.resource: r for r in _ROWS if r.resource and not r.resource.endswith("*")}
_PREFIXED: Final = tuple(
    (row.resource[:-1], row.excluded) for row in _ROWS if row.resource.endswith("*")
)


def is_accelerator(resource: str) -> bool:
    """Return whether pods get accelerators by requesting the resource."""
    return resource in _NAMED or any(
        resource.startswith(prefix) and not resource.endswith(excluded)
        for prefix, excluded in _PREFIXED
    )


def vendor(resource: str) -> str:
    """Return the domain of the resource: `amd.com` of `amd.com/gpu`."""
    return resource.partition("/")[0]


def by_vendor(amounts: Mapping[str, int]) -> Mapping[str, int]:
    """Return the number of accelerators of each vendor. Of resources that count the same devices
    in different units, only the largest amount counts.
    """
    largest: dict[str, int] = {}
    for name, amount in amounts.items():
        row = _NAMED.get(name)
        key = (row.same if row is not None else "") or name
        largest[key] = max(amount, largest.get(key, 0))
    found: dict[str, int] = {}
    for name, amount in largest.items():
        found[vendor(name)] = found.get(vendor(name), 0) + amount
    return found
