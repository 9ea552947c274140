"""Which version of gpuward this is, for the user agent, GPUNodeHealth and metrics."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from rules.api.names import COMPONENT_AGENT

try:
    VERSION = version("gpuward")
except PackageNotFoundError:
    # A checkout put on the path without being installed.
    VERSION = "0.0.0"

USER_AGENT = f"{COMPONENT_AGENT}/{VERSION}"
