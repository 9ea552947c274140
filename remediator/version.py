"""Which version of gpuward this is."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version


@cache
def release_version() -> str:
    """The installed version; `source` in a checkout that is not installed."""
    try:
        return version("gpuward")
    except PackageNotFoundError:
        return "source"
