"""Which GPU was put in for which, from two inventories."""

from __future__ import annotations

import pytest

from rules.api.health import GpuStatus, HealthStatus
from rules.repair.parts import (
    MAX_PARTS,
    MAX_REPLACED,
    Part,
    Replacement,
    exchanged,
    inventory,
    kept_inventory,
    kept_replacements,
    there_by_now,
)


def gpu(name: str, slot: str = "", serial: str | None = None) -> GpuStatus:
    number = f"s{name}" if serial is None else serial
    return GpuStatus(uuid=f"GPU-{name}", serial=number, pci=slot or f"0000:{name}:00.0")


def verdict(*gpus: GpuStatus, virtualization: str = "none") -> HealthStatus:
    return HealthStatus(gpus=gpus, virtualization=virtualization)


def parts(*gpus: GpuStatus) -> tuple[Part, ...]:
    return kept_inventory({"inventory": inventory(verdict(*gpus))})


A, B = gpu("0a"), gpu("0b")
NEW = gpu("0c", A.pci)


def found(before: tuple[GpuStatus, ...], now: HealthStatus) -> list[tuple[str, str]]:
    return [(a.uuid[4:], b.uuid[4:]) for a, b in exchanged(parts(*before), now)]


@pytest.mark.parametrize(
    ("now", "pairs"),
    [
        pytest.param((A, B), [], id="nothing changed"),
        pytest.param((NEW, B), [("0a", "0c")], id="another one at its address"),
        pytest.param((B,), [], id="one is gone and none came"),
        pytest.param((A, B, gpu("0d")), [], id="one came and none is gone"),
        pytest.param((gpu("0a", B.pci), gpu("0b", A.pci)), [], id="two changed places"),
        pytest.param((gpu("0b", A.pci),), [], id="a known one moved up to the address of a gone"),
        pytest.param(
            (gpu("0b", A.pci), gpu("0c", "0000:99:00.0")), [("0a", "0c")],
            id="addresses are counted anew: the only new one for the only one that is gone",
        ),
        pytest.param(
            (gpu("0c", "0000:98:00.0"), gpu("0d", "0000:99:00.0")), [],
            id="two of two elsewhere: nobody knows which for which",
        ),
        pytest.param(
            (gpu("0c", A.pci), gpu("0d", B.pci)), [("0a", "0c"), ("0b", "0d")], id="two of two"
        ),
        pytest.param(
            (gpu("0c", A.pci, serial=A.serial), B), [], id="another UUID of the same board"
        ),
        pytest.param((), [], id="nothing is seen"),
    ],
)  # fmt: skip
def test_who_came_for_whom(now: tuple[GpuStatus, ...], pairs: list[tuple[str, str]]) -> None:
    assert found((A, B), verdict(*now)) == pairs


def test_without_serial_numbers_only_bare_metal_tells() -> None:
    old, new = gpu("0a", serial=""), gpu("0c", A.pci, serial="")
    assert found((old,), verdict(new)) == [("0a", "0c")]
    assert found((old,), verdict(new, virtualization="kvm")) == []
    assert found((A,), verdict(NEW, virtualization="kvm")) == [("0a", "0c")]


def test_what_was_replaced_before_is_there_no_more() -> None:
    (pair,) = exchanged(parts(A, B), verdict(NEW, B))
    swap = Replacement(at="2026-11-23T10:00:00Z", part=pair[0], by=pair[1])
    there = there_by_now(parts(A, B), (swap,))
    assert exchanged(there, verdict(NEW, B)) == ()
    again = exchanged(there, verdict(gpu("0d", A.pci), B))
    assert [(a.uuid, b.uuid) for a, b in again] == [("GPU-0c", "GPU-0d")]


@pytest.mark.parametrize(
    "kept", [None, "x", 7, [1], [{"uuid": 7}], {"a": 1}, [{"part": {}}], [[[]]]]
)
def test_what_does_not_read_as_an_inventory_is_none(kept: object) -> None:
    assert kept_inventory({"inventory": kept}) == ()
    assert kept_replacements({"replaced": kept}) == ()


def test_what_a_hostile_verdict_lists_is_bounded() -> None:
    many = tuple(
        GpuStatus(uuid=f"GPU-{n}" + "x" * 9999, serial="s" * 9999, pci="p" * 9999)
        for n in range(500)
    )
    kept = kept_inventory({"inventory": inventory(verdict(*many))})
    assert len(kept) == MAX_PARTS
    assert max(len(p.uuid) + len(p.serial) + len(p.slot) for p in kept) < 200
    part = {"uuid": "u"}
    more = [{"at": "x", "part": part, "by": part}] * 500
    assert len(kept_replacements({"replaced": more})) == MAX_REPLACED


def test_what_a_session_saw_before_it_was_taken_up_again_fits_its_new_inventory() -> None:
    """A was replaced by the new one, which has left since: the inventory of now knows better."""
    (pair,) = exchanged(parts(A, B), verdict(NEW, B))
    swap = Replacement(at="2026-11-23T10:00:00Z", part=pair[0], by=pair[1])
    third, back = gpu("0d", A.pci), gpu("0e", "0000:99:00.0")
    there = there_by_now(parts(third, B), (swap,))
    assert [part.uuid for part in there] == [third.uuid, B.uuid]
    assert exchanged(there, verdict(third, B, back)) == (), "one came and none is gone"
    put_back = there_by_now(parts(NEW, B), (swap, Replacement(at="x", part=pair[1], by=pair[0])))
    assert [part.uuid for part in put_back] == [B.uuid, A.uuid]
