"""The expected number of GPUs and its sources."""

import pytest

from rules.api.health import ExpectedGpus
from rules.judge.expected_gpus import (
    Learned,
    expected_gpus,
    gpu_addresses,
    hardware_key,
    learn,
    learned_from,
)
from rules.judge.observation import PciFunction
from rules.text.pci_address import plain_address


def function(bus: int, *, device_class: int = 0x0302, driver: str = "nvidia") -> PciFunction:
    return PciFunction(
        address=f"0000:{bus:02x}:00.0", vendor=0x10DE, device_class=device_class, driver=driver
    )


@pytest.mark.parametrize(
    ("configured", "annotation", "learned", "expected"),
    [
        pytest.param(4, "8", 6, (4, "Config"), id="configuration wins"),
        pytest.param(None, "8", 6, (8, "Annotation"), id="then the annotation"),
        pytest.param(None, " 0 ", 6, (0, "Annotation"), id="zero is a number"),
        pytest.param(None, "", 6, (6, "Learned:k"), id="then what was learned"),
        pytest.param(None, "eight", 6, (6, "Learned:k"), id="text is not a number"),
        pytest.param(None, "99", 6, (6, "Learned:k"), id="too many to believe"),
        pytest.param(None, "-1", 6, (6, "Learned:k"), id="negative"),
    ],
)
def test_the_source_of_the_expected_count(
    configured: int | None, annotation: str, learned: int, expected: tuple[int, str]
) -> None:
    found = expected_gpus(configured, annotation, Learned(count=learned, key="k"))
    assert (found.count, found.source) == expected


def test_only_gpus_that_workloads_can_use_are_counted() -> None:
    functions = (
        function(1),
        function(2, device_class=0x0300),
        function(3, device_class=0x0680),
        function(4, driver="vfio-pci"),
        function(5, driver=""),
        function(6),
        PciFunction(address="0000:07:00.0", vendor=0x1002, device_class=0x0302),
    )
    assert gpu_addresses(functions, ("00000000:06:00.0",)) == (
        "0000:01:00",
        "0000:02:00",
        "0000:05:00",
    )


def test_the_highest_count_is_remembered_per_hardware() -> None:
    learned = Learned()
    for count, key in ((7, ""), (8, "a"), (7, "a"), (7, "")):
        learned = learn(learned, count, key)
    assert learned == Learned(count=8, key="a")
    assert learn(learned, 1, "b") == Learned(count=1, key="b")


def test_the_hardware_is_known_by_dmi_and_instance_type() -> None:
    assert hardware_key("", "p5") == ""
    keys = {hardware_key("u1", "p5"), hardware_key("u1", "g5"), hardware_key("u2", "p5")}
    assert len(keys) == 3
    assert hardware_key("ABC", "p5") == hardware_key("abc", "p5")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("Learned:ab", Learned(count=8, key="ab")),
        ("Learned", Learned(count=8)),
        ("Config", Learned()),
        ("Annotation", Learned()),
        ("", Learned()),
    ],
)
def test_what_was_learned_comes_back(source: str, expected: Learned) -> None:
    assert learned_from(ExpectedGpus(count=8, source=source)) == expected


@pytest.mark.parametrize(
    ("spelled", "plain"),
    [
        ("00000000:3B:00.0", "0000:3b:00"),
        ("0000:3b:00.0", "0000:3b:00"),
        ("0000:3b:00", "0000:3b:00"),
        ("0008:01:00.0", "0008:01:00"),
        ("00010001:01:00.0", "10001:01:00"),
        ("nonsense", "nonsense"),
    ],
)
def test_addresses_are_compared_in_one_form(spelled: str, plain: str) -> None:
    assert plain_address(spelled) == plain
