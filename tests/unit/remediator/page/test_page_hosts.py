"""Which names the page answers to."""

from __future__ import annotations

import pytest

from remediator.page.site import hosts_of, may_ask


@pytest.mark.parametrize(
    ("header", "answered"),
    [
        pytest.param("127.0.0.1:9414", True, id="port-forward"),
        pytest.param("localhost:9414", True, id="localhost"),
        pytest.param("[::1]:9414", True, id="IPv6"),
        pytest.param("10.1.2.3", True, id="pod address"),
        pytest.param("gpuward-remediator:9414", True, id="service"),
        pytest.param("gpuward-remediator.gpuward.svc", True, id="service with namespace"),
        pytest.param("x.gpuward.svc.cluster.local:9414", True, id="service in full"),
        pytest.param("", True, id="no browser"),
        pytest.param("evil.example.com:9414", False, id="public name"),
        pytest.param("127.0.0.1.evil.example.com", False, id="address as a label"),
        pytest.param("svc.evil.com", False, id="only the end counts"),
        pytest.param("a:b:c", False, id="neither name nor address"),
        pytest.param("GPU.Example.com", True, id="allowed name"),
    ],
)
def test_names(header: str, answered: bool) -> None:
    assert may_ask(header, hosts_of("gpu.example.com, other.example.com")) is answered
