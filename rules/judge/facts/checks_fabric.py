"""Checks of the NVLink fabric: registration, health, manager, partition. Listed in
`judge.facts.checks`.
"""

from collections.abc import Mapping
from typing import Final

from rules.catalog.signals import Signal
from rules.catalog.thresholds import Threshold
from rules.judge import topology
from rules.judge.facts import standing
from rules.judge.facts.standing import CheckResult, Sample
from rules.judge.observation import Value
from rules.judge.topology import Partition

# The fabric's health summary. Source: NVML reference.
_HEALTHY: Final = 1

# The fabric's health mask: four fields of two bits, the configuration in four bits, then two more
# fields of two bits. Source: NVML reference.
_FIELDS: Final = {
    0: "bandwidth degraded",
    2: "route recovering",
    4: "route unhealthy",
    6: "access timed out",
}
"""The first bit of each field, and the meaning of value 1."""
_BAD: Final = 1
_FINE: Final = (0, 2)
"""Not supported, and false; value 3 is not documented."""
_PARTITION: Final = 12
"""Whether the GPU is assigned to a partition, from R595: 1 yes, 2 no."""
_MANAGER: Final = 14
"""The connection to the global fabric manager, from R615: 1 connected, 2 disconnected."""
_MISSING: Final = 2
_CONFIGURATION: Final = 8
_CONFIGURATION_WRONG: Final = 2
"""This and higher values name an error; 0 is not supported, 1 is no error."""


def registered(sample: Sample, _: Threshold) -> CheckResult | None:
    """Check the fabric state: only registered is good."""
    state = sample.number(Signal.FABRIC_STATE)
    if state is None or state == 0:
        return None
    if state != topology.FABRIC_COMPLETED and sample.booting:
        return None
    status = sample.last(Signal.FABRIC_STATUS) or 0
    bad = (state != topology.FABRIC_COMPLETED and sample.outside is Partition.NO) or status != 0
    return standing.flag(bad, f"fabric_state={state:g} fabric_status={status:g}")


def registering(sample: Sample, _: Threshold) -> CheckResult | None:
    """Check for registration in progress while other GPUs are registered: partitioned or hung."""
    state = sample.number(Signal.FABRIC_STATE)
    if state is None or state == 0 or sample.booting:
        return None
    evidence = f"fabric_state={state:g}, and other GPUs of the node are registered"
    return standing.flag(sample.outside is Partition.POSSIBLE, evidence)


def health(sample: Sample, _: Threshold) -> CheckResult | None:
    """Check the fabric health summary, or the mask with drivers before R580."""
    summary = sample.number(Signal.FABRIC_HEALTH_SUMMARY)
    if summary:
        return standing.flag(summary != _HEALTHY, f"fabric_health_summary={summary:g}")
    mask = sample.number(Signal.FABRIC_HEALTH_MASK)
    if not mask or mask < 0 or sample.last(Signal.FABRIC_HEALTH_SUMMARY):
        return None
    bits = int(mask)
    configuration = bits >> _CONFIGURATION & 0b1111
    bad = configuration >= _CONFIGURATION_WRONG or any(
        bits >> field & 0b11 not in _FINE for field in _FIELDS
    )
    names = ", ".join(name for field, name in _FIELDS.items() if bits >> field & 0b11 == _BAD)
    return standing.flag(bad, f"fabric_health_mask={bits:#x}{f' ({names})' if names else ''}")


def _mask_field(mask: Value, first_bit: int) -> int | None:
    """Return a two-bit field of the fabric health mask; None if it is not supported."""
    number = standing.number_of(mask)
    return None if number is None or number < 0 else int(number) >> first_bit & 0b11 or None


def without_partition(values: Mapping[Signal, Value]) -> bool:
    """Return whether the driver reports that the GPU is assigned to no partition."""
    return _mask_field(values.get(Signal.FABRIC_HEALTH_MASK), _PARTITION) == _MISSING


def partition(sample: Sample, _: Threshold) -> CheckResult | None:
    """Check for a GPU without a fabric partition; a shared fabric assigns them on demand."""
    field = _mask_field(sample.values.get(Signal.FABRIC_HEALTH_MASK), _PARTITION)
    if field is None or sample.booting:
        return None
    bad = without_partition(sample.values) and not sample.shared_fabric
    return standing.flag(bad, "fabric_health_mask: the GPU is assigned to no partition")


def manager(sample: Sample, _: Threshold) -> CheckResult | None:
    """Check the connection of the GPU to the global fabric manager."""
    field = _mask_field(sample.values.get(Signal.FABRIC_HEALTH_MASK), _MANAGER)
    if field is None or sample.booting:
        return None
    evidence = "fabric_health_mask: the global fabric manager is disconnected"
    return standing.flag(field == _MISSING, evidence)
