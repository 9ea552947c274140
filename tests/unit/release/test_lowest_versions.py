"""Every dependency of the programs names the lowest version that is tested, and is installed."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from hack.lowest import TOOLS, pins

ROOT = Path(__file__).resolve().parents[3]


def test_every_dependency_declares_a_lowest_version_that_can_be_installed() -> None:
    found = dict(pin.split("==") for pin in pins())
    assert {"urllib3", "aiohttp", "kubernetes", "rich", *TOOLS} <= found.keys()
    assert all("." in version for version in found.values())


@pytest.mark.parametrize("script", ["demo", "screenshots"])
def test_the_demo_installs_what_the_remediator_needs_but_the_client_library(script: str) -> None:
    """Its kubeconfig logs in without that."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {re.split(r"[<>=]", one)[0] for one in project["optional-dependencies"]["remediator"]}
    text = (ROOT / "hack" / script).read_text()
    installed = re.search(r'^GPUWARD_INSTALL="\. (.*)"$', text, re.MULTILINE)
    assert installed is not None
    assert set(installed[1].split()) == needed - {"kubernetes"} | {"rich"}
