"""Which version of gpuward this is, for the user agent, GPUNodeHealth and metrics."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from rules.api.names import COMPONENT_AGENT


def version_in(folders: Sequence[str]) -> str:
    """The version that stands in the name of the installed package's own folder.

    Not importlib.metadata, which opens archives and mail: a megabyte of every agent.
    """
    for folder in folders:
        try:
            names = os.listdir(folder or ".")  # noqa: PTH208 - names alone, at every start
        except OSError:
            continue
        for name in names:
            if name.startswith("gpuward-") and name.endswith(".dist-info"):
                return name.removeprefix("gpuward-").removesuffix(".dist-info")
    # A checkout put on the path without being installed.
    return "0.0.0"


VERSION = version_in(sys.path)
USER_AGENT = f"{COMPONENT_AGENT}/{VERSION}"
