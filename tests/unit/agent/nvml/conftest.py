"""What tests of the way to NVML share."""

from __future__ import annotations

import shutil

import pytest

from hack.sim.driver import NODES


@pytest.fixture
def path(tmp_path):
    """A node of eight GPUs that a test may change."""
    copy = tmp_path / "node.yaml"
    shutil.copy(NODES / "h100-8-nvswitch.yaml", copy)
    return copy
