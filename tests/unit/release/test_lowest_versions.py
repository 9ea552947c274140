"""Every dependency of the programs names the lowest version that is tested."""

from __future__ import annotations

from hack.lowest import TOOLS, pins


def test_every_dependency_declares_a_lowest_version_that_can_be_installed() -> None:
    found = dict(pin.split("==") for pin in pins())
    assert {"urllib3", "aiohttp", "kubernetes", "rich", *TOOLS} <= found.keys()
    assert all("." in version for version in found.values())


def test_the_lowest_kubernetes_client_has_the_asynchronous_one() -> None:
    """`kubernetes.aio` came with 36.0.1: without it a login by a program of a provider fails."""
    found = dict(pin.split("==") for pin in pins())
    assert tuple(map(int, found["kubernetes"].split("."))) >= (36, 0, 1)
