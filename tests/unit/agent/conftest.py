"""Fixtures for tests of the agent."""

import shutil

import pytest

from hack.sim.driver import NODES, install
from tests.support.agent.nvml_collector import Collector


@pytest.fixture
def collector(tmp_path, request):
    node = getattr(request, "param", "h100-8-nvswitch")
    path = tmp_path / "node.yaml"
    path.write_bytes((NODES / f"{node}.yaml").read_bytes())
    with install(path):
        yield Collector(path)


@pytest.fixture
def path(tmp_path):
    """A node of eight GPUs that a test may change."""
    copy = tmp_path / "node.yaml"
    shutil.copy(NODES / "h100-8-nvswitch.yaml", copy)
    return copy
