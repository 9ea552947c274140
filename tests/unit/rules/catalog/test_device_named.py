"""What an address in an incident is the address of."""

from __future__ import annotations

import pytest

from rules.catalog.explanations import device_at, places
from rules.catalog.reasons import REASONS

PCI = "0000:0a:00"


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("SXidFatal", f"NVSwitch at {PCI}"),
        ("SXidUnknown", f"NVSwitch at {PCI}"),
        ("NicPower", f"network adapter at {PCI}"),
        ("PcieContainment", f"PCI device at {PCI}"),
        ("GPULost", f"GPU at {PCI}"),
        ("ReasonOfANewerAgent", f"GPU at {PCI}"),
    ],
)
def test_an_address_alone_is_of_what_the_reason_is_about(reason: str, said: str) -> None:
    assert device_at(reason, PCI) == said
    assert reason in REASONS or reason == "ReasonOfANewerAgent"
    assert places(reason, [PCI], []) == (said,)


def test_a_gpu_that_is_known_is_told_by_address_and_uuid() -> None:
    assert places("GPULost", [PCI], ["GPU-a"]) == (PCI, "GPU-a")
